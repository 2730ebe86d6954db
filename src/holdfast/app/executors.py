"""One executor of each kind, and which of them a task needs."""

from collections.abc import Callable
from typing import Any

from holdfast.executor import Executor
from holdfast.executors.coroutine import CoroutineExecutor
from holdfast.executors.process import ProcessExecutor
from holdfast.executors.thread import ThreadExecutor
from holdfast.registry import Function, Registry
from holdfast.tasks.task import Claimed

__all__ = ["Executors"]


class Executors:
    """Keeps `holdfast.work.slots.Executors`."""

    def __init__(self, *, freed: Callable[[], None]) -> None:
        self._coroutine, self._process = CoroutineExecutor(), ProcessExecutor()
        self._thread = ThreadExecutor(freed=freed)

    @property
    def stranded(self) -> int:
        return self._thread.stranded

    def check(self, functions: Registry) -> None:
        """Refuse what could not be run before the first task comes."""
        for function in functions:
            if function.traits.isolation == "process":
                self._process.check(function)

    def choose(self, function: Function[..., Any, Any], claimed: Claimed) -> Executor:
        """Whatever may have killed a worker runs in a process of its own, if it can."""
        if function.traits.isolation == "process":
            return self._process
        if claimed.alone and self._process.can_run(function):
            return self._process
        return self._coroutine if function.is_async else self._thread

    async def close(self) -> None:
        await self._process.close()
        await self._thread.close()
