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
    """Keeps `holdfast.work.slots.Executors`.

    `spawn_suspects`: a task that was lost together with others runs in a process of its own. That
    is right where a process that imports the app has all that its functions need.
    """

    def __init__(
        self,
        *,
        freed: Callable[[], None],
        spawn_suspects: bool = False,
        redact: tuple[str, ...] = (),
    ) -> None:
        self._spawn_suspects = spawn_suspects
        self._coroutine, self._process = CoroutineExecutor(), ProcessExecutor(redact=redact)
        self._thread = ThreadExecutor(freed=freed)

    @property
    def stranded(self) -> int:
        return self._thread.stranded

    def choose(self, function: Function[..., Any, Any], claimed: Claimed) -> Executor:
        if self.isolates(function, claimed):
            return self._process
        return self._coroutine if function.is_async else self._thread

    def isolates(self, function: Function[..., Any, Any], claimed: Claimed) -> bool:
        if function.traits.isolation == "process":
            return True
        return claimed.alone and self._spawn_suspects and self._process.can_run(function)

    async def close(self) -> None:
        await self._process.close()
        await self._thread.close()
