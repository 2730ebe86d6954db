"""The desk's verbs about queues, workers, leases and recovery, over a store."""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from uuid import UUID

from holdfast.answers import LeaseCount, QueueLoad, TaskFilter, WorkerRecord
from holdfast.desk.base import Base
from holdfast.desk.shapes import (
    EventPage,
    LeaseCounts,
    LeasePage,
    QueueNumbers,
    QueueView,
    RecoveryCounts,
    RecoveryRun,
    RecoveryView,
    Stats,
    WhyView,
    WorkerCounts,
    WorkerShare,
    WorkerView,
)
from holdfast.desk.views import (
    event_view,
    joined,
    lease_shape,
    queue_numbers,
    queue_view,
    recovery_view,
    worker_share,
    worker_view,
)
from holdfast.errors import InvalidInput, UnknownWorker
from holdfast.explain import LIVE, Reason, counted, overloaded, resuming, starting, unserved
from holdfast.notifier import Hint
from holdfast.tasks.names import check_name
from holdfast.tasks.task import TaskStatus
from holdfast.upkeep.letters import tell_of_recovered

__all__ = ["Fleet"]

_GONE = ("stale", "stopped")
_MOST_NAMED = 5
_MOST_TASKS = 1000
_FIRST = 200  # so many of a queue are looked at, to see whether anybody takes them


