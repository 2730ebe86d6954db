"""One executor of each kind, and which of them a task needs."""

from collections.abc import Callable
from typing import Any

from holdfast.executor import Executor
from holdfast.executors.coroutine import CoroutineExecutor
from holdfast.executors.process import ProcessExecutor
from holdfast.executors.thread import ThreadExecutor
from holdfast.function import Function
from holdfast.tasks.task import Claimed

__all__ = ["Executors"]


class Executors:
    """Keeps `holdfast.executor.Executors`.

    `spawn_suspects`: a task that is a suspect (`work/ahead.py`) runs in a process of its own. That
    is right where a process that imports the app has all that its functions need; not for durable
    functions, which the worker records: those run in it, as the only ones.
    """

    def __init__(self, *, freed: Callable[[], None], spawn_suspects: bool = False) -> None:
        self._spawn_suspects = spawn_suspects
        self._coroutine, self._process = CoroutineExecutor(), ProcessExecutor()
        self._suspects = ProcessExecutor(lets_leave=True)
        self._thread = ThreadExecutor(freed=freed)

    @property
    def stranded(self) -> int:
        return self._thread.stranded

    def choose(self, function: Function[..., Any, Any], claimed: Claimed) -> Executor:
        if self.isolates(function, claimed):
            return self._process if function.traits.isolation else self._suspects
        return self._coroutine if function.is_async else self._thread

    def isolates(self, function: Function[..., Any, Any], claimed: Claimed) -> bool:
        if function.traits.isolation == "process":
            return True
        if claimed.recorded or not (claimed.alone and self._spawn_suspects):
            return False
        return self._suspects.can_run(function)

    async def in_thread(
        self, work: Callable[[], Any], stopped: Callable[[], None]
    ) -> tuple[Any, BaseException | None]:
        return await self._thread.call(work, stopped)

    async def close(self) -> None:
        await self._process.close()
        await self._suspects.close()
        await self._thread.close()
