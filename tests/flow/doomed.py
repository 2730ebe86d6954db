"""A store that is cut off at one of its calls, as if the process that uses it were killed there."""

import asyncio
from contextlib import nullcontext
from typing import Any

from holdfast.errors import LeaseLost, StoreUnreachable

__all__ = ["Doomed"]

_WRITES = ("record", "settle", "cancel", "retry", "wake_up", "enqueue", "send_signal")
_READS = ("news", "journal")


class Doomed:
    """Passes everything on until the n-th call of a durable function's verbs: before it is carried
    out, or after, when its answer is lost. From then on nothing is written or heard any more, and
    no claim of its own takes what the fatal call makes ready."""

    def __init__(self, store: Any, fatal: int, *, after: bool) -> None:
        self._store, self._fatal, self._after = store, fatal, after
        self._calls = 0
        self._taking = asyncio.Lock()  # a claim, or the fatal call
        self.dead = False
        self.died = asyncio.Event()
        self.recorded: list[tuple[Any, str]] = []  # (task, name) of steps that stand

    def __getattr__(self, verb: str) -> Any:
        real = getattr(self._store, verb)
        if not callable(real) or verb in ("transaction", "close"):
            return real

        async def call(*args: Any, **kwargs: Any) -> Any:
            if self.dead:
                return self._answer(verb, args)
            strikes = False
            if verb in _WRITES or (verb in _READS and not self._after):
                self._calls += 1
                strikes = self._calls == self._fatal
            if strikes and not self._after:
                self.dead = True
                self.died.set()
                return self._answer(verb, args)
            async with self._taking if strikes or verb == "claim" else nullcontext():
                if self.dead:
                    return self._answer(verb, args)
                self.dead = strikes
                try:
                    answer = await real(*args, **kwargs)
                finally:
                    if strikes:
                        self.died.set()
            if verb == "record":
                good = [step for step in args[1] if b'"failure":' not in (step.value or b"")]
                self.recorded += [(args[0].task, step.name) for step in good]
            return self._answer(verb, args) if strikes else answer

        return call

    def _answer(self, verb: str, args: tuple[Any, ...]) -> Any:
        """What lets a worker come to its end without a word."""
        match verb:
            case "settle":
                return frozenset()
            case "record":
                raise LeaseLost(verb, args[0].task)
            case "cancel":
                return {}
            case "wake_up" | "retry":
                return 0
            case _:
                raise StoreUnreachable("it is dead")
