"""Steps and signals of durable functions, guarded by the lease."""

from typing import Any
from uuid import UUID

from holdfast.stores.sqlite.procedures.endings import wake
from holdfast.stores.sqlite.session import Session, bytes_of

__all__ = ["progress", "record", "send_signal"]


def record(
    s: Session,
    *,
    id: UUID,
    grant: UUID,
    positions: list[int],
    kinds: list[str],
    names: list[str],
    step_values: list[bytes | None],
    consumed: list[UUID],
    seen: list[int],
) -> list[tuple[bool, list[int] | None]]:
    """Whether the lease holds, and which positions have other values recorded."""
    fence = s.value("lease.fence", id=id, grant=grant)
    if fence is None:
        return [(False, None)]
    steps: dict[str, Any] = {
        "id": id.bytes,
        "position": positions,
        "kind": kinds,
        "name": names,
        "value": step_values,
    }
    conflicts = sorted(position for (position,) in s.each("step.conflict", **steps))
    if conflicts:
        return [(True, conflicts)]
    s.each("step.add", **steps, fence=fence)
    s.each("signal.consume", signal=bytes_of(consumed), id=id.bytes)
    s.each("wake.forget", seq=seen, id=id.bytes)
    return [(True, None)]


def progress(
    s: Session, *, id: UUID, grant: UUID, percent: float, message: str | None, saved: bytes | None
) -> list[tuple[bool]]:
    written = s.rows(
        "progress.write", id=id, grant=grant, percent=percent, message=message, saved=saved
    )
    return [(bool(written),)]


def send_signal(
    s: Session, *, signal: UUID, id: UUID, name: str, payload: bytes
) -> list[tuple[bool]]:
    """False: the task has ended, or there is none."""
    if not s.rows("signal.open", id=id):
        return [(bool(s.rows("signal.sent", signal=signal, id=id)),)]
    if s.rows("signal.add", signal=signal, id=id, name=name, payload=payload):
        wake(s, [id.bytes], urgent=True)
    return [(True,)]
