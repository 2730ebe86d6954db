"""A call of any durable function from plain sync code."""

import asyncio
import inspect
from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.registry import Function

__all__ = ["call"]


def call(function: Function[..., Any, Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """The function's value. A coroutine is run to its end, on an event loop of its own."""
    value = function.function(*args, **kwargs)
    return asyncio.run(value) if inspect.iscoroutine(value) else value
