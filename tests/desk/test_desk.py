"""What people and programs outside may ask of a store, and what of it is theirs."""

import asyncio
from datetime import timedelta
from uuid import UUID

import msgspec
import pytest

from holdfast import Holdfast
from holdfast.answers import WorkerRecord
from holdfast.desk.local import LocalDesk
from holdfast.desk.shapes import NewTask, TaskQuery
from holdfast.errors import InvalidInput, KeyConflict, UnknownTask, UnknownType, UnknownWorker
from holdfast.ids import new_id

MINUTE = timedelta(minutes=1)


async def submit(desk: LocalDesk, **wish: object) -> UUID:
    (accepted,) = await desk.submit(
        [msgspec.convert({"type": "pay", "args": [7], **wish}, NewTask)]
    )
    return accepted.task.id


async def run_all(app: Holdfast, **options: object) -> None:
    """What waits now, by a worker of its own."""
    lifecycle = app.create_worker_lifecycle()
    working = asyncio.create_task(app.serve(lifecycle=lifecycle, poll_interval=0.02, **options))  # type: ignore[arg-type]
    async with asyncio.timeout(60):
        while await app.queue_depth() or await app.active_leases():
            await asyncio.sleep(0.01)
    lifecycle.request_drain()
    await working


async def claim_all(app: Holdfast, worker: int = 13) -> list[UUID]:
    store = (await app.home.client()).store
    lanes = list((await store.lanes()).lanes)
    answer = await store.claim(worker=worker, lanes=lanes, want=100, lease=MINUTE)
    return [task.lease.task for task in answer.tasks]


# ── making ───────────────────────────────────────────────────────────────────────────────────


async def test_a_task_is_made_as_its_function_wants_it(desk: LocalDesk) -> None:
    (accepted,) = await desk.submit([NewTask(type="pay", args=[7], priority=3)])
    task = accepted.task
    assert accepted.created
    assert (task.type, task.queue, task.tags, task.priority) == ("pay", "money", ["billing"], 3)
    assert (task.status, task.tenant_id) == ("pending", "default")
    assert msgspec.json.decode(await desk.arguments(task.id)) == {"args": [7], "kwargs": {}}


async def test_the_same_key_makes_one_task(desk: LocalDesk) -> None:
    first = await submit(desk, idempotency_key="order-7")
    (again,) = await desk.submit(
        [NewTask(type="pay", input={"order": 7}, idempotency_key="order-7")]
    )
    assert (again.task.id, again.created) == (first, False)
    with pytest.raises(KeyConflict):
        await submit(desk, args=[8], idempotency_key="order-7")


async def test_bad_wishes_are_refused_and_nothing_is_made(desk: LocalDesk) -> None:
    good = NewTask(type="pay", args=[1])
    for bad, said in [
        (NewTask(type="pya", args=[1]), UnknownType),
        (NewTask(type="pay", args=["x"]), InvalidInput),
        (NewTask(type="pay"), InvalidInput),
        (NewTask(type="pay", args=[1], input={"order": 1}), InvalidInput),
        (NewTask(type="pay", args=[1], delay="soon"), InvalidInput),
        (NewTask(type="pay", args=[1], queue="a b\n"), InvalidInput),
        (NewTask(type="pay", args=[1], priority=10**9), InvalidInput),
    ]:
        with pytest.raises(said):
            await desk.submit([good, bad])
    assert (await desk.tasks(TaskQuery())).data == []


async def test_an_unknown_type_is_taken_where_that_is_wanted(desk: LocalDesk) -> None:
    (made,) = await desk.submit([NewTask(type="nobody.here:knows", args=[1], allow_unknown=True)])
    assert made.task.type == "nobody.here:knows"


# ── seeing and moving ────────────────────────────────────────────────────────────────────────


async def test_a_task_from_its_making_to_its_result(app: Holdfast, desk: LocalDesk) -> None:
    id = await submit(desk)
    assert (await desk.result(id)).status == "pending"
    waiting = asyncio.create_task(desk.result(id, wait=60))
    await run_all(app)
    found = await waiting
    assert (found.status, bytes(found.result), found.error) == ("done", b'"paid 7"', None)
    assert [(a.ended, a.by) for a in await desk.attempts(id)] == [("done", "holder")]
    (event,) = (await desk.events()).data
    assert (event.type, event.task_id) == ("task.done", id)
    assert [why.why for why in await desk.why(id)] == ["it has ended"]


