"""Questions that people ask. Every list walks an index from its cursor; every count is capped."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from holdfast.answers import (
    STALE_AFTER,
    DeadLetterGroup,
    Ending,
    LeaseCount,
    LeaseView,
    Page,
    QueueLoad,
    Recovery,
    TaskFilter,
    WorkerRecord,
)
from holdfast.errors import InvalidInput, UnknownTask
from holdfast.stores.base import check_limit, failure_of
from holdfast.stores.following import Following
from holdfast.stores.pages import Stage, first_stage, read_cursor, stage_after, write_cursor
from holdfast.stores.standing import Standings
from holdfast.stores.steering import MOST_AT_ONCE
from holdfast.stores.working import seconds_of
from holdfast.tasks.lane import Lane
from holdfast.tasks.names import check_user_id
from holdfast.tasks.task import Attempt, Task, TaskStatus

__all__ = ["CAP", "Views"]

CAP = 10_000  # counts of one queue stop here
_ALL = 100_000_000
_SLACK = timedelta(hours=1)  # by which a clock may have been set back


class Views(Standings, Following):
    """Keeps `holdfast.steering.Views`."""

    async def get(self, task: UUID) -> Task:
        for row in await self._call("get", ids=[task]):
            return self._task(row)
        raise UnknownTask([task])

    async def get_many(self, tasks: Sequence[UUID]) -> dict[UUID, Task]:
        if len(tasks) > MOST_AT_ONCE:
            raise InvalidInput(f"at most {MOST_AT_ONCE:,} tasks in one call, got {len(tasks):,}")
        found = map(self._task, await self._call("get", ids=sorted(set(tasks))))
        return {task.id: task for task in found}

    async def attempts(self, task: UUID, *, fence: int | None = None) -> list[Attempt]:
        return [
            Attempt(
                fence=fence,
                worker=worker,
                worker_name=name,
                started_at=self._driver.instant(started),
                ended_at=self._driver.instant(ended_at),
                ended=ended,
                by=by,
                failure=failure_of(error_type, error, detail),
            )
            for (
                fence, worker, name, started, ended_at, ended, by, error_type, error, detail,
            ) in await self._call("attempts", id=task, fence=fence)
        ]  # fmt: skip

    async def ending(self, task: UUID) -> Ending | None:
        rows = await self._call("result", id=task)
        if not rows:
            raise UnknownTask([task])
        state, result, *failure = rows[0]
        if state is None:
            return None
        return Ending(status=TaskStatus(state), result=result, failure=failure_of(*failure))

    async def list_tasks(
        self, filter: TaskFilter, *, cursor: str | None = None, limit: int = 50
    ) -> Page:
        check_limit(limit)
        if filter.user_id is not None:
            check_user_id(filter.user_id)
        await self._look_up_lanes()
        # 0: tasks from a SQL prompt whose lane nobody has interned yet
        lanes = [0, *sorted(id for id, lane in list(self._lanes.items()) if _matches(filter, lane))]
        stage, position = read_cursor(cursor, filter) if cursor else first_stage(filter)
        rows: list[tuple[Stage, Any]] = []
        while stage and len(rows) <= limit:  # one more than asked for tells whether there is more
            found = await self._call(
                stage.verb,
                lanes=lanes,
                limit=limit + 1 - len(rows),
                **stage.parameters(filter, position),
            )
            rows += [(stage, row) for row in found]
            stage, position = stage_after(stage)
        next = write_cursor(*rows[limit - 1]) if len(rows) > limit else None
        return await self._page(filter, [row[0] for _, row in rows[:limit]], next)

    async def queue_loads(
        self, *, tenant: str | None = None, exactly: bool = False
    ) -> list[QueueLoad]:
        cap = _ALL if exactly else CAP
        return [
            QueueLoad(
                queue=row[0],
                paused=bool(row[1]),
                ready=row[2],
                scheduled=row[3],
                blocked=row[4],
                waiting=row[5],
                running=row[6],
                expired=row[7],
                failed=row[8],
                oldest_age=row[9],
                capped=bool(row[10]),
            )
            for row in await self._call("queue_loads", cap=cap, tenant=tenant)
        ]

    async def leases(
        self,
        *,
        lapsed: bool = False,
        older_than: timedelta | None = None,
        tenant: str | None = None,
        worker: str | None = None,
        after: tuple[datetime, UUID] | None = None,
        limit: int = 500,
    ) -> list[LeaseView]:
        check_limit(limit)
        end, id = after or (None, None)
        older = None if older_than is None else seconds_of("older_than", older_than)
        return [
            LeaseView(
                task=self._driver.uuid(row[0]),
                type=row[1],
                queue=row[2],
                worker=row[3],
                worker_name=row[4],
                fence=row[5],
                tries=row[6],
                started_at=self._at(row[7]),
                lease_timeout=self._at(row[8]),
                seconds_left=row[9],
                tenant=row[10],
            )
            for row in await self._call(
                "leases",
                lapsed=lapsed,
                older=older,
                tenant=tenant,
                worker=worker,
                after_end=end,
                after_id=id,
                limit=limit,
            )
        ]

    async def lease_counts(self, *, tenant: str | None = None) -> dict[int, LeaseCount]:
        rows = await self._call("lease_counts", tenant=tenant)
        return {row[0]: LeaseCount(held=row[1], lapsed=row[2]) for row in rows}

    async def workers(self, *, counted: bool = True) -> list[WorkerRecord]:
        return [
            WorkerRecord(
                id=row[0],
                name=row[1],
                host=row[2],
                pid=row[3],
                version=row[4],
                queues=tuple(row[5]),
                tags=tuple(row[6]),
                capabilities=tuple(row[7]),
                types=tuple(row[8]),
                priority=row[9],
                slots=row[10],
                active=row[11],
                status=row[12],
                tasks_acquired=row[13],
                tasks_recovered=row[14],
                poll_interval=row[15],
                loop_lag=row[16],
                started_at=self._driver.instant(row[17]),
                last_heartbeat=self._driver.instant(row[18]),
                tenant=row[19],
                tenants=tuple(row[20]),
                group_id=row[21],
                lease=row[22],
            )
            for row in await self._call(
                "workers", stale=STALE_AFTER.total_seconds(), counted=counted
            )
        ]

    async def recoveries(self, *, before: int | None = None, limit: int = 50) -> list[Recovery]:
        check_limit(limit)
        return [
            Recovery(
                seq=seq,
                task=self._driver.uuid(id),
                worker_name=name,
                fence=fence,
                started_at=self._driver.instant(started),
                at=self._at(at),
            )
            for seq, id, name, fence, started, at in await self._call(
                "recoveries", before=before, limit=limit
            )
        ]

    async def now(self) -> datetime:
        return self._at(await self._value("now"))

    async def dead_letter_groups(
        self, limit: int = 50, *, tenant: str | None = None
    ) -> list[DeadLetterGroup]:
        check_limit(limit)
        return [
            DeadLetterGroup(
                type=type, error_type=error_type, error=error, count=count, newest=self._at(newest)
            )
            for type, error_type, error, count, newest in await self._call(
                "dead_letter_groups",
                cap=CAP if tenant is None else 10 * CAP,
                tenant=tenant,
                limit=limit,
            )
        ]

    async def _page(self, filter: TaskFilter, ids: list[Any], next: str | None) -> Page:
        if not ids:
            return Page(tasks=[], next=None)
        tasks = {row[0]: self._task(row) for row in await self._call("get", ids=ids)}
        found = [tasks[id] for id in ids if id in tasks]
        meant = [task for task in found if _matches(filter, task) and _fits(filter, task)]
        return Page(tasks=meant, next=None if _is_past(filter, found) else next)

    def _task(self, row: Sequence[Any]) -> Task:
        uuid, instant = self._driver.uuid, self._driver.instant
        return Task(
            id=uuid(row[0]),
            type=row[1],
            status=TaskStatus(row[2]),
            queue=row[3],
            version=row[4],
            tags=tuple(row[5]),
            requires=tuple(row[6]),
            tenant=row[7],
            priority=row[8],
            try_count=row[9],
            max_tries=row[10],
            cancel_requested=bool(row[11]),
            key=row[12],
            parent=None if row[13] is None else uuid(row[13]),
            reason=row[14],
            locked_by=row[15],
            lease_timeout=instant(row[16]),
            created_at=self._at(row[17]),
            run_at=instant(row[18]),
            expires_at=instant(row[19]),
            started_at=instant(row[20]),
            finished_at=instant(row[21]),
            progress=row[22],
            progress_message=row[23],
            last_error=row[24],
            last_error_type=row[25],
            user_id=row[26],
        )


def _matches(filter: TaskFilter, lane: Lane | Task) -> bool:
    return (
        filter.queue in (None, lane.queue)
        and filter.type in (None, lane.type)
        and filter.tenant in (None, lane.tenant)
        and (filter.tag is None or filter.tag in lane.tags)
    )


def _fits(filter: TaskFilter, task: Task) -> bool:
    """What no index knows, and where one user's tasks stand: theirs does not know it."""
    if filter.user_id is not None and (
        filter.user_id != task.user_id or filter.status not in (None, task.status)
    ):
        return False
    text, error = filter.error, task.last_error or ""
    return (
        filter.error_type in (None, task.last_error_type)
        and (text is None or text.lower() in error.lower())
        and _within(filter.created_after, task.created_at, filter.created_before)
        and _within(filter.ended_after, task.finished_at, filter.ended_before)
    )


def _within(after: datetime | None, at: datetime | None, before: datetime | None) -> bool:
    if at is None:
        return after is None and before is None
    return (after is None or at >= after) and (before is None or at < before)


def _is_past(filter: TaskFilter, page: Sequence[Task]) -> bool:
    """Whether all that follows ended even earlier: lists of one end have the newest first, unless
    they are of one user."""
    in_order = filter.status and filter.user_id is None
    last = page[-1].finished_at if page and in_order else None
    return bool(filter.ended_after and last and last + _SLACK < filter.ended_after)
