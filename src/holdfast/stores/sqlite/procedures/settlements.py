"""What follows from an attempt that was judged, as rows."""

from collections.abc import Sequence
from typing import Any

import msgspec

from holdfast.stores.sqlite.session import FOREVER, Session, micros
from holdfast.tasks.lifecycle import LATE

__all__ = ["Judged", "write"]


class Judged(msgspec.Struct, frozen=True, kw_only=True):
    """A deleted lease, what was wished for it, and what becomes of it."""

    id: bytes
    grant: bytes
    worker: int
    started_at: int
    fence: int
    tries: int
    lane: int
    gates: str | None
    child: bool
    key: str | None
    seq: int
    np: int
    alone: bool
    wish: dict[str, Any]
    ends_as: str | None
    late: bool
    parent: bytes | None
    pool: int
    charged: int

    @classmethod
    def of(
        cls,
        row: Sequence[Any],
        wish: dict[str, Any],
        ends_as: str | None,
        late: int,
        parent: bytes | None,
        pool: int,
        *,
        failures: int | None,
    ) -> "Judged":
        """`failures`: of one that got on, which is forgiven the deaths of its workers."""
        names = cls.__struct_fields__[: len(row)]
        lease: dict[str, Any] = dict(zip(names, row, strict=True))
        alone = failures is None and lease["alone"]
        lease["alone"] = bool(alone or wish["lonely"])
        return cls(
            **lease,
            wish=wish,
            ends_as=ends_as,
            late=bool(late),
            parent=parent,
            pool=pool,
            charged=lease["tries"] - bool(wish["refund"]) if failures is None else failures,
        )

    @property
    def verdict(self) -> str:
        verdict: str = self.wish["verdict"]
        return verdict

    @property
    def state(self) -> str:
        return self.ends_as or self.verdict


def write(s: Session, judged: Sequence[Judged], by: str) -> list[bytes]:
    """Put down what follows; answers the parents that were woken."""
    over = [j for j in judged if j.ends_as is not None]
    on = [j for j in judged if j.ends_as is None]
    _end(s, over, by)
    _note(s, on, by)
    _postpone(s, [j for j in on if j.verdict in ("retry", "snoozed", "waiting")])
    _give_back(s, [j for j in on if j.verdict in ("handed_back", "lost")])
    woken = [j for j in over if j.child and j.parent is not None]
    s.each("wake.add", id=[j.parent for j in woken], urgent=[j.ends_as != "done" for j in woken])
    return [j.parent for j in woken if j.parent is not None]


def _end(s: Session, over: Sequence[Judged], by: str) -> None:
    if over:
        s.each(
            "outcome.add",
            **_attempts(s, over, by),
            tries=[j.tries for j in over],
            state=[j.ends_as for j in over],
            result=[j.wish["result"] for j in over],
            error_type=[LATE.type if j.late else j.wish["error_type"] for j in over],
            error=[LATE.message if j.late else j.wish["error"] for j in over],
        )


def _note(s: Session, on: Sequence[Judged], by: str) -> None:
    if on:
        s.each(
            "attempt.add",
            **_attempts(s, on, by),
            tries=[j.charged for j in on],
            ended=[j.verdict for j in on],
            error_type=[j.wish["error_type"] for j in on],
            error=[j.wish["error"] for j in on],
        )


def _attempts(s: Session, judged: Sequence[Judged], by: str) -> dict[str, Any]:
    return {
        "id": [j.id for j in judged],
        "grant": [j.grant for j in judged],
        "worker": [j.worker for j in judged],
        "seq": s.numbers("event", len(judged)),
        "started_at": [j.started_at for j in judged],
        "fence": [j.fence for j in judged],
        "detail": [j.wish["detail"] for j in judged],
        "by": by,
    }


def _postpone(s: Session, judged: Sequence[Judged]) -> None:
    s.each(
        "later.add",
        **_place(judged),
        run_at=[_due(s, j) for j in judged],
        key=[j.key for j in judged],
        waiting=[
            (j.wish["reason"] or "waiting") if j.verdict == "waiting" else None for j in judged
        ],
        wakes=[1 if j.wish["wakes"] is None else j.wish["wakes"] for j in judged],
        watched=[j.wish["watched"] for j in judged],
    )


def _due(s: Session, j: Judged) -> int:
    if j.wish["delay"] is None and j.verdict == "waiting":
        return FOREVER
    return s.now + micros(j.wish["delay"] or 0)


def _give_back(s: Session, judged: Sequence[Judged]) -> None:
    """With the old place: behind the whole backlog, a lost task would wait its turn twice.
    Where another task stands there, with a new one: nothing is ever dropped."""
    given = _stand(s, judged, [j.seq for j in judged])
    astray = [j for j in judged if j.id not in given]
    if astray:
        _stand(s, astray, s.numbers("place", len(astray)))


def _stand(s: Session, judged: Sequence[Judged], places: Sequence[int]) -> set[bytes]:
    """Answers who found their places free."""
    at = list(zip(judged, places, strict=True))
    free = [(j, seq) for j, seq in at if j.key is None]
    keyed = [(j, seq) for j, seq in at if j.key is not None]
    rows = s.each(
        "ready.give_back", **_place([j for j, _ in free]), seq=[seq for _, seq in free]
    ) + s.each(
        "blocked.give_back",
        **_place([j for j, _ in keyed]),
        seq=[seq for _, seq in keyed],
        pool=[j.pool for j, _ in keyed],
        key=[j.key for j, _ in keyed],
    )
    return {id for (id,) in rows}


def _place(judged: Sequence[Judged]) -> dict[str, Any]:
    return {
        "id": [j.id for j in judged],
        "lane": [j.lane for j in judged],
        "fence": [j.fence for j in judged],
        "np": [j.np for j in judged],
        "tries": [j.charged for j in judged],
        "alone": [j.alone for j in judged],
        "child": [j.child for j in judged],
    }
