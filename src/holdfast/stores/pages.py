"""How lists are walked: which verb, in which order, and how a cursor is written down."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from holdfast.answers import TaskFilter
from holdfast.errors import InvalidInput

__all__ = ["Stage", "first_stage", "read_cursor", "stage_after", "write_cursor"]

_FIRST = -(2**15), -(2**62)
_LAST = 2**62


class Stage(msgspec.Struct, frozen=True, kw_only=True):
    """One walk over one index: the position's names and types, and where it starts."""

    name: str
    verb: str
    keys: tuple[tuple[str, Any], ...]
    start: tuple[Any, ...]
    fixed: dict[str, Any] = {}
    next: str | None = None
    skip: int = 1  # columns of a row that are not part of the position
    of_user: bool = False

    def parameters(self, filter: TaskFilter, position: Sequence[Any]) -> dict[str, Any]:
        whose = {"user_id": filter.user_id} if self.of_user else {}
        names = (name for name, _ in self.keys)
        return {**self.fixed, **whose, **dict(zip(names, position, strict=True))}


_NEWEST = (("before", UUID | None),)
_STAGES = {
    stage.name: stage
    for stage in (
        Stage(name="all", verb="list_tasks", keys=_NEWEST, start=(None,), skip=0),
        Stage(name="user", verb="list_of_user", keys=_NEWEST, start=(None,), skip=0, of_user=True),
        Stage(name="waiting", verb="list_waiting", keys=_NEWEST, start=(None,), skip=0),
        Stage(name="running", verb="list_running", keys=_NEWEST, start=(None,), skip=0),
        *(
            Stage(
                name=state,
                verb="list_ended",
                keys=(("before", int),),
                start=(_LAST,),
                fixed={"state": state},
            )
            for state in ("done", "failed", "cancelled")
        ),
        Stage(
            name="pending",
            verb="list_ready",
            keys=(("np", int), ("seq", int)),
            start=_FIRST,
            next="scheduled",
        ),
        Stage(
            name="scheduled",
            verb="list_scheduled",
            keys=(("id", UUID | None), ("run_at", datetime | None)),
            start=(None, None),
            next="blocked",
            skip=0,
        ),
        Stage(
            name="blocked",
            verb="list_blocked",
            keys=(("pool", int), ("key", str), ("np", int), ("seq", int)),
            start=(0, "", *_FIRST),
        ),
    )
}


def first_stage(filter: TaskFilter) -> tuple[Stage | None, Sequence[Any]]:
    """A user's tasks are found by their own index, wherever they stand."""
    status = filter.status.value if filter.status else "all"
    stage = _STAGES["user" if filter.user_id is not None else status]
    return stage, stage.start


def stage_after(stage: Stage) -> tuple[Stage | None, Sequence[Any]]:
    if stage.next is None:
        return None, ()
    return _STAGES[stage.next], _STAGES[stage.next].start


def write_cursor(stage: Stage, row: Sequence[Any]) -> str:
    """The place after `row`, as a text for the caller to keep."""
    position = tuple(row)[stage.skip :]
    return msgspec.json.encode([stage.name, *position]).decode()


def read_cursor(cursor: str, filter: TaskFilter) -> tuple[Stage | None, Sequence[Any]]:
    try:
        name, *position = msgspec.json.decode(cursor)
        stage = _STAGES[name]
        if stage.of_user and filter.user_id is None:
            raise ValueError(name)
        types = tuple(type for _, type in stage.keys)
        return stage, msgspec.convert(position, tuple[types])  # type: ignore[valid-type]
    except (ValueError, TypeError, KeyError, msgspec.MsgspecError):
        raise InvalidInput(
            f"cursor {cursor!r:.80} is not one of ours; begin again without it"
        ) from None