async def test_pages_of_tasks(desk: LocalDesk) -> None:
    made = [await submit(desk, args=[i]) for i in range(5)]
    first = await desk.tasks(TaskQuery(limit=3))
    rest = await desk.tasks(TaskQuery(limit=3, cursor=first.next_cursor))
    assert [task.id for task in first.data + rest.data] == made[::-1]
    assert (first.has_more, rest.has_more) == (True, False)
    with pytest.raises(InvalidInput, match="status"):
        await desk.tasks(TaskQuery(status="odd"))


async def test_dead_letters_are_grouped_replayed_and_discarded(
    app: Holdfast, desk: LocalDesk
) -> None:
    ids = [await submit(desk, type="fail", args=[], max_tries=1) for _ in range(3)]
    waiting = await submit(desk, delay="1h")
    await run_all_failed(app, 3)
    (group,) = await desk.dead_letter_groups()
    assert (group.type, group.error_type, group.count) == ("fail", "RuntimeError", 3)
    error = (await desk.result(ids[0])).error
    assert error is not None
    assert error.message == "no luck"
    assert "RuntimeError" in (error.traceback or "")
    moved = await desk.replay([ids[0], waiting])
    assert (moved.changed, moved.unchanged) == ([ids[0]], [waiting]), "only what failed"
    assert (await desk.discard([ids[1]])).changed == [ids[1]]
    with pytest.raises(UnknownTask):
        await desk.task(ids[1])
    assert (await desk.cancel([waiting])).status == "cancelled"
    assert (await desk.cancel([waiting])).status == "cancelled", "asked again"
    assert (await desk.retry([waiting])).changed == [waiting]


async def run_all_failed(app: Holdfast, count: int) -> None:
    lifecycle = app.create_worker_lifecycle()
    working = asyncio.create_task(app.serve(lifecycle=lifecycle, poll_interval=0.02))
    async with asyncio.timeout(60):
        while len(await app.list_dead_letters()) < count:
            await asyncio.sleep(0.01)
    lifecycle.request_drain()
    await working


async def test_unknown_tasks_are_named(desk: LocalDesk) -> None:
    known, unknown = await submit(desk), new_id()
    for ask in (desk.task, desk.arguments, desk.attempts, desk.result, desk.why, desk.flow):
        with pytest.raises(UnknownTask):
            await ask(unknown)
    for act in (desk.cancel, desk.retry, desk.replay, desk.discard):
        with pytest.raises(UnknownTask):
            await act([known, unknown])
    assert (await desk.task(known)).status == "pending", "all or nothing"


# ── tenants ──────────────────────────────────────────────────────────────────────────────────


async def test_what_another_tenant_owns_is_unknown(desk: LocalDesk, acme: LocalDesk) -> None:
    other, own = await submit(desk, tenant_id="other"), await submit(acme)
    assert (await acme.task(own)).tenant_id == "acme"
    for ask in (acme.task, acme.arguments, acme.attempts, acme.result, acme.why, acme.flow):
        with pytest.raises(UnknownTask):
            await ask(other)
    for act in (acme.cancel, acme.retry, acme.replay, acme.discard):
        with pytest.raises(UnknownTask):
            await act([own, other])
    with pytest.raises(UnknownTask):
        await acme.signal(other, "go")
    assert [task.id for task in (await acme.tasks(TaskQuery())).data] == [own]
    assert (await acme.tasks(TaskQuery(tenant_id="other"))).data == []
    assert len((await desk.tasks(TaskQuery())).data) == 2
    with pytest.raises(InvalidInput, match="tenant 'acme' only"):
        await submit(acme, tenant_id="other")


# ── the fleet ────────────────────────────────────────────────────────────────────────────────


