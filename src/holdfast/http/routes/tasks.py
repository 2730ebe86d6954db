"""Tasks: make, list, look at, steer."""

from collections.abc import Sequence
from hashlib import sha256
from typing import Annotated, Any, Literal
from uuid import UUID

import msgspec
from msgspec import Meta
from starlette.responses import Response

from holdfast.desk.papers import LogPage
from holdfast.desk.shapes import (
    Accepted,
    AttemptView,
    Changed,
    NewTask,
    ResultView,
    TaskEdit,
    TaskPage,
    TaskQuery,
    TaskView,
    WhyView,
)
from holdfast.http.fields import MAX_BATCH, Cursor, ErrorText, Instant, Label, Limit
from holdfast.http.paging import paged, place_of
from holdfast.http.problems import Problem, wrong_parameter
from holdfast.http.rendering import Listed, fresh, json, matches, needed_match
from holdfast.http.routing import Ask, Routes
from holdfast.http.waiting import PREFER, Waiting, patience

__all__ = ["routes"]

routes = Routes("tasks")
Status = Literal["pending", "running", "waiting", "done", "failed", "cancelled"]
_IF_NONE = {"If-None-Match": "An ETag: 304 where nothing has changed."}
_KEY = {
    "Idempotency-Key": "Twice the same is made once: the task's `idempotency_key`, where the body "
    "has none."
}


