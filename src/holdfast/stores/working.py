"""What a worker does. Every write names the lease, and learns whether it still holds."""

import math
from collections.abc import Iterable, Sequence
from datetime import timedelta
from itertools import zip_longest
from typing import Any
from uuid import UUID

import msgspec

from holdfast.answers import Beat, ClaimAnswer, Lanes, Renewed, WorkerRecord
from holdfast.errors import InvalidInput, LeaseLost, StoreError
from holdfast.ids import new_grant
from holdfast.stores.base import policy_of, stands_twice
from holdfast.stores.driver import MisplacedTask
from holdfast.stores.settling import Settling
from holdfast.tasks.names import check_name, check_priority
from holdfast.tasks.payload import check_payload
from holdfast.tasks.task import Claimed, Lease, plain

__all__ = ["Working", "seconds_of"]

MOST_CLAIMED = 10_000
_MOST_ROOTS = 10_000  # that are remembered
_WHOLE = (
    ("slots", 1, 1_000_000),
    ("tasks_acquired", 0, 2**63 - 1),
    ("tasks_recovered", 0, 2**63 - 1),
)


class Working(Settling):
    """Keeps `holdfast.store.Working`."""

    _memory: str | None = None  # what the last claim told for the next; the database's own words

    async def register(self, worker: WorkerRecord) -> None:
        await self._register(worker)

    async def _register(self, worker: WorkerRecord, acquired: int = 0) -> bool:
        """Whether somebody wants it to drain."""
        _check(worker)
        rows = await self._call(
            "register",
            id=worker.id,
            tenant=None if worker.tenant is None else check_name("tenant", worker.tenant),
            name=plain(worker.name, 200),
            host=plain(worker.host, 200),
            pid=worker.pid,
            version=plain(worker.version, 200),
            queues=list(worker.queues),
            tags=list(worker.tags),
            capabilities=list(worker.capabilities),
            tenants=list(worker.tenants),
            group_id=plain(worker.group_id, 200),
            types=list(worker.types),
            priority=worker.priority,
            slots=worker.slots,
            status=worker.status,
            tasks_acquired=worker.tasks_acquired,
            more_acquired=acquired,
            tasks_recovered=worker.tasks_recovered,
            poll_interval=float(worker.poll_interval),
            loop_lag=float(worker.loop_lag),
            lease=float(worker.lease),
        )
        return any(row[0] for row in rows)

    async def beat(
        self, worker: WorkerRecord, held: Sequence[Lease] = (), *, acquired: int = 0
    ) -> Beat:
        drain = await self._register(worker, acquired)
        if not held:
            return Beat(frozenset(), drain)
        rows = await self._call("cancel_requested", ids=[lease.task for lease in held])
        return Beat(frozenset(self._uuids(row[0] for row in rows)), drain)

    async def sign_off(self, worker: int) -> None:
        await self._call("sign_off", id=worker)

    async def lanes(self) -> Lanes:
        # The counter first: what comes in between is looked up twice, never missed.
        change: int = await self._value("lane_change")
        limited = await self._look_up_lanes()
        return Lanes(change=change, lanes=dict(self._lanes), limited=limited)

    async def claim(
        self,
        *,
        worker: int,
        lanes: Sequence[int],
        want: int,
        lease: timedelta,
        grant: UUID | None = None,
        turns: Sequence[int] | None = None,
        after: int | None = None,
        durable: bool = False,
    ) -> ClaimAnswer:
        if not 0 < want <= MOST_CLAIMED:
            raise InvalidInput(f"a claim may ask for 1 to {MOST_CLAIMED} tasks, got {want}")
        grant = grant or new_grant()
        if turns is None:
            lanes = sorted(lanes)
        else:
            in_order = sorted(zip_longest(lanes, turns, fillvalue=0))
            lanes, turns = [lane for lane, _ in in_order], [turn for _, turn in in_order]
        ask = {
            "worker": worker,
            "grant": grant,
            "lanes": lanes,
            "turns": turns,
            "want": want,
            "lease": seconds_of("lease", lease),
            "wait_gate": after,
            "durable": durable,
            "memory": self._memory,
        }
        columns, news = await self._claim(ask)
        self._memory = news[4]
        return ClaimAnswer(
            grant=grant,
            tasks=await self._claimed(grant, columns),
            contended=news[0],
            full=news[1],
            next_due=news[2],
            lanes=news[3],
        )

    async def claimed(self, *, worker: int, grant: UUID) -> list[Claimed]:
        rows = await self._call("claimed", worker=worker, grant=grant)
        if not rows:
            return []
        columns = [list(column) for column in zip(*rows, strict=True)]
        return await self._claimed(grant, [*columns[:7], columns[0], *columns[7:]])

    async def renew(self, leases: Sequence[Lease], lease: timedelta) -> Renewed:
        if not leases:
            return Renewed(frozenset(), frozenset())
        rows = await self._call(
            "renew",
            ids=[held.task for held in leases],
            grants=[held.grant for held in leases],
            lease=seconds_of("lease", lease),
        )
        kept = {self._driver.uuid(id): cancel for id, cancel in rows}
        lost = [held for held in leases if held.task not in kept]
        if lost:
            await self._refuse("renew", lost)
        return Renewed(
            frozenset(held.task for held in lost),
            frozenset(task for task, cancel in kept.items() if cancel),
        )

    async def progress(
        self, lease: Lease, percent: float, message: str | None = None, saved: bytes | None = None
    ) -> None:
        if not 0 <= percent <= 100:
            raise InvalidInput(f"progress must be from 0 to 100, got {percent}")
        if saved is not None:
            check_payload(saved)
        written = await self._value(
            "progress",
            id=lease.task,
            grant=lease.grant,
            percent=float(percent),
            message=None if message is None else plain(message, 1000),
            saved=saved,
        )
        if not written:
            await self._refuse("progress", [lease])
            raise LeaseLost("progress", lease.task)

    async def _claim(self, ask: dict[str, Any]) -> tuple[Any, Any]:
        for _ in range(3):
            try:
                (row,) = await self._driver.call("claim", **ask)
            except MisplacedTask:
                # One bad row must not wedge its lane: take the doubles out and ask again.
                await self._driver.call("repair", lanes=ask["lanes"])
            else:
                return (row[:15] if row[0] else None), row[15:]
        raise stands_twice()

    async def _claimed(self, grant: UUID, columns: Sequence[Any] | None) -> list[Claimed]:
        if not columns:
            return []
        *main, specials, max_tries, policies, parents, cancels, lefts, alones, users = columns
        if not self._lanes.keys() >= set(main[1]):
            await self._look_up_lanes()
        lanes, uuid = self._lanes, self._driver.uuid
        rows: Iterable[Any] = zip(*main, strict=True)
        if main[3] != sorted(main[3]) or main[2] != sorted(main[2]):
            rows = sorted(rows, key=_place)
        claimed = [
            Claimed(
                lease=Lease(uuid(id), grant, fence),
                lane=lanes[lane],
                priority=-np,
                tries=tries,
                payload=payload,
            )
            for id, lane, np, _, fence, tries, payload in rows
        ]
        if specials:
            more = zip(max_tries, policies, parents, cancels, lefts, alones, users, strict=True)
            self._tell(claimed, dict(zip(self._uuids(specials), more, strict=True)))
            if parents.count(None) < len(parents):
                await self._tell_roots(claimed)
        if max(main[4]) > 1:
            await self._tell_past(claimed)
        return claimed

    async def _tell_roots(self, claimed: list[Claimed]) -> None:
        """Of children only. They come in families, and an ancestor stays what it is: most are
        known from before."""
        roots = self._roots
        if len(roots) > _MOST_ROOTS:
            roots.clear()
        new = {task.parent for task in claimed if task.parent and task.parent not in roots}
        if new:
            try:
                rows = await self._call("roots", ids=sorted(new))
            except StoreError:  # they are granted, and must be run
                rows = []
            roots |= {self._driver.uuid(id): self._driver.uuid(root) for id, root in rows}
        for place, task in enumerate(claimed):
            if task.parent:
                root = roots.get(task.parent, task.parent)
                claimed[place] = msgspec.structs.replace(task, root=root)

    async def _tell_past(self, claimed: list[Claimed]) -> None:
        """Only what was granted before has one."""
        again = [task.lease.task for task in claimed if task.lease.fence > 1]
        past: dict[UUID, dict[str, Any]]
        try:
            rows = await self._call("past", ids=again)
            past = {self._driver.uuid(id): _past(*facts) for id, *facts in rows}
        except StoreError:  # they are granted, and handed back
            past = {id: {"recorded": True, "life": -1} for id in again}
        for place, task in enumerate(claimed):
            if facts := past.get(task.lease.task):
                claimed[place] = msgspec.structs.replace(task, **facts)

    def _tell(self, claimed: list[Claimed], specials: dict[UUID, tuple[Any, ...]]) -> None:
        """Fill in what only a few tasks have."""
        for place, task in enumerate(claimed):
            if task.lease.task in specials:
                max_tries, policy, parent, cancel, left, alone, user = specials[task.lease.task]
                claimed[place] = msgspec.structs.replace(
                    task,
                    max_tries=max_tries,
                    retry=None if policy is None else policy_of(policy),
                    parent=None if parent is None else self._driver.uuid(parent),
                    cancel_requested=bool(cancel),
                    expires_in=left,
                    alone=bool(alone),
                    user_id=user,
                )


def _past(recorded: bool, fence: int | None, life: int | None) -> dict[str, Any]:
    return {"recorded": bool(recorded), "since": (fence or 0) + 1, "life": life or 0}


def _place(row: Sequence[Any]) -> tuple[int, int]:
    return row[2], row[3]


def _check(worker: WorkerRecord) -> None:
    check_priority(worker.priority)
    for what, least, most in _WHOLE:
        number = getattr(worker, what)
        if type(number) is not int or not least <= number <= most:
            raise InvalidInput(
                f"{what} of a worker must be a whole number from {least} to {most:,}, "
                f"got {number!r:.80}"
            )
    for what in ("poll_interval", "loop_lag", "lease"):
        span = getattr(worker, what)
        if not isinstance(span, float | int) or not 0 <= span < math.inf:
            raise InvalidInput(f"{what} of a worker must be seconds from 0 on, got {span!r:.80}")


def seconds_of(what: str, duration: timedelta) -> float:
    seconds = duration.total_seconds()
    if not 0 < seconds <= 366 * 86400:
        raise InvalidInput(f"{what} must be longer than nothing and at most a year, got {duration}")
    return seconds