async def test_queues_are_counted_paused_and_explained(desk: LocalDesk) -> None:
    await submit(desk)
    await submit(desk, delay="1h")
    money = await desk.queue("money")
    assert (money.pending, money.claimable, money.scheduled, money.load) == (2, 1, 1, 1)
    assert (await desk.queue("nowhere")).pending == 0
    assert (await desk.pause("money")).paused
    said = [one.why for one in await desk.queue_why("money")]
    assert said == ["it is paused", "no live worker serves it"]
    assert not (await desk.resume("money")).paused


async def told_of_both(desk: LocalDesk, task: UUID, queue: str = "money") -> tuple[str, str]:
    """Why, and what to do: a task says it as its queue does."""
    (of_task,), (of_queue,) = await desk.why(task), await desk.queue_why(queue)
    assert of_task == of_queue
    return of_task.why, of_task.advice


async def test_a_task_and_its_queue_say_that_all_slots_are_taken(
    app: Holdfast, desk: LocalDesk
) -> None:
    store = (await app.home.client()).store
    await store.register(WorkerRecord(id=13, name="w", types=("pay",), slots=2))
    await submit(desk)
    await submit(desk)
    assert len(await claim_all(app, worker=13)) == 2
    why, advice = await told_of_both(desk, await submit(desk))
    assert why == "all 2 slots of 1 worker are taken"
    assert "add workers or slots" in advice


@pytest.mark.parametrize(
    ("status", "way_out"), [("blocked", "isolation='process'"), ("deaf", "look at the store")]
)
async def test_a_task_and_its_queue_say_that_workers_do_not_get_to_work(
    app: Holdfast, desk: LocalDesk, status: str, way_out: str
) -> None:
    store = (await app.home.client()).store
    worker = WorkerRecord(id=13, name="w", types=("pay",), status=status, loop_lag=5.0)
    await store.register(worker)
    await store.beat(worker)
    task = await submit(desk)
    why, advice = await told_of_both(desk, task)
    assert why.startswith(f"w ({status}: ")
    assert why.endswith(" lives but does not get to work")
    assert way_out in advice
    await store.register(WorkerRecord(id=14, name="v", types=("pay",)))
    (reason,) = await desk.why(task)
    assert reason.why == "nothing holds it back: the next free worker takes it"


async def test_a_task_behind_its_key_names_those_that_hold_it(app: Holdfast) -> None:
    @app.durable(name="ship", max_concurrent=1, concurrency_key="to")
    async def ship(to: str) -> None: ...

    await app.set_limit("type", ship, max_concurrent_per_key=1)
    store = (await app.home.client()).store
    await store.register(WorkerRecord(id=13, name="w", types=("ship",), slots=5))
    tasks = [await app.dispatch(ship, "acme") for _ in range(2)]
    (held,) = await claim_all(app, worker=13)
    (behind,) = [task for task in tasks if task.id != held]
    (reason,) = await app.explain(behind)
    assert (
        reason.why == f"function 'ship' may run 1 at once for key 'acme', and 1 holds it ({held})"
    )
    assert "holdfast limits set type ship --max-concurrent-per-key" in reason.advice


async def test_a_task_that_its_key_let_in_waits_for_a_worker_alone(app: Holdfast) -> None:
    @app.durable(name="ship", max_concurrent=1, concurrency_key="to")
    async def ship(to: str) -> None: ...

    @app.durable(name="first", priority=5)
    async def first() -> None: ...

    await app.set_limit("type", ship, max_concurrent_per_key=1)
    store = (await app.home.client()).store
    await store.register(WorkerRecord(id=13, name="w", types=("first", "ship"), slots=1))
    await app.dispatch(first)
    tasks = [await app.dispatch(ship, "acme") for _ in range(2)]
    lanes = list((await store.lanes()).lanes)
    await store.claim(worker=13, lanes=lanes, want=1, lease=MINUTE)
    let_in, behind = [[one.why for one in await app.explain(task)] for task in tasks]
    assert let_in == ["the only slot of 1 worker is taken"]
    assert "1 holds it (let in before it, and waiting for a worker)" in behind[0]


