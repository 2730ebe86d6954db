"""A call of any durable function from plain sync code."""

import asyncio
import inspect
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any

from holdfast.function import Function

__all__ = ["call"]


def call(function: Function[..., Any, Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """The function's value. A coroutine is run to its end, on an event loop of its own."""
    value = function.function(*args, **kwargs)
    return _awaited(value) if inspect.iscoroutine(value) else value


def _awaited(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Past asyncio, which prints what passes through it, and thereby runs a stranger's code."""
    ended: list[tuple[Any, BaseException | None]] = []

    async def main() -> None:
        try:
            ended.append((await coroutine, None))
        except BaseException as error:
            ended.append((None, error))

    asyncio.run(main())
    value, error = ended[0]
    if error is not None:
        raise error
    return value
