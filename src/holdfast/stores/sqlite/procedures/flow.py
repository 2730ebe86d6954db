"""Steps and signals of durable functions, guarded by the lease."""

from datetime import datetime
from typing import Any
from uuid import UUID

from holdfast.stores.sqlite.procedures.endings import wake
from holdfast.stores.sqlite.procedures.enqueue import accept
from holdfast.stores.sqlite.procedures.keys import key_holders
from holdfast.stores.sqlite.procedures.settle import Answer, settle
from holdfast.stores.sqlite.session import Session, bytes_of, micros

__all__ = [
    "news",
    "progress",
    "record",
    "record_child",
    "record_step",
    "record_steps",
    "restart",
    "send_signal",
]

_PLAIN = dict.fromkeys(("run_at", "expires_at", "key", "concurrency_key"))


def record(
    s: Session,
    *,
    id: UUID,
    grant: UUID,
    positions: list[int],
    kinds: list[str],
    names: list[str],
    step_values: list[bytes | None],
    consumed: list[UUID] | None,
    seen: list[int] | None,
    ids: list[UUID] | None,
    lanes: list[int] | None,
    nps: list[int] | None,
    payloads: list[bytes] | None,
    max_tries: list[int | None] | None,
    policies: list[bytes | None] | None,
    delays: list[float | None] | None,
    run_ats: list[datetime | None] | None,
    expires: list[float | None] | None,
    keys: list[str | None] | None,
    tenants: list[str] | None,
    fingerprints: list[bytes] | None,
    lifetimes: list[float | None] | None,
    concurrency_keys: list[str | None] | None,
    user_ids: list[str | None] | None,
    parents: list[UUID | None] | None,
    worker: int | None,
    taking: UUID | None,
    lease: float | None,
    most: int,
) -> list[tuple[Any, ...]]:
    """Whether the lease holds, which positions have other values recorded, and which of the
    children's keys were taken already, by whom, and whether by other work; which children
    `worker` holds already."""
    fence = s.value("lease.fence", id=id, grant=grant)
    if fence is None:
        return [(False, None, None, None, None, None)]
    steps: dict[str, Any] = {
        "id": id.bytes,
        "position": positions,
        "kind": kinds,
        "name": names,
        "value": step_values,
    }
    stands = s.each("step.standing", **steps)
    if conflicts := sorted(position for position, differs in stands if differs):
        return [(True, conflicts, None, None, None, None)]
    taken: tuple[Any, ...] = (None, None, None)
    # Else this very call was written before, children and all.
    if ids and not stands:
        (taken,) = accept(
            s,
            ids=ids,
            lanes=lanes or [],
            nps=nps or [],
            payloads=payloads or [],
            max_tries=max_tries,
            policies=policies,
            delays=delays,
            run_ats=run_ats,
            expires=expires,
            keys=keys,
            tenants=tenants,
            fingerprints=fingerprints,
            lifetimes=lifetimes,
            concurrency_keys=concurrency_keys,
            user_ids=user_ids,
            parents=parents,
            holder=_holder(worker, taking, lease),
            most=most,
        )
        if any(taken[2] or ()):
            return [(True, None, *taken, None)]
    elif keys:
        taken = _held_keys(s, ids or [], keys, tenants or [])
    s.each("step.add", **steps, fence=fence)
    if consumed:
        s.each("signal.consume", signal=bytes_of(consumed), id=id.bytes)
    if seen:
        s.each("wake.forget", seq=seen, id=id.bytes)
    leased: list[Any] = []
    if most and taking:
        leased = s.each("lease.of_grant", id=bytes_of(ids or []), grant=taking.bytes)
    return [(True, None, *taken, [id for (id,) in leased])]


def record_child(
    s: Session,
    *,
    id: UUID,
    grant: UUID,
    positions: list[int],
    kinds: list[str],
    names: list[str],
    step_values: list[bytes | None],
    child: UUID,
    lane: int,
    np: int,
    payload: bytes,
    max_tries: int | None,
    policy: bytes | None,
    user_id: str | None,
    worker: int,
    taking: UUID,
    lease: float,
    durable: bool,
) -> list[tuple[bool]]:
    """One plain child, which whoever asks takes at once. False, and nothing is written: the lease
    is gone, something stands there, or a limit or a pause concerns the child's lane."""
    del durable  # the thread that writes sees to it
    span = {"first": min(positions), "last": max(positions)}
    fence = s.value("record_child.guard", id=id, grant=grant, lane=lane, **span)
    if fence is None:
        return [(False,)]
    task = {"id": child, "lane": lane, "np": np}
    s.run(
        "task.add",
        **task,
        parent=id,
        payload=payload,
        max_tries=max_tries,
        policy=policy,
        user_id=user_id,
        **_PLAIN,
    )
    (seq,) = s.numbers("place", 1)
    holder = {"grant": taking, "worker": worker, "lease": micros(lease)}
    s.run("accept.lease", **task, seq=seq, child=True, **holder)
    s.each(
        "step.add",
        id=id.bytes,
        position=positions,
        kind=kinds,
        name=names,
        value=step_values,
        fence=fence,
    )
    return [(True,)]