async def test_numbers_name_every_queue_that_is_asked_for(app: Holdfast, desk: LocalDesk) -> None:
    await submit(desk)
    stats = await desk.stats(["idle"])
    assert set(stats.queues) == {"money", "idle"}
    assert (stats.queues["idle"].claimable, stats.queues["money"].claimable) == (0, 1)
    assert (stats.totals.pending, stats.leases.active, stats.workers.active) == (1, 0, 0)
    assert stats.desired_workers == {"money": 1, "idle": 0}
    await claim_all(app)
    assert (await desk.stats()).leases.active == 1


async def test_a_full_page_that_is_the_last_says_so(app: Holdfast, desk: LocalDesk) -> None:
    ids = {await submit(desk) for _ in range(2)}
    assert not (await desk.tasks(TaskQuery(limit=2))).has_more
    await claim_all(app)
    whole = await desk.leases(limit=2)
    assert (whole.next_cursor, whole.has_more) == (None, False)
    first = await desk.leases(limit=1)
    assert first.has_more
    rest = await desk.leases(cursor=first.next_cursor, limit=1)
    assert ({lease.task_id for lease in first.data + rest.data}, rest.has_more) == (ids, False)


async def test_leases_are_seen_and_recovered(
    app: Holdfast, desk: LocalDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    id = await submit(desk)
    store = (await app.home.client()).store
    await claim_all(app)
    (lease,) = (await desk.leases()).data
    assert (lease.task_id, lease.queue, lease.fence) == (id, "money", 1)
    assert lease.seconds_left > 0
    assert (await desk.recover()).recovered == 0, "it is held"
    await store.revoke(id, 1)
    planned = await desk.recover(dry_run=True)
    assert (planned.task_ids, planned.dry_run) == ([id], True)
    done = await desk.recover()
    assert (done.recovered, done.task_ids, done.dead_lettered) == (1, [id], 0)
    (seen,) = await desk.recoveries()
    assert (seen.task_id, seen.fence) == (id, 1)
    assert await desk.recoveries(before=seen.seq) == []
    assert (await desk.task(id)).status == "pending"


async def test_a_worker_is_seen_and_drained(app: Holdfast, desk: LocalDesk) -> None:
    with pytest.raises(UnknownWorker):
        await desk.worker("w1")
    lifecycle = app.create_worker_lifecycle("w1")
    working = asyncio.create_task(app.serve(worker_id="w1", max_concurrency=4, lifecycle=lifecycle))
    await lifecycle.wait_until_ready()
    found = await desk.worker("w1")
    assert (found.worker_id, found.max_concurrent, found.utilization) == ("w1", 4, 0.0)
    assert {"pay", "fail"} <= set(found.types)
    await desk.drain("w1")
    async with asyncio.timeout(60):
        await working
    assert (await desk.worker("w1")).status == "stopped"


async def test_types_have_a_schema(desk: LocalDesk) -> None:
    found = {one.type: one for one in await desk.task_types()}
    assert found["pay"].doc == "Charge an order."
    assert found["pay"].input_schema == {
        "type": "object",
        "properties": {"order": {"type": "integer"}, "note": {"type": "string"}},
        "required": ["order"],
        "additionalProperties": False,
    }


async def test_a_durable_function_is_shown_with_its_children(
    app: Holdfast, desk: LocalDesk
) -> None:
    pay = app.functions.find("pay")

    @app.durable(name="checkout")
    async def checkout() -> str:
        paid: str = await pay(7)
        await Holdfast.wait_for_signal("shipped")
        return paid

    task = await app.dispatch(checkout)
    lifecycle = app.create_worker_lifecycle()
    working = asyncio.create_task(app.serve(lifecycle=lifecycle, poll_interval=0.02))
    async with asyncio.timeout(60):
        while (await desk.flow(task.id)).task.reason != "waits for signal shipped":
            await asyncio.sleep(0.01)
    flow = await desk.flow(task.id)
    assert [child.type for child in flow.children] == ["pay"]
    assert flow.journal[0].name == "pay"
    assert b'"type": "checkout"' in await desk.export(task.id)
    assert await desk.signal(task.id, "shipped")
    assert await task.result(timeout=60) == "paid 7"
    lifecycle.request_drain()
    await working
    assert not await desk.signal(task.id, "shipped")
