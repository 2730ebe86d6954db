"""What the demo came to, read back from the store's history, never assumed."""

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

import msgspec

from holdfast.answers import Event
from holdfast.cli.demo.picture import DEAD
from holdfast.cli.demo.zombie import TOO_LATE
from holdfast.store import Store

__all__ = ["Findings", "look_back"]


class Findings(msgspec.Struct, frozen=True, kw_only=True):
    """What the history tells."""

    accepted: int
    done: int
    ended_twice: int
    by_worker: dict[str, int]
    held: int  # by the worker that was killed, at that moment
    recovered: int  # of those: lost with it, and done by another
    slowest: float  # seconds from the kill until the last of them was granted again
    refused: int  # late writes of the zombie on record
    too_late: bool  # the zombie's result is the task's result

    def promises(self) -> list[tuple[str, bool]]:
        """Each in words, and whether it was seen to be kept."""
        return [
            ("every task that was accepted is done", self.done == self.accepted),
            ("none has ended twice", self.ended_twice == 0),
            (
                f"all that {DEAD} held was done by another",
                self.held > 0 and self.recovered == self.held,
            ),
            (
                "the zombie's late write was refused and is on record",
                self.refused > 0 and not self.too_late,
            ),
        ]


async def _all_events(store: Store) -> list[Event]:
    page = await store.events(limit=1000)
    found = list(page)
    while page:
        page = await store.events(after=page[-1].seq, limit=1000)
        found += page
    return found


async def look_back(
    store: Store, ids: Sequence[UUID], haunted: UUID, held: frozenset[UUID], killed: datetime
) -> Findings:
    by_worker: Counter[str] = Counter()
    done = twice = recovered = 0
    slowest = 0.0
    for id in (*ids, haunted):
        attempts = await store.attempts(id)
        endings = [attempt for attempt in attempts if attempt.ended == "done"]
        done += bool(endings)
        twice += len(endings) > 1
        by_worker.update(attempt.worker_name or "?" for attempt in endings)
        if id in held and any(a.ended == "lost" and a.worker_name == DEAD for a in attempts):
            again = [a.started_at for a in attempts if a.started_at and a.started_at > killed]
            recovered += bool(endings and again and endings[0].worker_name != DEAD)
            slowest = max([slowest, *((at - killed).total_seconds() for at in again[:1])])
    ending = await store.ending(haunted)
    events = await _all_events(store)
    return Findings(
        accepted=len(ids) + 1,
        done=done,
        ended_twice=twice,
        by_worker=dict(sorted(by_worker.items())),
        held=len(held),
        recovered=recovered,
        slowest=slowest,
        refused=sum(event.kind == "refused" and event.task == haunted for event in events),
        too_late=ending is not None and ending.result == TOO_LATE,
    )