class TaskFilter(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    status: Status | None = None
    queue: Label | None = None
    type: Annotated[str, Meta(min_length=1, max_length=500)] | None = None
    tag: Label | None = None
    tenant_id: Label | None = None
    user_id: Label | None = None
    error: ErrorText | None = None
    error_type: Label | None = None
    created_after: Instant | None = None
    created_before: Instant | None = None
    ended_after: Instant | None = None
    ended_before: Instant | None = None
    cursor: Cursor | None = None
    limit: Limit = 50


class LogPlace(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    cursor: Cursor | None = None
    limit: Limit = 500


class Batch(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Tasks to be made, all or none."""

    tasks: Annotated[list[NewTask], Meta(min_length=1, max_length=MAX_BATCH)]


class Some(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Tasks by their ids."""

    ids: Annotated[list[UUID], Meta(min_length=1, max_length=MAX_BATCH)]


@routes.post(
    "/v1/tasks",
    "/tasks",
    scope="tasks:enqueue",
    once=False,
    body=NewTask,
    answers={201: TaskView, 200: TaskView},
    errors=(409,),
    headers=_KEY,
)
async def create_task(ask: Ask) -> Response:
    """Make a task. It is on disk when this answers: 201, or 200 with the one that has its key."""
    wish: NewTask = ask.body
    key = ask.header("idempotency-key")
    if key is not None and wish.idempotency_key is None:
        if not 1 <= len(key) <= 255:
            raise wrong_parameter("Idempotency-Key", "it has 1 to 255 characters", status=400)
        wish = msgspec.structs.replace(wish, idempotency_key=key)
    (made,) = await ask.desk.submit([wish])
    headers = {"Location": ask.url(f"/v1/tasks/{made.task.id}")}
    return json(made.task, 201 if made.created else 200, headers)


@routes.post(
    "/v1/tasks/batch",
    scope="tasks:enqueue",
    body=Batch,
    answers={201: Listed[Accepted], 200: Listed[Accepted]},
    errors=(409,),
)
async def create_tasks(ask: Ask) -> Response:
    """Make up to 1,000 tasks: all of them or none. 200 where all were known already."""
    made = await ask.desk.submit(_keyed(ask, ask.body.tasks))
    return json(Listed(data=made), 201 if any(one.created for one in made) else 200)


def _keyed(ask: Ask, wishes: Sequence[NewTask]) -> list[NewTask]:
    """With a key of the request, each task has one of its own by it: whoever asks again after an
    answer that was lost, whatever became of it, makes none of them twice."""
    header = ask.header("idempotency-key")
    if header is None:
        return list(wishes)
    by = sha256(f"{ask.caller.name}\0{header}".encode()).hexdigest()
    return [
        wish
        if wish.idempotency_key is not None
        else msgspec.structs.replace(wish, idempotency_key=f"request:{by}:{n}")
        for n, wish in enumerate(wishes)
    ]


@routes.get("/v1/tasks", "/tasks", scope="tasks:read", query=TaskFilter, answers={200: TaskPage})
async def list_tasks(ask: Ask) -> Response:
    """Tasks, a page at a time: the newest first, or with a status in its own order."""
    return await listed(ask, ask.query)


async def listed(ask: Ask, wanted: TaskFilter) -> Response:
    query = TaskQuery(**msgspec.structs.asdict(wanted) | {"cursor": place_of(ask, wanted)})
    return paged(ask, wanted, await ask.desk.tasks(query))


@routes.get(
    "/v1/tasks/{task_id}",
    "/tasks/{task_id}",
    scope="tasks:read",
    query=Waiting,
    answers={200: TaskView, 304: None},
    errors=(409,),
    headers=PREFER | _IF_NONE,
)
async def show_task(ask: Ask) -> Response:
    """One task; with `wait`, once it has ended or the time is over."""
    seconds, headers = patience(ask)
    if seconds:
        await ask.desk.result(ask.path["task_id"], wait=seconds)
    found = await ask.desk.task(ask.path["task_id"])
    return fresh(ask, found, found.revision, headers)


@routes.patch(
    "/v1/tasks/{task_id}",
    scope="tasks:control",
    body=TaskEdit,
    answers={200: TaskView},
    errors=(409, 412, 428),
    headers={"If-Match": "The ETag that you saw, or `*`. Needed."},
)
async def edit_task(ask: Ask) -> Response:
    """Change what has not begun, if it is still as you saw it. 409: it runs, or has ended."""
    header, id = needed_match(ask), ask.path["task_id"]
    revision = None
    if header.strip() != "*":
        revision = (await ask.desk.task(id)).revision
        if not matches(header, revision):
            raise Problem(412, "changed_meanwhile", "the task has changed; look at it again")
    changed = await ask.desk.edit(id, ask.body, revision=revision)
    return fresh(ask, changed, changed.revision)


@routes.get(
    "/v1/tasks/{task_id}/result",
    scope="tasks:payload",
    query=Waiting,
    answers={200: ResultView, 202: ResultView},
    errors=(409,),
    headers=PREFER,
)
async def show_result(ask: Ask) -> Response:
    """How it ended, with its result or its error. 202: it has not."""
    seconds, headers = patience(ask)
    found = await ask.desk.result(ask.path["task_id"], wait=seconds)
    ended = found.status in ("done", "failed", "cancelled")
    return json(found, 200 if ended else 202, headers)


@routes.get(
    "/v1/tasks/{task_id}/arguments",
    scope="tasks:payload",
    answers={200: Any},
    errors=(409,),
)
async def show_arguments(ask: Ask) -> Response:
    """What it was called with. Encrypted where this server has no keys for it."""
    return json(msgspec.Raw(await ask.desk.arguments(ask.path["task_id"])))


@routes.get("/v1/tasks/{task_id}/attempts", scope="tasks:read", answers={200: Listed[AttemptView]})
async def list_attempts(ask: Ask) -> Response:
    """Every try, oldest first."""
    return json(Listed(data=await ask.desk.attempts(ask.path["task_id"])))


@routes.get(
    "/v1/tasks/{task_id}/logs", scope="tasks:payload", query=LogPlace, answers={200: LogPage}
)
async def list_logs(ask: Ask) -> Response:
    """What its attempts wrote, in order."""
    wanted: LogPlace = ask.query
    return json(await ask.desk.logs(ask.path["task_id"], cursor=wanted.cursor, limit=wanted.limit))


@routes.get("/v1/tasks/{task_id}/why", scope="tasks:read", answers={200: Listed[WhyView]})
async def explain_task(ask: Ask) -> Response:
    """Why it is not running, most important first, and what to do."""
    return json(Listed(data=await ask.desk.why(ask.path["task_id"])))


@routes.post(
    "/v1/tasks/{task_id}:cancel", scope="tasks:control", answers={200: Changed}, errors=(409,)
)
async def cancel_task(ask: Ask) -> Response:
    """`cancelled`: it never starts; `requested`: its worker is told. 409: it has ended."""
    return _moved(await ask.desk.cancel([ask.path["task_id"]]), "it has ended")


@routes.post(
    "/v1/tasks/{task_id}:retry", scope="tasks:control", answers={200: Changed}, errors=(409,)
)
async def retry_task(ask: Ask) -> Response:
    """A new life for what failed or was cancelled. 409: it runs, or is done."""
    return _moved(await ask.desk.retry([ask.path["task_id"]]), "it is neither failed nor waiting")


@routes.post(
    "/v1/tasks/{task_id}:run-now", scope="tasks:control", answers={200: Changed}, errors=(409,)
)
async def run_task_now(ask: Ask) -> Response:
    """What waits for its time goes ahead. 409: it runs, or is done."""
    return _moved(await ask.desk.retry([ask.path["task_id"]]), "it does not wait for its time")


@routes.post(
    "/v1/tasks:cancel", scope="tasks:control", body=Some, answers={200: Changed}, errors=(404,)
)
async def cancel_tasks(ask: Ask) -> Response:
    """Cancel up to 1,000."""
    return json(await ask.desk.cancel(ask.body.ids))


@routes.post(
    "/v1/tasks:retry", scope="tasks:control", body=Some, answers={200: Changed}, errors=(404,)
)
async def retry_tasks(ask: Ask) -> Response:
    """Retry up to 1,000."""
    return json(await ask.desk.retry(ask.body.ids))


def _moved(changed: Changed, otherwise: str) -> Response:
    if not changed.changed:
        raise Problem(409, "not_possible", f"nothing was changed: {otherwise}")
    return json(changed)
