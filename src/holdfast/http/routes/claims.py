"""The worker protocol: register, claim, renew, report, settle. A lease is a signed token."""

import asyncio
from datetime import timedelta

import msgspec
from starlette.responses import Response

from holdfast.errors import InvalidInput
from holdfast.executors.failures import failure_told
from holdfast.http.protocol import (
    Claim,
    Claimable,
    ClaimedTask,
    NewWorker,
    Registered,
    Renewal,
    Renewed,
    Reported,
    Settle,
    Settled,
    SettleError,
    SignOff,
)
from holdfast.http.rendering import json
from holdfast.http.routing import Ask, Routes
from holdfast.http.tokens import HeldLease, RemoteWorker
from holdfast.ids import new_worker_id
from holdfast.tasks.durations import duration
from holdfast.tasks.lifecycle import Cancelled, Done, Errored, HandedBack, Outcome, Snoozed
from holdfast.tasks.names import check_labels, check_type
from holdfast.tasks.payload import encode
from holdfast.tasks.task import Claimed

__all__ = ["routes"]

routes = Routes("worker protocol")


@routes.post(
    "/v1/workers", scope="workers:lease", once=False, body=NewWorker, answers={201: Registered}
)
async def register_worker(ask: Ask) -> Response:
    """Register one start of a worker. It lives as long as it claims. One that comes with a key of a
    tenant is that tenant's: it counts in nobody else's numbers."""
    wish: NewWorker = ask.body
    ask.house.registrations.take(ask.caller.name)
    worker = RemoteWorker(
        id=new_worker_id(),
        name=wish.worker_id,
        tenant=ask.caller.tenant,
        host=wish.hostname,
        version=wish.version,
        types=tuple(sorted({check_type(type) for type in wish.types})),
        queues=None if wish.queues is None else check_labels("queue", wish.queues),
        tags=None if wish.tags is None else check_labels("tag", wish.tags),
        capabilities=check_labels("capability", wish.capabilities),
        slots=wish.max_concurrent,
    )
    await ask.house.granting.register(worker, ask.caller)
    token = ask.house.tokens.give(worker, ask.caller)
    made = Registered(id=str(worker.id), worker_id=worker.name, worker=token)
    return json(made, 201)


@routes.post(
    "/v1/workers:sign-off", scope="workers:lease", once=False, body=SignOff, answers={204: None}
)
async def sign_off_worker(ask: Ask) -> Response:
    """It has left, in good order. What it still holds lapses."""
    await ask.house.granting.sign_off(_worker(ask), ask.caller)
    return Response(status_code=204)


@routes.post("/v1/claims", scope="workers:lease", once=False, body=Claim, answers={200: Claimable})
async def claim_tasks(ask: Ask) -> Response:
    """Take due tasks under a lease. Renew it well before it ends; settle it once."""
    wish, worker = ask.body, _worker(ask)
    if wish.want > worker.slots:
        raise InvalidInput(
            f"this worker registered with max_concurrent {worker.slots}, and cannot want "
            f"{wish.want}; want fewer, or register with more"
        )
    lease = timedelta(seconds=wish.lease_seconds)
    found = await ask.house.granting.claim(
        worker,
        ask.caller,
        request=wish.request_id,
        want=wish.want,
        active=wish.active,
        lease=lease,
        wait=wish.wait,
        is_gone=lambda: _is_gone(ask),
    )
    data = [_shown(ask, task, worker, lease) for task in found.tasks]
    return json(Claimable(data=data, drain=found.drain))


@routes.post(
    "/v1/leases/{token}:renew",
    scope="workers:lease",
    once=False,
    body=Renewal,
    answers={200: Renewed},
    errors=(409,),
)
async def renew_lease(ask: Ask) -> Response:
    """Extend it. 409 `lease_lost`: stop the work; it is somebody else's."""
    asked = await ask.house.granting.renew(_held(ask), ask.body.lease_seconds)
    return json(Renewed(cancel_requested=asked))


@routes.post(
    "/v1/leases/{token}:progress",
    scope="workers:lease",
    once=False,
    body=Reported,
    answers={204: None},
    errors=(409,),
)
async def report_progress(ask: Ask) -> Response:
    """Say how far it is. 409 `lease_lost`: stop the work."""
    said, held, message = ask.body, _held(ask), ask.body.message
    saved = None if said.save is None else encode(said.save)
    if message is not None:
        message = (await ask.house.granting.hiding(held))(message)
    await ask.house.granting.progress(held, said.percent, message, saved)
    return Response(status_code=204)


@routes.post(
    "/v1/leases/{token}:settle",
    scope="workers:lease",
    once=False,
    body=Settle,
    answers={200: Settled},
    errors=(409,),
)
async def settle_lease(ask: Ask) -> Response:
    """End the attempt. Twice is harmless; 409 `lease_lost`: too late, nothing was written."""
    held = _held(ask)
    granting = ask.house.granting
    settlement = await granting.settle(held, await _outcome(ask, held))
    return json(Settled(ended=await granting.ended(held, settlement)))


async def _is_gone(ask: Ask) -> bool:
    return await ask.request.is_disconnected() or not await ask.is_admitted()


def _worker(ask: Ask) -> RemoteWorker:
    return ask.house.tokens.take(ask.body.worker, RemoteWorker, ask.caller)


def _held(ask: Ask) -> HeldLease:
    return ask.house.tokens.take(ask.path["token"], HeldLease, ask.caller)


async def _outcome(ask: Ask, held: HeldLease) -> Outcome:
    said: Settle = ask.body
    match said.outcome:
        case "done":
            return Done(encode(said.result))
        case "cancelled":
            return Cancelled()
        case "snoozed":
            return Snoozed(duration("delay", said.delay))
        case "handed_back":
            return HandedBack()
        case "failed":
            told, hidden = said.error or SettleError(), await ask.house.granting.hiding(held)
            failure = await asyncio.to_thread(  # both may be long
                failure_told, told.type, told.message, told.traceback, hidden
            )
            return Errored(failure, said.retryable)


def _shown(ask: Ask, task: Claimed, worker: RemoteWorker, lease: timedelta) -> ClaimedTask:
    return ClaimedTask(
        task_id=task.lease.task,
        type=task.lane.type,
        version=task.lane.version,
        queue=task.lane.queue,
        tenant_id=task.lane.tenant,
        user_id=task.user_id,
        priority=task.priority,
        attempt=task.tries,
        max_tries=task.max_tries,
        fence=task.lease.fence,
        alone=task.is_suspect(ask.house.app.default_tries),
        payload=msgspec.Raw(task.payload),
        lease=ask.house.tokens.give(HeldLease.of(task, worker.id, lease), ask.caller),
        lease_seconds=lease.total_seconds(),
    )
