"""Coroutine functions on the worker's own event loop."""

from typing import Any

from holdfast.context import Context
from holdfast.registry import Function
from holdfast.tasks.payload import encode

__all__ = ["CoroutineExecutor"]


class CoroutineExecutor:
    """Keeps `holdfast.executor.Executor`."""

    async def run(self, function: Function[..., Any, Any], context: Context) -> bytes:
        args, kwargs = function.signature.unpack(context.claimed.payload)
        return encode(await function.function(*args, **kwargs))

    async def close(self) -> None:
        """Whoever awaits `run` cancels it."""
