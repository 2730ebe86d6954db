"""The desk's verbs about tasks, over a store."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

import msgspec

from holdfast.answers import Ending
from holdfast.desk.bulk import Bulk
from holdfast.desk.filters import filter_of
from holdfast.desk.office import Office
from holdfast.desk.papers import LogPage
from holdfast.desk.shapes import (
    Accepted,
    AttemptView,
    Changed,
    DeadLetterGroupView,
    EventPage,
    NewTask,
    ResultView,
    TaskEdit,
    TaskPage,
    TaskQuery,
    TaskType,
    TaskView,
    WhyView,
)
from holdfast.desk.views import attempt_view, error_view, event_view, task_view
from holdfast.errors import ChangedMeanwhile, InvalidInput, NotPossible, UnknownTask, UnknownType
from holdfast.explain import explain
from holdfast.ids import new_id
from holdfast.tasks.durations import duration
from holdfast.tasks.edit import edit_of
from holdfast.tasks.names import check_expires, check_labels, check_name
from holdfast.tasks.payload import encode
from holdfast.tasks.task import Draft, Task, TaskStatus

__all__ = ["Tasks"]

MOST_AT_ONCE = 1000
_LONGEST_WAIT = 60.0
_PAGES = 100  # that are looked through to fill one


class Tasks(Office, Bulk):
    """Keeps the first part of `holdfast.desk.desk.Desk`."""

    # ── making ───────────────────────────────────────────────────────────────────────────────

    async def submit(self, wishes: Sequence[NewTask]) -> list[Accepted]:
        if not 1 <= len(wishes) <= MOST_AT_ONCE:
            raise InvalidInput(f"1 to {MOST_AT_ONCE:,} tasks in one call, got {len(wishes):,}")
        drafts = [self._draft(wish) for wish in wishes]
        await self._note_tasks("task.enqueue", [draft.id for draft in drafts])
        ids = await self._client.enqueue(drafts)
        found = await self._store.get_many(ids)
        return [
            Accepted(task=task_view(found[id]), created=id == draft.id)
            for id, draft in zip(ids, drafts, strict=True)
        ]

    def _draft(self, wish: NewTask) -> Draft:
        if wish.input is not None and (wish.kwargs or wish.args):
            raise InvalidInput("give `input`, or `args` and `kwargs`, not both")
        args, kwargs = tuple(wish.args), wish.kwargs if wish.input is None else wish.input
        options = self._options(wish)
        try:
            function = self._functions.find(wish.type, wish.version)
        except UnknownType as unknown:
            if unknown.among or not wish.allow_unknown:
                raise
        else:
            return function.options(**options).draft(args, kwargs)
        check_expires(options.get("expires"), options.get("delay"))
        options["key"] = options.pop("idempotency_key", None)
        payload = encode({"args": list(args), "kwargs": kwargs})
        return Draft(
            id=new_id(), type=wish.type, version=wish.version or "", payload=payload, **options
        )

    def _options(self, wish: NewTask) -> dict[str, Any]:
        given = {
            "queue": wish.queue,
            "priority": wish.priority,
            "delay": None if wish.delay is None else duration("delay", wish.delay),
            "run_at": wish.run_at,
            "tags": None if wish.tags is None else check_labels("tag", wish.tags),
            "requires": None
            if wish.requires is None
            else check_labels("requirement", wish.requires),
            "tenant": self._tenant(wish.tenant_id),
            "user_id": wish.user_id,
            "max_tries": wish.max_tries,
            "expires": None if wish.expires is None else duration("expires", wish.expires),
            "idempotency_key": wish.idempotency_key,
        }
        return {name: value for name, value in given.items() if value is not None}

    def _tenant(self, wanted: str | None) -> str | None:
        own = self._caller.tenant
        if own is not None and wanted not in (None, own):
            raise InvalidInput(
                f"this key makes tasks of tenant {own!r} only, not of {wanted!r:.80}"
            )
        return own if wanted is None else check_name("tenant", wanted)

    async def task_types(self) -> list[TaskType]:
        return [
            TaskType(
                type=function.name,
                version=function.version,
                queue=function.wishes.queue,
                tags=list(function.wishes.tags),
                input_schema=function.signature.schema(),
                doc=function.__doc__,
            )
            for function in sorted(self._functions, key=lambda f: (f.name, f.version))
        ]

    # ── seeing ───────────────────────────────────────────────────────────────────────────────

    async def tasks(self, query: TaskQuery) -> TaskPage:
        filter = filter_of(query, self._tenant_to_see(query.tenant_id))
        if self._is_anothers(query.tenant_id):
            return TaskPage(data=[], next_cursor=None, has_more=False)
        data, cursor = list[TaskView](), query.cursor
        for _ in range(_PAGES):
            left = query.limit - len(data)
            page = await self._store.list_tasks(filter, cursor=cursor, limit=left)
            data += map(task_view, page.tasks)
            if (cursor := page.next) is None or len(data) == query.limit:
                break
        return TaskPage(data=data, next_cursor=cursor, has_more=cursor is not None)

    async def task(self, id: UUID) -> TaskView:
        return task_view(await self._own(id))

    async def arguments(self, id: UUID) -> bytes:
        task = await self._own(id)
        return self._redaction.hide(await self._store.payload(id), self._places(task))

    def _places(self, task: Task) -> tuple[str, ...] | None:
        """The names of its positional arguments; None where its function is not known here."""
        try:
            return self._functions.find(task.type, task.version).signature.places
        except UnknownType:
            return None

    async def attempts(self, id: UUID) -> list[AttemptView]:
        await self._own(id)
        return [attempt_view(attempt) for attempt in await self._store.attempts(id)]

    async def task_events(self, id: UUID, after: int = 0, limit: int = 500) -> EventPage:
        await self._own(id)
        page = await self._store.task_events(id, after, limit)
        names = {w.id: w.name for w in await self._store.workers(counted=False)} if page else {}
        return EventPage(data=[event_view(event, names) for event in page], last=page.last)

    async def newest_event(self) -> int:
        return await self._store.newest_event()

    async def logs(self, id: UUID, *, cursor: str | None = None, limit: int = 500) -> LogPage:
        await self._own(id)
        return await self._logs(id, cursor, limit)

    async def result(self, id: UUID, *, wait: float = 0.0) -> ResultView:
        task = await self._own(id)
        ending = await self._store.ending(id)
        if ending is None and wait > 0:
            ending = await self._wait(id, min(wait, _LONGEST_WAIT))
        if ending is None:
            return ResultView(id=id, status=task.status.value)
        return ResultView(
            id=id,
            status=ending.status.value,
            result=msgspec.Raw(self._redaction.hide(ending.result or b"null")),
            error=error_view(ending.failure),
        )

    async def _wait(self, id: UUID, seconds: float) -> Ending | None:
        try:
            return await self._client.wait_for(id, timeout=timedelta(seconds=seconds))
        except TimeoutError:
            return None

    async def why(self, id: UUID) -> list[WhyView]:
        await self._own(id)
        standing, workers = await asyncio.gather(self._store.standing(id), self._store.workers())
        return [WhyView(why=one.why, advice=one.advice) for one in explain(standing, workers)]

    # ── moving ───────────────────────────────────────────────────────────────────────────────

    async def edit(self, id: UUID, wish: TaskEdit, *, revision: str | None = None) -> TaskView:
        edit, seen = edit_of(**msgspec.structs.asdict(wish)), await self._own(id)
        if revision is not None and task_view(seen).revision != revision:
            raise _changed_meanwhile(id)
        await self._note("task.edit", str(id), **msgspec.to_builtins(wish))
        answer = await self._client.edit(id, edit, seen=None if revision is None else seen)
        found = await self._own(id)
        match answer:
            case "changed":
                raise _changed_meanwhile(id)
            case "begun" if found.status is TaskStatus.PENDING:
                raise NotPossible(f"task {id} was asked to cancel, or moves just now; look again")
            case "begun":
                raise NotPossible(f"task {id} is {found.status}: only what is pending is changed")
        return task_view(found)

    async def cancel(self, ids: Sequence[UUID]) -> Changed:
        await self._own_all(ids)
        await self._note_tasks("task.cancel", ids)
        answers = {id: await self._client.cancel(id) for id in ids}
        changed = [id for id, answer in answers.items() if answer in ("cancelled", "requested")]
        status = answers[ids[0]] if len(ids) == 1 else None
        return _changed(ids, changed, status)

    async def retry(self, ids: Sequence[UUID]) -> Changed:
        await self._own_all(ids)
        await self._note_tasks("task.retry", ids)
        return _changed(ids, await self._client.retry(ids))

    async def replay(self, ids: Sequence[UUID]) -> Changed:
        found = await self._own_all(ids)
        await self._note_tasks("dead_letter.replay", ids)
        failed = [id for id, task in found.items() if task.status is TaskStatus.FAILED]
        return _changed(ids, await self._client.retry(failed) if failed else ())

    async def discard(self, ids: Sequence[UUID]) -> Changed:
        await self._own_all(ids)
        await self._note_tasks("dead_letter.discard", ids)
        return _changed(ids, await self._store.discard(ids))

    async def dead_letter_groups(self, limit: int = 50) -> list[DeadLetterGroupView]:
        return [
            DeadLetterGroupView(
                type=one.type,
                error_type=one.error_type,
                error=one.error,
                count=one.count,
                newest=one.newest,
            )
            for one in await self._store.dead_letter_groups(limit, tenant=self._caller.tenant)
        ]

    # ── whose they are ───────────────────────────────────────────────────────────────────────

    async def _own(self, id: UUID) -> Task:
        return (await self._own_all([id]))[id]

    async def _own_all(self, ids: Sequence[UUID]) -> dict[UUID, Task]:
        """What another tenant owns is as unknown as what never was."""
        if not 1 <= len(ids) <= MOST_AT_ONCE:
            raise InvalidInput(f"1 to {MOST_AT_ONCE:,} tasks in one call, got {len(ids):,}")
        tenant = self._caller.tenant
        found = {
            id: task
            for id, task in (await self._store.get_many(ids)).items()
            if tenant in (None, task.tenant)
        }
        if missing := [id for id in ids if id not in found]:
            raise UnknownTask(missing)
        return found


def _changed(ids: Sequence[UUID], moved: Any, status: str | None = None) -> Changed:
    moved = frozenset(moved)
    changed = [id for id in ids if id in moved]
    return Changed(changed=changed, unchanged=[i for i in ids if i not in moved], status=status)


def _changed_meanwhile(id: UUID) -> ChangedMeanwhile:
    return ChangedMeanwhile(f"task {id} is not as you saw it any more; look at it again")