class Fleet(Base):
    """Keeps the second part of `holdfast.desk.desk.Desk`."""

    # ── queues ───────────────────────────────────────────────────────────────────────────────

    async def queues(self) -> list[QueueView]:
        loads = await self._store.queue_loads(tenant=self._caller.tenant)
        return [queue_view(load) for load in loads]

    async def queue(self, name: str) -> QueueView:
        check_name("queue", name)
        for found in await self.queues():
            if found.queue == name:
                return found
        return queue_view(_empty(name))

    async def pause(self, queue: str) -> QueueView:
        await self._note("queue.pause", check_name("queue", queue))
        await self._store.pause(queue)
        return await self.queue(queue)

    async def resume(self, queue: str) -> QueueView:
        await self._note("queue.resume", check_name("queue", queue))
        await self._store.resume(queue)
        self._client.tell([Hint("work", queue)])
        return await self.queue(queue)

    async def queue_why(self, name: str) -> list[WhyView]:
        """Why nothing of it runs, or runs no faster."""
        queue, workers = await asyncio.gather(self.queue(name), self._store.workers())
        ours = [worker for worker in workers if self._counts(worker)]
        theirs = [] if self._caller.tenant else [w for w in workers if w.tenant is not None]
        is_served = any(_serves(worker, name) for worker in ours)
        stuck = await self._stuck(name, workers) if queue.pending and is_served else []
        return _why(queue, ours, theirs, stuck)

    async def _stuck(self, queue: str, workers: Sequence[WorkerRecord]) -> list[WhyView]:
        """Those first in line that nobody takes, for the same reason as one."""
        first = TaskFilter(status=TaskStatus.PENDING, queue=queue, tenant=self._caller.tenant)
        lanes = Counter(
            task.lane for task in (await self._store.list_tasks(first, limit=_FIRST)).tasks
        )
        found: Counter[Reason] = Counter()
        for lane, count in lanes.items():
            if reason := unserved(lane, workers):
                found[reason] += count
        return [
            WhyView(
                why=f"{counted(count, 'waits', 'wait')} in vain: {one.why}",
                advice=one.advice,
                unserved=count,
            )
            for one, count in found.most_common()
        ]

    # ── workers ──────────────────────────────────────────────────────────────────────────────

    async def workers(self) -> list[WorkerView]:
        return [worker_view(worker) for worker in await self._visible()]

    async def worker(self, name: str) -> WorkerView:
        """Of several starts under one name the last."""
        return worker_view((await self._called(name))[-1])

    async def drain(self, name: str) -> WorkerView:
        found = await self._called(name)
        if len(found) > 1:
            raise InvalidInput(
                f"{len(found)} live workers are called {name!r:.200}; drain one by its id: "
                + ", ".join(str(worker.id) for worker in found[:_MOST_NAMED])
            )
        (worker,) = found
        await self._note("worker.drain", worker.name, id=str(worker.id))
        if await self._store.drain(worker.id):
            self._client.tell([Hint("drain", str(worker.id))])
        return worker_view(worker)

    async def _called(self, name: str) -> list[WorkerRecord]:
        """One by its id; by a name those that live, or else the last that did. Anybody may choose
        any name: so it means one's own workers, and another tenant's is known by its id alone."""
        visible = await self._visible()
        if by_id := [worker for worker in visible if str(worker.id) == name]:
            return by_id
        called = [worker for worker in visible if worker.name == name]
        own = [worker for worker in called if worker.tenant == self._caller.tenant]
        if called and not own:
            named = ", ".join(f"{w.id} of tenant {w.tenant!r}" for w in called[-_MOST_NAMED:])
            raise InvalidInput(
                f"only workers of tenants are called {name!r:.200}; name one by its id: {named}"
            )
        if not own:
            raise UnknownWorker(name)
        return [worker for worker in own if worker.status not in _GONE] or own[-1:]

    async def _visible(self) -> list[WorkerRecord]:
        tenant, found = self._caller.tenant, await self._store.workers()
        return [worker for worker in found if tenant in (None, worker.tenant)]

    def _counts(self, worker: WorkerRecord) -> bool:
        """What a tenant's worker says of itself is no number of anybody else's."""
        return worker.tenant in (None, self._caller.tenant)

    async def leases(
        self,
        *,
        expired: bool = False,
        worker: str | None = None,
        cursor: str | None = None,
        limit: int = 500,
    ) -> LeasePage:
        ask = partial(self._store.leases, lapsed=expired, tenant=self._caller.tenant, worker=worker)
        found = await ask(after=_place(cursor) if cursor else None, limit=limit)
        last = found[-1] if len(found) == limit else None
        if last and not await ask(after=(last.lease_timeout, last.task), limit=1):
            last = None  # a full page may be the last
        return LeasePage(
            data=[lease_shape(one) for one in found],
            next_cursor=f"{last.lease_timeout.isoformat()}/{last.task}" if last else None,
            has_more=last is not None,
        )

    # ── recovery ─────────────────────────────────────────────────────────────────────────────

    async def recover(self, *, dry_run: bool = False) -> RecoveryRun:
        began = asyncio.get_running_loop().time()
        if dry_run:
            counts, named = await asyncio.gather(
                self._store.lease_counts(), self._store.leases(lapsed=True, limit=_MOST_TASKS)
            )
            return RecoveryRun(
                recovered=sum(count.lapsed for count in counts.values()),
                dead_lettered=0,
                task_ids=[lease.task for lease in named],
                took_ms=_since(began),
                dry_run=True,
            )
        await self._note("recovery.run", "")
        all_of_them = []
        while found := await self._store.recover(default_tries=self._default_tries):
            all_of_them += found
            await tell_of_recovered(self._store, self._observer, found)
        if all_of_them:
            self._client.tell([Hint("work", "*")])
        return RecoveryRun(
            recovered=len(all_of_them),
            dead_lettered=sum(one.status is TaskStatus.FAILED for one in all_of_them),
            task_ids=[one.lease.task for one in all_of_them[:_MOST_TASKS]],
            took_ms=_since(began),
        )

    async def recoveries(self, *, before: int | None = None, limit: int = 50) -> list[RecoveryView]:
        found = await self._store.recoveries(before=before, limit=limit)
        return [recovery_view(one) for one in found]

    # ── numbers ──────────────────────────────────────────────────────────────────────────────

    async def stats(self, queues: Sequence[str] = ()) -> Stats:
        loads, everyone, held, recovered, now = await asyncio.gather(
            self.queues(),
            self._store.workers(),
            self._store.lease_counts(tenant=self._caller.tenant),
            self._store.recovered_total(),
            self._store.now(),
        )
        workers = [worker for worker in everyone if self._counts(worker)]
        numbers = {name: QueueNumbers() for name in queues}
        numbers |= {view.queue: queue_numbers(view) for view in loads}
        live = [worker for worker in workers if worker.status not in _GONE]
        running, expired = sum(q.running for q in loads), sum(q.expired_leases for q in loads)
        return Stats(
            queues=numbers,
            totals=_totals(list(numbers.values())),
            workers=WorkerCounts(
                active=sum(worker.status in LIVE for worker in workers),
                draining=sum(worker.status == "draining" for worker in workers),
                stale=sum(worker.status == "stale" for worker in workers),
            ),
            leases=LeaseCounts(active=running - expired, expired=expired),
            recovery=RecoveryCounts(
                recovered_total=recovered
                if self._caller.tenant is None
                else sum(w.tasks_recovered for w in workers)
            ),
            desired_workers=dict.fromkeys(numbers, 0) | _desired(loads, live),
            by_worker=_shares(live, held),
            server_time=now,
        )

    async def events(self, after: int = 0, limit: int = 500) -> EventPage:
        page = await self._store.events(after, limit, tenant=self._caller.tenant)
        events = list(page)
        names = {w.id: w.name for w in await self._store.workers(counted=False)} if events else {}
        data = [event_view(event, names) for event in events]
        return EventPage(data=data, last=page.last)


