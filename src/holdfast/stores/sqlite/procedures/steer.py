"""What operators do: cancel, retry, pause, limit."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any
from uuid import UUID

import msgspec

from holdfast.stores.sqlite.procedures.endings import end, wake
from holdfast.stores.sqlite.procedures.later import enter
from holdfast.stores.sqlite.session import Session, bytes_of

__all__ = ["open_descendants", "pause", "request_cancel", "retry", "set_limit", "withdraw"]

NOTHING: list[tuple[Any, ...]] = [(None,)]


def request_cancel(s: Session, *, ids: list[UUID], rule: str) -> list[tuple[bytes, str | None]]:
    """First the request, committed; then, in a second call, the withdrawal."""
    known = s.each("cancel.state", id=bytes_of(ids))
    left = [id for id, *_, has_ended, ends in known if has_ended or (rule == "below" and ends)]
    children = defaultdict[bytes, list[bytes]](list)
    if rule == "below":
        for id, _, parent, *_ in known:
            children[parent].append(id)
    for id in left:  # which grows
        left += children.pop(id, ())
    chosen = set(left)
    states = [(id, state) for id, state, *_ in known if rule == "asked" or id in chosen]
    marked = s.each("cancel.mark", id=[id for id, state in states if state is None])
    wake(s, [id for (id,) in marked], urgent=True)
    return states


def open_descendants(s: Session, *, ids: list[UUID], left: bool) -> list[tuple[bytes]]:
    below = s.each("family.below", id=bytes_of(ids), left=left)
    return [(id,) for id in dict.fromkeys(id for (id,) in below)]


def withdraw(
    s: Session, *, ids: list[UUID], state: str, error_type: str | None, error: str | None
) -> list[tuple[list[bytes], list[bytes] | None]]:
    """Takes tasks that nobody holds out of the queue and ends them."""
    where = {id: row for id, *row in s.each("withdraw.where", id=bytes_of(ids), state=state)}
    gone = s.each("withdraw.later", id=list(where))
    gone += _once(_withdraw_blocked(s, _left(where, gone)))
    ready = _once(_withdraw_ready(s, _left(where, gone)))
    freed = [(where[id][3], key) for id, _, _, key in ready if key is not None]
    s.each("nudge.add", pool=[f[0] for f in freed], key=[f[1] for f in freed], freed=1)
    gone += ready
    end(s, [(id, fence, tries) for id, fence, tries, _ in gone], state, error_type, error)
    withdrawn = [row[0] for row in gone]
    parents = [where[id][4] for id in withdrawn if where[id][4] is not None]
    wake(s, parents, urgent=True)
    return [(withdrawn, parents or None)]


def _left(where: dict[bytes, Any], gone: Sequence[tuple[Any, ...]]) -> dict[bytes, Any]:
    found = {row[0] for row in gone}
    return {id: row for id, row in where.items() if id not in found}


def _once(gone: Sequence[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """A double goes with the other."""
    return list({row[0]: row for row in gone}.values())


def _withdraw_blocked(s: Session, where: dict[bytes, Any]) -> list[tuple[Any, ...]]:
    homes: dict[tuple[int, str, int], list[str]] = {}
    for id, (_, np, key, pool, _) in where.items():
        if key is not None:
            homes.setdefault((pool, key, np), []).append(id.hex())
    gone = []
    for (pool, key, np), ids in homes.items():
        at: dict[str, Any] = {"pool": pool, "key": key, "np": np}
        places = s.rows("withdraw.in_blocked", **at, ids=ids)
        gone += s.each("withdraw.blocked", **at, seq=[seq for (seq,) in places])
    return gone


def _withdraw_ready(s: Session, where: dict[bytes, Any]) -> list[tuple[Any, ...]]:
    homes: dict[tuple[int, int], list[str]] = {}
    for id, (lane, np, *_) in where.items():
        homes.setdefault((lane, np), []).append(id.hex())
    gone = []
    for (lane, np), ids in homes.items():
        at = {"lane": lane, "np": np}
        places = s.rows("withdraw.in_ready", **at, ids=ids)
        gone += s.each("withdraw.ready", **at, seq=[seq for (seq,) in places])
    return gone


def retry(s: Session, *, ids: list[UUID]) -> list[tuple[list[bytes]]]:
    """A new life for what failed or was cancelled; what waits for its time goes ahead."""
    gone = s.each("retry.revive", id=bytes_of(ids))
    _note(s, gone)
    reset = s.each("retry.reset", id=[row[0] for row in gone])
    s.each("forget.expiry", id=[row[0] for row in gone])
    fences = {row[0]: row[6] for row in gone}
    s.each(
        "later.add",
        id=[row[0] for row in reset],
        lane=[row[1] for row in reset],
        np=[row[2] for row in reset],
        child=[row[3] for row in reset],
        key=[row[4] for row in reset],
        fence=[fences[row[0]] for row in reset],
        run_at=s.now,
        tries=0,
        alone=False,
        waiting=None,
        wakes=1,
        watched=None,
    )
    early = [id for (id,) in s.each("retry.delayed", id=bytes_of(ids))]
    enter(s, early)
    return [(list({*fences, *early}),)]


def _note(s: Session, outcomes: Sequence[tuple[Any, ...]]) -> None:
    """The outcome of the former life becomes an attempt, with its number in the history."""
    names = (
        "id", "grant", "worker", "seq", "started_at", "ended_at", "fence", "ended", "by",
        "result", "error_type", "error", "detail",
    )  # fmt: skip
    if outcomes:
        s.each("retry.note", **dict(zip(names, zip(*outcomes, strict=True), strict=True)))


def pause(s: Session, *, queue: str, paused: bool) -> list[tuple[Any, ...]]:
    s.run("lane.moved")
    s.run("pause.queue", queue=queue, paused=paused)
    s.run("pause.lanes", queue=queue, paused=paused)
    return NOTHING


def set_limit(
    s: Session, *, kind: str, name: str, limit: str | None, declared: bool
) -> list[tuple[Any, ...]]:
    """A new limit counts what runs already. None: there is none (any more). What a function's code
    says is kept also while an operator's word goes before it, and holds again when that is
    lifted."""
    s.run("limit.add", kind=kind, name=name)
    if not declared:
        limit = s.value("limit.hold", kind=kind, name=name, limit=limit)
    elif s.value("limit.declare", kind=kind, name=name, limit=limit):
        return NOTHING
    _enforce(s, kind, name, limit)
    return NOTHING


def _enforce(s: Session, kind: str, name: str, said: str | None) -> None:
    limit: dict[str, Any] = msgspec.json.decode(said) if said else {}
    max_running, interval = limit.get("max_running"), limit.get("interval")
    s.run("lane.moved")
    gate = s.value(
        "limit.set",
        kind=kind,
        name=name,
        said=said,
        max_running=max_running,
        max_per_key=limit.get("max_per_key"),
        interval=interval,
        burst=limit.get("burst"),
    )
    counts = max_running is not None or interval is not None
    s.run("limit.close" if counts else "limit.open", kind=kind, name=name, gate=gate)
    if max_running is not None:
        adopted = s.rows("limit.adopt", kind=kind, name=name, gate=gate)
        s.run("limit.count", gate=gate, n=len(adopted))
    if limit.get("max_per_key") is not None:
        _line_up(s, name)
    if kind == "type":
        s.run("limit.nudge", type=name)  # keys that were full may have room now


def _line_up(s: Session, type: str) -> None:
    """Tasks that were let in under a wider limit, or none, line up again, in their places."""
    s.run("limit.line_up", type=type)
    s.run("limit.lined_up", type=type)
    s.run("limit.leave", type=type)
