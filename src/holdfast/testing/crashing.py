"""Crashes in the middle of a test: a worker's code stops where it stands, and never goes on."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Any, cast

from holdfast.answers import Step, Written
from holdfast.function import Function
from holdfast.store import Store
from holdfast.tasks.task import Draft, Lease

__all__ = ["Crash", "Life", "dying", "lives", "mortal"]

_SURVIVORS = ("holdfast.stores", "holdfast.notifiers", "holdfast.app")


class Life:
    """All asyncio tasks of one worker. When it is over none of them takes another step."""

    def __init__(self, tell: Callable[[], None]) -> None:
        self.cause: Crash | None = None
        self._tell = tell
        self._tasks: list[asyncio.Task[Any]] = []

    def begin(self, task: asyncio.Task[Any]) -> None:
        self._tasks = [each for each in self._tasks if not each.done()]
        self._tasks.append(task)

    async def end(self, crash: "Crash") -> None:
        """Never returns."""
        self.cause = crash
        for task in self._tasks:
            task.cancel()
        self._tell()
        await asyncio.get_running_loop().create_future()


_life: ContextVar[Life | None] = ContextVar("holdfast_life", default=None)


class _Mortal(Coroutine[Any, Any, Any]):
    """Passes everything on, for as long as it lives."""

    def __init__(self, coroutine: Coroutine[Any, Any, Any], life: Life) -> None:
        self._coroutine, self._life = coroutine, life
        self.cr_frame = getattr(coroutine, "cr_frame", None)
        self.__name__ = getattr(coroutine, "__name__", type(coroutine).__name__)
        self.__qualname__ = getattr(coroutine, "__qualname__", self.__name__)

    def __await__(self) -> Any:
        return self

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        return self.send(None)

    def send(self, value: Any, /) -> Any:
        self._check()
        return self._coroutine.send(value)

    def throw(self, *error: Any) -> Any:
        self._check()
        return self._coroutine.throw(*error)

    def close(self) -> None:
        if self._life.cause is None:
            self._coroutine.close()

    def _check(self) -> None:
        if crash := self._life.cause:
            crash.left.append(self._coroutine)
            raise asyncio.CancelledError


@contextmanager
def mortal() -> Iterator[None]:
    """On this event loop a life ends with all that was begun in it."""
    loop: Any = asyncio.get_running_loop()
    make = loop.get_task_factory()

    def factory(
        loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, Any], **options: Any
    ) -> Any:
        context = options.get("context")
        life = _life.get() if context is None else context.run(_life.get)
        if _survives(coroutine):
            life = None
        if life is not None:
            coroutine = _Mortal(coroutine, life)
        if make is not None:
            task = make(loop, coroutine, **options)
        else:
            task = asyncio.Task(coroutine, loop=loop, **options)
        if life is not None:
            life.begin(task)
        return task

    loop.set_task_factory(factory)
    try:
        yield
    finally:
        if loop.get_task_factory() is factory:
            loop.set_task_factory(make)


def _survives(coroutine: Coroutine[Any, Any, Any]) -> bool:
    """Whether it is the store's own, which serves all workers."""
    frame = getattr(coroutine, "cr_frame", None)
    name: str = frame.f_globals.get("__name__", "") if frame else ""
    return name.startswith(_SURVIVORS)


def lives(life: Life) -> None:
    """From here on, in this context."""
    _life.set(life)


class Crash:
    """One crash that a test asked for. `happened`: whether it came."""

    def __init__(
        self, function: Function[..., Any, Any], step: str, during: bool, keep_lease: bool
    ) -> None:
        self.function, self.step = function.name, step
        self.version, self.during, self.keep_lease = function.version, during, keep_lease
        self.happened = False
        self.left: list[Coroutine[Any, Any, Any]] = []  # what stopped where it stood

    def __str__(self) -> str:
        moment = "during" if self.during else "after"
        return f"crash_at({self.function}, {moment}={self.step!r})"

    def comes_with(self, function: Function[..., Any, Any], steps: Sequence[Step]) -> bool:
        own = (self.function, self.version)
        if self.happened or (function.name, function.version) != own:
            return False
        name = f"step {self.step}"[:200]
        return any(step.kind == "step" and step.name == name for step in steps)

    def bury(self) -> None:
        """The test is over: let go of what stopped, whatever it says."""
        flow = logging.getLogger("holdfast.flow")
        flow.disabled, before = True, flow.disabled
        for coroutine in self.left:
            with suppress(BaseException):
                coroutine.close()
        flow.disabled = before
        self.left.clear()


class _Dying:
    """The store, as flows see it: where a crash is due, their worker dies."""

    def __init__(
        self,
        store: Store,
        life: Life,
        function: Function[..., Any, Any],
        crashes: Sequence[Crash],
        accepted: Callable[[Sequence[Draft]], None],
    ) -> None:
        self._store, self._life, self._function = store, life, function
        self._crashes, self._accepted = crashes, accepted

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def record(
        self,
        lease: Lease,
        steps: Sequence[Step],
        *,
        children: Sequence[Draft] = (),
        **seen: Any,
    ) -> Written:
        crash = next((c for c in self._crashes if c.comes_with(self._function, steps)), None)
        if crash and crash.during:
            await self._die(crash)
        found = await self._store.record(lease, steps, children=children, **seen)
        made = zip(children, found.children, strict=True)
        self._accepted([draft for draft, id in made if draft.id == id])
        if crash:
            await self._die(crash)
        return found

    async def _die(self, crash: Crash) -> None:
        crash.happened = True
        await self._life.end(crash)


def dying(
    store: Store,
    life: Life,
    function: Function[..., Any, Any],
    crashes: Sequence[Crash],
    accepted: Callable[[Sequence[Draft]], None],
) -> Store:
    return cast(Store, _Dying(store, life, function, crashes, accepted))
