"""Claiming: the best rows of the lanes move from ready to lease."""

from collections.abc import Iterator, Sequence
from itertools import groupby, repeat
from math import ceil
from typing import Any, NamedTuple
from uuid import UUID

from holdfast.stores.sqlite.procedures.admission import admit, keys_left
from holdfast.stores.sqlite.procedures.later import promote
from holdfast.stores.sqlite.session import FOREVER, Session, bytes_of, micros, numbers_of

__all__ = ["claim", "claimed", "renew"]

_LEAST_URGENT = 32_767
_BLOBS = (0, 6)  # of the columns of `claim.taken`


class _Head(NamedTuple):
    lane: int
    gates: str | None
    np: int
    seq: int
    followed: bool  # by others of its lane
    share: float = 1.0


class _Prefix(NamedTuple):
    """The rows of a lane up to a place, and how many they are."""

    lane: int
    np: int
    seq: int
    size: int


def claim(
    s: Session,
    *,
    worker: int,
    grant: UUID,
    lanes: list[int],
    turns: list[int] | None,
    want: int,
    lease: float,
    wait_gate: int | None,
    durable: bool,
    memory: str | None,
) -> list[tuple[Any, ...]]:
    """One row, by columns. There is one writer: nothing is contended and every commit durable."""
    del wait_gate, durable, memory
    holder = {"worker": worker, "grant": grant.bytes}
    next_due, nudged, lane_change, held = s.rows("claim.around", **holder)[0]
    # This very claim, whose answer was lost; or a double of what was forgotten, which is no task.
    if held and (rows := s.rows("claim.again", **holder)):
        columns = [list(column) for column in zip(*rows, strict=True)]
        return [(*_answer(s, columns), None, False, None, lane_change, None)]
    if next_due == 0:
        promote(s, batch=max(want, 100))
        next_due, nudged, lane_change, _ = s.rows("claim.around", **holder)[0]
    if nudged:  # keys that have room let their heads in
        admit(s, lanes, max(want, 100))
    holder["lease"] = micros(lease)
    turn_of = dict(zip(lanes, [*(turns or ()), *repeat(0, len(lanes))], strict=False))
    taken: list[list[Any]] = [[] for _ in range(8)]
    full, opens = False, []
    places = _look(s, lanes)
    while want > 0 and places:
        chosen, upto = _best(places, turn_of)
        for gates, heads in _neighbours(chosen):
            room, opening = _room(s, gates, want)
            if room <= 0:
                full = True
                opens += [opening] if opening is not None and opening > 0 else []
                places.pop(heads[0].lane)
                continue
            prefixes = _prefixes(s, heads, upto, room)
            took = sum(prefix.size for prefix in prefixes)
            _take(s, taken, prefixes, gates, holder)
            if gates:
                s.run("gate.count", gates=gates, took=took)
                s.run("gate.folded", gates=gates)
            want -= took
            if want == 0:
                break
            emptied = [head.lane for head in heads]
            for lane in emptied:
                del places[lane]
            if gates or upto < _LEAST_URGENT:  # else the only one has given all
                places |= _look(s, emptied)
    if want:
        opens += [next_due] if next_due is not None else []
        if nudged and keys_left(s, lanes):
            opens.append(0.0)  # ask again at once: more keys may have room
    news = (None, full, min(opens, default=None), lane_change, None)
    return [(*_answer(s, taken), *news)]


def claimed(s: Session, *, worker: int, grant: UUID) -> list[tuple[Any, ...]]:
    """What a claim whose answer was lost has taken and still holds."""
    return s.rows("claim.held", worker=worker, grant=grant)


def renew(
    s: Session, *, ids: list[UUID], grants: list[UUID], lease: float
) -> list[tuple[bytes, bool]]:
    """What is still held, with whether its cancellation was asked for. The others are lost."""
    rows = s.each("renew.keep", id=bytes_of(ids), grant=bytes_of(grants), lease=micros(lease))
    return [(id, bool(cancel)) for id, cancel in rows]