def _holder(worker: int | None, taking: UUID | None, lease: float | None) -> dict[str, Any] | None:
    if worker is None or taking is None or lease is None:
        return None
    return {"worker": worker, "grant": taking.bytes, "lease": micros(lease)}


def record_step(
    s: Session,
    *,
    id: UUID,
    grant: UUID,
    position: int,
    kind: str,
    name: str,
    step_value: bytes | None,
) -> list[tuple[bool]]:
    """One new step of one function. False: its lease is gone, or something stands there."""
    step = {"position": position, "kind": kind, "name": name, "step_value": step_value}
    return [(s.run("record_step", id=id, grant=grant, **step) == 1,)]


def record_steps(
    s: Session,
    *,
    ids: list[UUID],
    grants: list[UUID],
    positions: list[int],
    kinds: list[str],
    names: list[str],
    step_values: list[bytes | None],
    apart: bool,
) -> list[tuple[bool]]:
    """Plain steps of many functions at once. False: some leases are gone, or some steps stand
    there. `apart`: every step is of another function; else none is written then, since a function's
    steps are written all or not at all, and to undo costs more than the rest."""
    rows: dict[str, Any] = {
        "id": bytes_of(ids),
        "grant": bytes_of(grants),
        "position": positions,
        "kind": kinds,
        "name": names,
        "step_value": step_values,
    }
    if apart:
        return [(s.run_each("record_step", **rows) == len(ids),)]
    try:
        with s.conn:
            if s.run_each("record_step", **rows) < len(ids):
                raise _NotAll
    except _NotAll:
        return [(False,)]
    return [(True,)]


class _NotAll(Exception):
    """Some leases are gone, or some steps stand already."""


def _held_keys(
    s: Session, ids: list[UUID], keys: list[str | None], tenants: list[str]
) -> tuple[Any, ...]:
    """Who holds the keys of children that were written before."""
    asked = [(id, key, tenant) for id, key, tenant in zip(ids, keys, tenants, strict=True) if key]
    held = key_holders(s, tenants=[a[2] for a in asked], keys=[a[1] for a in asked])
    by = {(tenant, key): UUID(bytes=holder) for tenant, key, holder, _ in held}
    found = [(id, by[tenant, key]) for id, key, tenant in asked if (tenant, key) in by]
    others = [(id, holder) for id, holder in found if id != holder]
    return [id for id, _ in others], [holder for _, holder in others], [False] * len(others)


def news(
    s: Session, *, id: UUID, children: list[UUID], names: list[str], most: int
) -> list[tuple[Any, ...]]:
    """What has come for a function that is in somebody's memory, as of one moment."""
    wakes = [seq for (seq,) in s.rows("wakes", id=id)]
    found = sorted(s.each("news.signals", id=id.bytes, name=names, most=most))
    signals = s.each("news.signal", seq=[seq for (seq,) in found[:most]])
    ended = sorted(s.each("news.ending", id=bytes_of(children)), key=lambda row: row[6])
    return [
        (
            wakes,
            *([row[n] for row in signals] for n in range(3)),
            *([row[n] for row in ended] for n in range(6)),
        )
    ]


def restart(s: Session, *, id: UUID, grant: UUID, payload: bytes, default_tries: int) -> Answer:
    """A function that goes on as a new one: other arguments, an empty journal, and all its tries.
    In one with the settle that ends its last run: nobody ever finds the one without the other."""
    rest = (
        "alones", "wakes", "watched", "reasons", "error_types", "errors", "details",
        "seen_ids", "seen",
    )  # fmt: skip
    answer = settle(
        s,
        ids=[id],
        grants=[grant],
        verdicts=["snoozed"],
        delays=[0.0],
        refunds=[True],
        results=[None],
        by="holder",
        lapsed_only=False,
        default_tries=default_tries,
        **dict.fromkeys(rest),
    )
    if answer[0][2] == ["snoozed"]:  # else its time was over, or somebody has cancelled it
        s.run("restart.task", id=id, payload=payload)
        s.run("restart.steps", id=id)
        s.run("restart.tries", id=id)
        s.run("restart.attempt", id=id)
    return answer


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
