"""Coroutine functions on the worker's own event loop."""

import asyncio
from typing import Any

from holdfast.context import Context
from holdfast.executors.outcomes import contained
from holdfast.executors.watched import Watched
from holdfast.function import Function
from holdfast.tasks.payload import encode

__all__ = ["CoroutineExecutor"]


class CoroutineExecutor:
    """Keeps `holdfast.executor.Executor`."""

    async def run(self, function: Function[..., Any, Any], context: Context) -> bytes:
        args, kwargs = function.signature.unpack(context.claimed.payload)
        try:
            coroutine = function.function(*args, **kwargs)
            try:
                first = coroutine.send(None)
            except StopIteration as end:  # it never had to wait
                return encode(end.value)
            context.watched = Watched(coroutine, first=first)
            if context.family is not None:  # a flow, which wants to know
                context.family.lead(context.watched)
            return encode(await context.watched)
        except asyncio.CancelledError as error:
            if (task := asyncio.current_task()) and task.cancelling():
                raise
            raise contained(error, function) from None
        except Exception:
            raise
        except BaseException as error:
            raise contained(error, function) from None

    async def close(self) -> None:
        """Whoever awaits `run` cancels it."""