def _look(s: Session, lanes: list[int]) -> dict[int, _Head]:
    """The head of each lane that holds something. One writer: they stay as they are."""
    return {row[0]: _Head(*row) for row in s.rows("claim.heads", lanes=lanes)}


def _best(places: dict[int, _Head], turn_of: dict[int, int]) -> tuple[list[_Head], int]:
    """The lanes whose head has the best priority, and how far down this round may go.

    Alone at the top, a lane may give all that is at least as urgent as the best head elsewhere.
    """
    best = min(head.np for head in places.values())
    top = sorted(
        (turn_of[head.lane] or 0, head.seq, head) for head in places.values() if head.np == best
    )
    alike: dict[int, int] = {}
    for turn, *_ in top:
        alike[turn] = alike.get(turn, 0) + 1
    chosen = [
        head if head.gates else head._replace(share=1.0 / (alike[turn] * len(alike)))
        for turn, _, head in top
    ]
    if len(chosen) > 1:
        return chosen, best
    return chosen, min((h.np for h in places.values() if h.np > best), default=_LEAST_URGENT)


def _neighbours(chosen: Sequence[_Head]) -> Iterator[tuple[str | None, list[_Head]]]:
    """Neighbours without a gate share a round; a lane behind gates comes by itself."""
    for _, group in groupby(enumerate(chosen), lambda n: n[0] if n[1].gates else -1):
        heads = [head for _, head in group]
        yield heads[0].gates, heads


def _room(s: Session, gates: str | None, want: int) -> tuple[int, float | None]:
    if gates is None:
        return want, None
    free, starts, opens, ahead = s.rows("gate.room", gates=gates)[0]
    if ahead:
        s.run("gate.set_right", gates=gates)
        return _room(s, gates, want)
    if opens is not None and opens > 0:
        return 0, opens
    return min(n for n in (want, free, starts) if n is not None), opens


def _prefixes(s: Session, heads: Sequence[_Head], upto: int, room: int) -> list[_Prefix]:
    """How far each lane gives, in turn, until the room is filled."""
    found: list[_Prefix] = []
    left = room
    for head in heads:
        size = min(ceil(room * head.share), left)
        if size == 0:
            break
        np, seq = head.np, head.seq
        if not head.followed:
            size = 1
        elif size > 1:
            last = s.row("claim.last", lane=head.lane, upto=upto, skip=size - 1)
            np, seq = last or (upto, FOREVER)
            if last is None:
                size = s.value("claim.count", lane=head.lane, upto=upto)
        found.append(_Prefix(head.lane, np, seq, size))
        left -= size
    return found


def _take(
    s: Session,
    taken: list[list[Any]],
    prefixes: Sequence[_Prefix],
    gates: str | None,
    holder: dict[str, Any],
) -> None:
    """Adds them to the columns of `taken`. One writer, so a prefix is the same rows in all three
    statements."""
    where: dict[str, Any] = {
        "lane": [prefix.lane for prefix in prefixes],
        "np": [prefix.np for prefix in prefixes],
        "seq": [prefix.seq for prefix in prefixes],
    }
    s.each("claim.lease", **where, **holder, gates=gates)
    for texts in s.each("claim.taken", **where):
        for place, (column, text) in enumerate(zip(taken, texts, strict=True)):
            column += _blobs(text) if place in _BLOBS else numbers_of(text)
    s.each("claim.leave", **where)


def _blobs(text: str) -> Iterator[bytes]:
    return map(bytes.fromhex, text.split(","))


def _answer(s: Session, columns: list[list[Any]]) -> list[list[Any] | None]:
    """What all have, and then what only a few have, which are named."""
    *main, flags = columns
    ids, *_, payloads = main
    if not ids:
        return [None] * 15
    for place in (place for place, payload in enumerate(payloads) if not payload):
        payloads[place] = s.value("claim.payload", id=ids[place])
    if not any(flags):
        return [*main, *[None] * 8]
    special = [id for id, flag in zip(ids, flags, strict=True) if flag]
    return [*main, *(list(c) for c in zip(*s.each("claim.special", id=special), strict=True))]
