"""How a function is run. Kept by `holdfast.executors`."""

from typing import Any, Protocol

from holdfast.context import Context
from holdfast.function import Function

__all__ = ["Executor"]


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
