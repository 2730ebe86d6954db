"""What a batch of settlements is in the shape of the statement that writes it."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from holdfast.tasks.lifecycle import Settlement, Verdict
from holdfast.tasks.payload import encode
from holdfast.tasks.task import Lease

__all__ = ["asked", "begun_anew", "left_out", "waiting"]


# In loops: to look a member of an enumeration up takes longer than the rest of the turn.
_DONE, _WAITING = Verdict.DONE, Verdict.WAITING


def left_out(
    settlements: Sequence[tuple[Lease, Settlement]], accepted: dict[UUID, str] | None
) -> list[Lease]:
    if accepted is None:
        return []
    return [lease for lease, _ in settlements if lease.task not in accepted]


def begun_anew(settlements: Sequence[tuple[Lease, Settlement]]) -> dict[Lease, bytes]:
    """Those that go on as a new run, with its arguments."""
    return {lease: s.payload for lease, s in settlements if s.payload is not None}


def waiting(settlements: Sequence[tuple[Lease, Settlement]]) -> list[UUID]:
    return [lease.task for lease, s in settlements if s.verdict is _WAITING]


def asked(
    settlements: Sequence[tuple[Lease, Settlement]],
    by: str,
    default_tries: int,
    lapsed_only: bool,
) -> dict[str, Any]:
    columns = _columns(settlements)
    return {**columns, "by": by, "lapsed_only": lapsed_only, "default_tries": default_tries}


def _columns(settlements: Sequence[tuple[Lease, Settlement]]) -> dict[str, Any]:
    ids = [lease.task for lease, _ in settlements]
    grant = settlements[0][0].grant
    grants = [lease.grant for lease, _ in settlements]
    columns: dict[str, Any] = {
        "ids": ids,
        "grants": [grant] if grants.count(grant) == len(grants) else grants,
        "results": [s.result for _, s in settlements],
    }
    if all(s.verdict is _DONE for _, s in settlements):
        return {**columns, **dict.fromkeys(_REST)}
    seen = [(lease.task, seq) for lease, s in settlements for seq in s.seen]
    return {
        **columns,
        "verdicts": [s.verdict.value for _, s in settlements],
        "delays": [None if s.delay is None else s.delay.total_seconds() for _, s in settlements],
        "refunds": [s.refund for _, s in settlements],
        "alones": [s.alone for _, s in settlements],
        "wakes": [s.wakes for _, s in settlements],
        "watched": [_json(s.watched) for _, s in settlements],
        "reasons": [s.reason for _, s in settlements],
        "error_types": [s.failure and s.failure.type for _, s in settlements],
        "errors": [s.failure and s.failure.message for _, s in settlements],
        "details": [s.failure and s.failure.detail for _, s in settlements],
        "seen_ids": [task for task, _ in seen],
        "seen": [seq for _, seq in seen],
    }


def _json(ids: Sequence[UUID]) -> str | None:
    return encode([id.hex for id in ids]).decode() if ids else None


_REST = (
    "verdicts", "delays", "refunds", "alones", "wakes", "watched", "reasons",
    "error_types", "errors", "details", "seen_ids", "seen",
)  # fmt: skip