def _why(
    queue: QueueView,
    ours: Sequence[WorkerRecord],
    theirs: Sequence[WorkerRecord],
    stuck: Sequence[WhyView],
) -> "list[WhyView]":
    found = []
    serving = [worker for worker in ours if _serves(worker, queue.queue)]
    if queue.paused:
        found.append(WhyView(why="it is paused", advice=resuming(queue.queue)))
    if not queue.pending:
        found.append(WhyView(why="nothing waits in it"))
    if queue.pending and not serving:
        tenants = sorted({w.tenant or "" for w in theirs if _serves(w, queue.queue)})
        named = f" but those of tenants {', '.join(tenants[:_MOST_NAMED])}" if tenants else ""
        why = f"no live worker serves it{named}"
        found.append(WhyView(why=why, advice=starting(queue.queue)))
    found += stuck
    if queue.pending and not queue.claimable and queue.scheduled:
        found.append(WhyView(why=f"{counted(queue.scheduled, 'is', 'are')} not due yet"))
    if queue.blocked:
        why = f"{counted(queue.blocked, 'waits', 'wait')} behind others of the same key"
        advice = "wait, or raise the limit: holdfast limits set type … --max-concurrent-per-key …"
        found.append(WhyView(why=why, advice=advice))
    if queue.claimable:
        found += [WhyView(why=one.why, advice=one.advice) for one in overloaded(serving)]
    if queue.expired_leases:
        why = f"{counted(queue.expired_leases, 'is', 'are')} held by workers that stopped renewing"
        found.append(WhyView(why=why, advice="holdfast recover"))
    if not found:
        found.append(
            WhyView(why="nothing holds it back", advice="holdfast tasks show ID says more")
        )
    return found


def _serves(worker: WorkerRecord, queue: str) -> bool:
    return worker.status in LIVE and (not worker.queues or queue in worker.queues)


def _shares(
    workers: Sequence[WorkerRecord], held: Mapping[int, LeaseCount]
) -> dict[str, WorkerShare]:
    """Under a name that several go by, the numbers of all of them and the state of the last."""
    shares = dict[str, WorkerShare]()
    for worker in workers:
        count = held.get(worker.id)
        share = worker_share(worker, count.held if count else 0)
        before = shares.get(worker.name)
        shares[worker.name] = joined(before, share) if before else share
    return shares


def _desired(loads: Sequence[QueueView], workers: Sequence[WorkerRecord]) -> dict[str, int]:
    """Workers of today's size that the load of each queue would fill."""
    slots = max([worker.slots for worker in workers], default=10)
    return {view.queue: -(-view.load // slots) for view in loads}


def _totals(all_of_them: Sequence[QueueNumbers]) -> QueueNumbers:
    names = [n for n in QueueNumbers.__struct_fields__ if n not in ("paused", _OLDEST)]
    sums = {name: sum(getattr(one, name) for one in all_of_them) for name in names}
    oldest = max((one.oldest_pending_age_seconds for one in all_of_them), default=0.0)
    return QueueNumbers(**sums, oldest_pending_age_seconds=oldest)


_OLDEST = "oldest_pending_age_seconds"


def _empty(name: str) -> QueueLoad:
    return QueueLoad(
        queue=name,
        paused=False,
        ready=0,
        scheduled=0,
        blocked=0,
        waiting=0,
        running=0,
        expired=0,
        failed=0,
        oldest_age=None,
        capped=False,
    )


def _place(cursor: str) -> tuple[datetime, UUID]:
    end, _, task = cursor.partition("/")
    try:
        place = datetime.fromisoformat(end), UUID(task)
        place[0].astimezone(UTC)  # some that can be written cannot be reckoned with
    except (ValueError, OverflowError):
        place = None
    if place is None or place[0].tzinfo is None:
        raise InvalidInput(f"cursor {cursor!r:.80} is not one of ours; begin again without it")
    return place


def _since(began: float) -> float:
    return (asyncio.get_running_loop().time() - began) * 1000
