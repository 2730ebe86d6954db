"""Hints within one process, between those who name the same place."""

import asyncio
import os
import threading
from collections.abc import Iterable

from holdfast.errors import InvalidInput
from holdfast.notifier import Hint
from holdfast.notifiers.ear import Heard, call
from holdfast.notifiers.gathered import Gathered

__all__ = ["LocalNotifier"]

_lock = threading.Lock()  # the loops of several threads may share a place
_places: dict[str, list["_Listener"]] = {}


class LocalNotifier:
    """A place is any string, such as the name of an in-memory store."""

    def __init__(self, place: str) -> None:
        self._place = place
        self._own: list[_Listener] = []
        self._closed = False

    def tell(self, hints: Iterable[Hint]) -> None:
        if self._closed:
            return
        told = tuple(hints)
        with _lock:
            listeners = tuple(_places.get(self._place, ()))
        for listener in listeners:
            if not listener.tell(told):
                _leave(self._place, listener)

    async def listen(self, heard: Heard) -> None:
        if self._closed:
            raise InvalidInput("this notifier is closed; make a new one to listen")
        listener = _Listener(heard, asyncio.get_running_loop())
        self._own.append(listener)
        with _lock:
            _places.setdefault(self._place, []).append(listener)

    def leave(self, heard: Heard) -> None:
        for listener in [one for one in self._own if one.is_for(heard)][:1]:
            self._own.remove(listener)
            listener.stop()
            _leave(self._place, listener)

    async def close(self) -> None:
        self._closed = True
        while self._own:
            listener = self._own.pop()
            listener.stop()
            _leave(self._place, listener)


class _Listener:
    """Called on its own loop, with what was gathered since that loop came round last."""

    def __init__(self, heard: Heard, loop: asyncio.AbstractEventLoop) -> None:
        self._heard: Heard | None = heard
        self._loop = loop
        self._lock = threading.Lock()
        self._waiting = Gathered()

    def tell(self, hints: tuple[Hint, ...]) -> bool:
        """False where its loop is closed, so that nobody will ever hear."""
        with self._lock:
            called = bool(self._waiting)
            self._waiting.add(hints)
            if called or not self._waiting:
                return not self._loop.is_closed()
            try:
                self._loop.call_soon_threadsafe(self._pass_on)
            except RuntimeError:
                return False
        return True

    def is_for(self, heard: Heard) -> bool:
        return self._heard == heard

    def stop(self) -> None:
        self._heard = None

    def _pass_on(self) -> None:
        with self._lock:
            hints = self._waiting.take()
        for hint in hints:
            if self._heard is not None:
                call(self._heard, hint)


def _leave(place: str, listener: _Listener) -> None:
    with _lock:
        there = _places.get(place, [])
        if listener in there:
            there.remove(listener)
        if not there:
            _places.pop(place, None)


def _start_over() -> None:
    """In a forked child: the loops of the parent's listeners do not run here."""
    global _lock
    _lock = threading.Lock()
    _places.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_start_over)
