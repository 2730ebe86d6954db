"""What a function awaits of its own: a plain sleep, a socket, a thread, a lock. None of it is
recorded, so it ends by itself, in memory, in every replay anew.

Told by what the innermost coroutine is. Those of asyncio that wait for other tasks wait for other
branches, which are looked at themselves.
"""

import asyncio
import gc
from collections.abc import Iterable
from types import AsyncGeneratorType, FrameType
from typing import Any, Literal
from weakref import WeakSet

from holdfast.executors.watched import Watched
from holdfast.flow.asks import Ask, Join

__all__ = ["Own", "branches", "most_certain", "own_await", "own_of"]

Own = Literal["no", "perhaps", "surely"]
branches: WeakSet[asyncio.Task[Any]] = WeakSet()  # of all functions: they are looked at themselves

_JOINS = ("asyncio.tasks", "asyncio.taskgroups")  # but for sleep
_SHARED = ("asyncio.locks", "asyncio.queues")  # given by a branch, or by anybody


def most_certain(all: Iterable[Own]) -> Own:
    """Of several awaits together."""
    found = set(all)
    return "surely" if "surely" in found else "perhaps" if "perhaps" in found else "no"


def own_await(watched: Watched | None) -> Own:
    """`surely`: it ends by itself (a sleep, a stream, a thread). `perhaps`: it comes by itself or
    through another branch, which cannot be told (locks, queues, futures of a library)."""
    if watched is None or watched.is_over:
        return "no"
    waits = watched.waits
    if waits is None:
        return "surely"  # it gives others a turn, and goes on at once
    if not isinstance(waits, asyncio.Future):
        return "perhaps"
    frames = _frames(watched.coroutine)
    inside = [_module(frame) for frame in frames]
    if not inside or not inside[-1].startswith("asyncio."):
        return _of_future(waits)
    if inside[-1] in _SHARED:
        return _of_completed(frames[-2]) if inside[-2:-1] == ["asyncio.tasks"] else "perhaps"
    if inside[-1] in _JOINS and frames[-1].f_code.co_name != "sleep":
        return _of_join(frames[-1])
    return "surely"


def own_of(watched: Watched) -> Own:
    """The same, and quickly for those who await an ask, or a branch."""
    waits = watched.waits
    return own_await(watched) if waits is None or type(waits) is asyncio.Future else "no"


def _of_join(frame: FrameType) -> Own:
    """Of `wait` and `wait_for` in asyncio: what they wait for is nobody's branch, perhaps."""
    local = frame.f_locals
    waited = local.get("fs", [local["fut"]] if "fut" in local else [])
    return most_certain(_of_future(one) for one in waited if isinstance(one, asyncio.Future))


def _of_completed(frame: FrameType) -> Own:
    """Of `as_completed`: what it waits for is known to each of it."""
    local = frame.f_locals
    if "self" in local:  # from Python 3.13 on
        return most_certain(map(_of_future, local["self"]._todo))
    for task in branches:
        for call in _callbacks(task):
            if _name(call) == "as_completed.<locals>._on_completion":
                cells = [cell.cell_contents for cell in call.__closure__ or ()]
                if any(cell is local.get("done") for cell in cells):
                    todo = next((cell for cell in cells if isinstance(cell, set)), ())
                    return most_certain(map(_of_future, todo))
    return "perhaps"  # none of them is a branch


def _of_future(waits: "asyncio.Future[Any]") -> Own:
    """Asks, branches, what was gathered or shielded of them: no. A thread's: surely."""
    if waits.done() or isinstance(waits, Ask | Join):
        return "no"
    if isinstance(waits, asyncio.Task):
        return "no" if waits in branches else "perhaps"
    parts: list[Any] = getattr(waits, "_children", None) or _behind(waits)
    if parts:
        return most_certain(map(_of_future, parts))
    is_chained = any("_chain_future" in _name(call) for call in _callbacks(waits))
    return "surely" if is_chained else "perhaps"


def _behind(waits: "asyncio.Future[Any]") -> list[Any]:
    """What `asyncio.shield` is around."""
    for call in _callbacks(waits):
        if _name(call) == "shield.<locals>._outer_done_callback":
            cells = [cell.cell_contents for cell in getattr(call, "__closure__", None) or ()]
            return [one for one in cells if isinstance(one, asyncio.Future) and one is not waits]
    return []


def _callbacks(waits: "asyncio.Future[Any]") -> list[Any]:
    return [call for call, _ in getattr(waits, "_callbacks", None) or ()]


def _name(call: Any) -> str:
    name: str = getattr(call, "__qualname__", "")
    return name


def _frames(coroutine: Any) -> list[FrameType]:
    """From the outermost to the innermost. None where it runs just now: to look for what such a
    one awaits is a crash of the interpreter, in Python 3.11."""
    found: list[FrameType] = []
    while coroutine is not None:
        kind = next((k for k in ("cr", "gi", "ag") if hasattr(coroutine, f"{k}_frame")), None)
        if kind is None:
            # Each `asend` of an async generator is an object of its own, which says nothing.
            parts = gc.get_referents(coroutine)
            coroutine = next((p for p in parts if isinstance(p, AsyncGeneratorType)), None)
            continue
        if kind != "ag" and getattr(coroutine, f"{kind}_running"):
            break  # (such a generator says so also while it waits)
        if frame := getattr(coroutine, f"{kind}_frame"):
            found.append(frame)
        coroutine = getattr(coroutine, "gi_yieldfrom" if kind == "gi" else f"{kind}_await")
    return found


def _module(frame: FrameType) -> str:
    name: str = frame.f_globals.get("__name__", "")
    return name
