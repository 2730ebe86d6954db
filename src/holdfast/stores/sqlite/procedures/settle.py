"""How attempts end: the lease goes, and what follows stands. What is not answered was refused."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any
from uuid import UUID

import msgspec

from holdfast.stores.sqlite.procedures.lanes import pools
from holdfast.stores.sqlite.procedures.settlements import Judged, write
from holdfast.stores.sqlite.session import Session, bytes_of, json

__all__ = ["Answer", "refuse", "repair_leases", "settle", "settle_one", "settled"]

_NAMES = 64  # hex digits of an id and a grant
_LONGEST = 64 * 1024 * 1024

# whether all were accepted; else which; their states (None: done); the parents to wake
Answer = list[tuple[bool, list[UUID] | None, list[str] | None, list[bytes] | None]]


def settle(
    s: Session,
    *,
    ids: list[UUID],
    grants: list[UUID],
    verdicts: list[str] | None,
    delays: list[float | None] | None,
    refunds: list[bool] | None,
    alones: list[bool] | None,
    wakes: list[int] | None,
    watched: list[str | None] | None,
    reasons: list[str | None] | None,
    results: list[bytes | None],
    error_types: list[str | None] | None,
    errors: list[str | None] | None,
    details: list[bytes | None] | None,
    seen_ids: list[UUID] | None,
    seen: list[int] | None,
    by: str,
    lapsed_only: bool,
    default_tries: int,
) -> Answer:
    """`verdicts` None: all are done. A single grant stands for all."""
    if len(grants) == 1:
        grants = grants * len(ids)
    if verdicts is None:
        return _all_done(s, ids, grants, results, by)
    names = (
        "id", "grant", "verdict", "delay", "refund", "lonely", "wakes", "watched", "reason",
        "result", "error_type", "error", "detail",
    )  # fmt: skip
    columns = (
        ids, grants, verdicts, delays, refunds, alones, wakes, watched, reasons, results,
        error_types, errors, details,
    )  # fmt: skip
    asked = {
        (row[0].bytes, row[1].bytes): dict(zip(names, row, strict=True))
        for row in zip(*(c or [None] * len(ids) for c in columns), strict=True)
    }
    judged = _judge(s, asked, lapsed_only, default_tries)
    if not judged:
        return [(False, None, None, None)]
    parents = write(s, judged, by)
    _free(s, [j.gates for j in judged])
    _nudge(s, [(j.pool, j.key) for j in judged if j.key is not None])
    _forget_wakes(s, {j.id for j in judged}, seen_ids or (), seen or ())
    accepted = [UUID(bytes=j.id) for j in judged]
    return [(False, accepted, [j.state for j in judged], parents or None)]


def settle_one(
    s: Session, *, id: UUID, grant: UUID, result: bytes | None
) -> list[tuple[bool, bytes | None]]:
    """One that is done: whether it was held, and the parent to wake. Where it was not, nothing is
    written."""
    lease = s.row("settle.one", id=id, grant=grant)
    if lease is None:
        return [(False, None)]
    worker, started_at, fence, tries, child, lane, gates, key = lease
    (seq,) = s.numbers("event", 1)
    s.run(
        "outcome.add",
        id=id,
        grant=grant,
        worker=worker,
        seq=seq,
        started_at=started_at,
        fence=fence,
        tries=tries,
        state="done",
        by="holder",
        result=result,
        error_type=None,
        error=None,
        detail=None,
    )
    _free(s, [gates])
    _nudge_keys(s, [lane], [key])
    return [(True, s.value("wake.parent", id=id) if child else None)]


def settled(s: Session, *, ids: list[UUID], grants: list[UUID]) -> list[tuple[Any, ...]]:
    """Which of these were written before, by this very holder."""
    return s.each("settled", id=bytes_of(ids), grant=bytes_of(grants))


def repair_leases(s: Session, *, ids: list[UUID]) -> list[tuple[Any, ...]]:
    """Leases of tasks that have ended, or wait for their time, come from doubles."""
    gone = s.each("repair.lease", id=bytes_of(ids))
    _free(s, [gates for _, _, gates, _ in gone])
    _nudge_keys(s, [lane for _, lane, _, _ in gone], [key for _, _, _, key in gone])
    return [(id,) for id, *_ in gone]


def refuse(
    s: Session, *, verb: str, ids: list[UUID], grants: list[UUID], fences: list[int]
) -> list[tuple[Any, ...]]:
    known = {id for (id,) in s.each("known", id=bytes_of(ids))}
    late = [
        (id.bytes, grant.bytes, fence)
        for id, grant, fence in zip(ids, grants, fences, strict=True)
        if id.bytes in known
    ]
    if late:
        s.each(
            "refuse.add",
            seq=s.numbers("event", len(late)),
            id=[r[0] for r in late],
            grant=[r[1] for r in late],
            fence=[r[2] for r in late],
            verb=verb,
        )
    return [(None,)]


def _all_done(
    s: Session,
    ids: Sequence[UUID],
    grants: Sequence[UUID],
    results: Sequence[bytes | None],
    by: str,
) -> Answer:
    asked: list[str] = []
    for grant, rows in groupby(zip(ids, grants, results, strict=True), itemgetter(1)):
        name = grant.hex
        asked += [f"{id.int:032x}{name}{_hex(result)}" for id, _, result in rows]
    if len({id.int for id in ids}) < len(ids):
        asked = list({row[:_NAMES]: row for row in asked}.values())
    before = s.value("counter.now", name="event")
    is_special = s.value("settle.any_special")
    done, parents = 0, []
    for start, part in _parts(asked):
        done += s.run("settle.done", asked=part, first=before + 1 + start, by=by)
        if is_special:
            parents += _special(s, s.rows("settle.special", asked=part))
    if done:
        s.run("counter.set", name="event", value=before + len(asked))
        s.run("settle.leave", after=before)
    if done == len(ids):
        return [(True, None, None, parents or None)]
    accepted = [
        UUID(bytes=id)
        for _, part in _parts(asked)
        for (id,) in s.rows("settle.accepted", asked=part, after=before)
    ]
    return [(False, accepted or None, None, parents or None)]


def _parts(asked: Sequence[str]) -> Iterator[tuple[int, str]]:
    """As texts that SQLite takes."""
    size = max(1, _LONGEST // max(map(len, asked)))
    for start in range(0, len(asked), size):
        yield start, json(asked[start : start + size])


def _hex(result: bytes | None) -> str:
    return "x" if result is None else result.hex()


def _special(s: Session, gone: Sequence[tuple[Any, ...]]) -> list[bytes]:
    """What few leases have: gates, a parent, a key. Answers the parents."""
    if not gone:
        return []
    ids, lanes, gates, children, keys = zip(*gone, strict=True)
    _free(s, gates)
    _nudge_keys(s, lanes, keys)
    mine = [id for id, child in zip(ids, children, strict=True) if child]
    parents = [parent for (parent,) in s.each("settle.parent", id=mine)]
    s.each("wake.add", id=parents, urgent=False)
    return parents


def _judge(
    s: Session, asked: dict[Any, dict[str, Any]], lapsed_only: bool, default_tries: int
) -> list[Judged]:
    """Deletes what may be settled, and says what becomes of it."""
    gone = s.each(
        "settle.take",
        id=[id for id, _ in asked],
        grant=[grant for _, grant in asked],
        lapsed_only=lapsed_only,
    )
    wishes = [asked[row[0], row[1]] for row in gone]
    verdicts = s.each(
        "settle.judge",
        id=[row[0] for row in gone],
        lane=[row[6] for row in gone],
        fence=[row[4] for row in gone],
        tries=[row[5] for row in gone],
        alone=[row[12] for row in gone],
        verdict=[wish["verdict"] for wish in wishes],
        refund=[bool(wish["refund"]) for wish in wishes],
        lonely=[bool(wish["lonely"]) for wish in wishes],
        default_tries=default_tries,
    )
    facts = {id: rest for id, *rest in verdicts}
    judged = []
    for row, wish in zip(gone, wishes, strict=True):
        if row[0] in facts:
            *rest, is_forgiven = facts[row[0]]
            failures = _failures(s, row) if is_forgiven else None
            judged.append(Judged.of(row, wish, *rest, failures=failures))
    return judged


def _failures(s: Session, row: Sequence[Any]) -> int:
    """The tries that its errors have cost."""
    failures: int = s.value("settle.failures", id=row[0], tries=row[5])
    return failures


def _free(s: Session, gates: Iterable[str | None]) -> None:
    """A settle never touches a gate; the next claim adds this up."""
    freed: Counter[int] = Counter()
    for names, n in Counter(g for g in gates if g is not None).items():
        for gate in msgspec.json.decode(names):
            freed[gate] += n
    if freed:
        s.each("freed.add", gate=list(freed), n=list(freed.values()))


def _nudge_keys(s: Session, lanes: Sequence[int], keys: Sequence[str | None]) -> None:
    if any(key is not None for key in keys):
        pool_of = pools(s)
        keyed = zip(lanes, keys, strict=True)
        _nudge(s, [(pool_of[lane], key) for lane, key in keyed if key is not None])


def _nudge(s: Session, places: Iterable[tuple[int, str]]) -> None:
    freed = Counter(places)
    s.each(
        "nudge.add",
        pool=[pool for pool, _ in freed],
        key=[key for _, key in freed],
        freed=list(freed.values()),
    )


def _forget_wakes(
    s: Session, gone: set[bytes], seen_ids: Sequence[UUID], seen: Sequence[int]
) -> None:
    read = [(id.bytes, seq) for id, seq in zip(seen_ids, seen, strict=True) if id.bytes in gone]
    s.each("wake.forget", id=[r[0] for r in read], seq=[r[1] for r in read])
