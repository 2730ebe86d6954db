"""Bringing tasks in: all of them, or none."""

from datetime import datetime
from itertools import repeat
from typing import Any
from uuid import UUID

from holdfast.stores.sqlite.procedures.keys import take_keys
from holdfast.stores.sqlite.procedures.lanes import pools
from holdfast.stores.sqlite.session import Session, bytes_of, micros, micros_of
from holdfast.tasks.task import fingerprint

__all__ = ["accept", "known"]

Answer = list[tuple[list[UUID] | None, list[UUID] | None, list[bool] | None]]


def accept(
    s: Session,
    *,
    ids: list[UUID],
    lanes: list[int],
    nps: list[int],
    payloads: list[bytes],
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
    holder: dict[str, Any] | None = None,
    most: int = 0,
) -> Answer:
    """Whole lists may be None: then nobody asked for that. `holder` takes the first `most` of them
    at once, where nothing limits them."""
    skipped: set[UUID] = set()
    answer: Answer = [(None, None, None)]
    if keys is not None:
        taken = take_keys(s, ids, keys, tenants or [], fingerprints or [], lifetimes)
        answer = [(taken.ids, taken.by, taken.conflicts)]
        if any(taken.conflicts):
            return answer
        skipped = taken.skipped
    asked: dict[str, list[Any] | None] = {
        "id": bytes_of(ids),
        "lane": lanes,
        "np": nps,
        "payload": payloads,
        "max_tries": max_tries,
        "policy": policies,
        "run_at": _due(s, delays, run_ats),
        "expires_at": expires and [None if e is None else s.now + micros(e) for e in expires],
        "key": keys,
        "concurrency_key": concurrency_keys,
        "user_id": user_ids,
        "parent": parents and [None if p is None else p.bytes for p in parents],
    }
    if skipped:
        kept = [n for n, id in enumerate(ids) if id not in skipped]
        asked = {name: c and [c[n] for n in kept] for name, c in asked.items()}
    _write(s, asked, holder if keys is None else None, most)
    return answer


def known(s: Session, *, ids: list[UUID]) -> list[tuple[bytes, bytes | None]]:
    """Which of them are there, and what work they are; None: its lane is not known yet."""
    rows = s.each("task.work", id=bytes_of(ids))
    return [(id, type and fingerprint(type, payload)) for id, type, payload in rows]


def _write(s: Session, asked: dict[str, Any], holder: dict[str, Any] | None, most: int) -> None:
    if not asked["id"]:
        return
    s.each("task.add", **asked)
    if holder and asked["run_at"] is None and asked["concurrency_key"] is None:
        _place(s, _take(s, asked, holder, most))
    else:
        _place(s, asked)
    if asked["expires_at"]:
        expiring = [(id, at) for id, at in zip(asked["id"], asked["expires_at"], strict=True) if at]
        s.each("expiry.add", id=[e[0] for e in expiring], expires_at=[e[1] for e in expiring])


def _take(s: Session, asked: dict[str, Any], holder: dict[str, Any], most: int) -> dict[str, Any]:
    """Lease the first of them where nothing limits their lanes; answers the others."""
    lanes, parents = asked["lane"], asked["parent"]
    open_lanes = {lane for (lane,) in s.each("lane.open", id=sorted(set(lanes[:most])))}
    taken = [n for n, lane in enumerate(lanes[:most]) if lane in open_lanes]
    s.each(
        "accept.lease",
        id=[asked["id"][n] for n in taken],
        lane=[lanes[n] for n in taken],
        np=[asked["np"][n] for n in taken],
        seq=s.numbers("place", len(taken)),
        child=[bool(parents and parents[n]) for n in taken],
        **holder,
    )
    left = sorted(set(range(len(lanes))) - set(taken))
    return {name: column and [column[n] for n in left] for name, column in asked.items()}


def _place(s: Session, asked: dict[str, Any]) -> None:
    """Where each waits: ready, later, or behind its key."""
    ids, lanes, nps = asked["id"], asked["lane"], asked["np"]
    if not ids:
        return
    dues, keys, parents = asked["run_at"], asked["concurrency_key"], asked["parent"]
    children: Any = [parent is not None for parent in parents] if parents else False
    begun = {"fence": 0, "tries": 0, "alone": False}
    if dues is None and keys is None:
        s.each(
            "ready.add",
            id=ids,
            lane=lanes,
            np=nps,
            seq=s.numbers("place", len(ids)),
            child=children,
            **begun,
        )
        return
    rows = list(
        zip(
            ids,
            lanes,
            nps,
            children or repeat(False),
            keys or repeat(None),
            dues or repeat(None),
            s.numbers("place", len(ids)),
            strict=False,
        )
    )
    later = [row for row in rows if row[5] is not None and row[5] > s.now]
    at_once = [row for row in rows if row[5] is None or row[5] <= s.now]
    s.each(
        "later.add",
        **_columns(later),
        run_at=[row[5] for row in later],
        key=[row[4] for row in later],
        waiting=None,
        wakes=1,
        watched=None,
        **begun,
    )
    free = [row for row in at_once if row[4] is None]
    s.each("ready.add", **_columns(free), seq=[row[6] for row in free], **begun)
    keyed = [row for row in at_once if row[4] is not None]
    if keyed:
        _block(s, keyed, begun)


def _block(s: Session, rows: list[Any], begun: dict[str, Any]) -> None:
    pool_of = pools(s)
    places = [(pool_of[row[1]], row[4]) for row in rows]
    s.each(
        "blocked.add",
        **_columns(rows),
        pool=[pool for pool, _ in places],
        key=[key for _, key in places],
        seq=[row[6] for row in rows],
        **begun,
    )
    nudged = list(dict.fromkeys(places))
    s.each("nudge.add", pool=[n[0] for n in nudged], key=[n[1] for n in nudged], freed=0)


def _columns(rows: list[Any]) -> dict[str, list[Any]]:
    return {
        "id": [row[0] for row in rows],
        "lane": [row[1] for row in rows],
        "np": [row[2] for row in rows],
        "child": [row[3] for row in rows],
    }


def _due(
    s: Session, delays: list[float | None] | None, run_ats: list[datetime | None] | None
) -> list[int | None] | None:
    if delays is None and run_ats is None:
        return None
    return [
        s.now + micros(delay) if delay else None if run_at is None else micros_of(run_at)
        for delay, run_at in zip(delays or repeat(None), run_ats or repeat(None), strict=False)
    ]
