"""How a function is run. Kept by `holdfast.executors`."""

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from holdfast.context import Context
from holdfast.function import Function
from holdfast.tasks.task import Claimed

__all__ = ["Executor", "Executors"]


class Executor(Protocol):
    """Runs calls of durable functions. Being cancelled means: stop it as far as it can be."""

    async def run(self, function: Function[..., Any, Any], context: Context) -> bytes:
        """Call the function with its task's arguments; answers its result as JSON.

        Raises what the function raised (as `FunctionRaised` where it comes from another process,
        or is no plain `Exception`), or `PayloadRefused` where arguments or result do not fit.
        `CancelledError` comes out only if whoever awaits this was cancelled.
        """
        ...

    async def close(self) -> None:
        """Stop what still runs, as far as it can be stopped."""
        ...


class Executors(Protocol):
    """Ways to run a function. `stranded`: threads that nobody waits for and nobody can stop."""

    @property
    def stranded(self) -> int: ...

    def choose(self, function: Function[..., Any, Any], claimed: Claimed) -> Executor: ...

    def isolates(self, function: Function[..., Any, Any], claimed: Claimed) -> bool:
        """Whether it runs in a process of its own, and can harm nobody else."""
        ...

    def in_thread(
        self, work: Callable[[], Any], stopped: Callable[[], None]
    ) -> Awaitable[tuple[Any, BaseException | None]]:
        """What this answers or raises, in a thread. `stopped` is called where nobody waits for it
        any more: it counts as stranded until it ends."""
        ...
