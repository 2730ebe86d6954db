"""Functions that run by the clock: each time is planned once, whoever plans it."""

import asyncio
from datetime import UTC, timedelta

import pytest
import pytest_asyncio

from holdfast.answers import TaskFilter
from holdfast.client import Client
from holdfast.errors import KeyConflict
from holdfast.notifiers.local import LocalNotifier
from holdfast.registry import Registry
from holdfast.tasks.cron import Cron
from holdfast.tasks.task import TaskStatus
from holdfast.upkeep.schedules import Planner
from tests.contract.acts import claim, draft, finish, seconds

EVERY = Cron("* * * * *")
NIGHTLY = Cron("0 3 * * *", "Europe/Berlin")


def functions(cron: str = "* * * * *", version: str = "", **options) -> Registry:
    registry = Registry()

    @registry.durable(name="report", cron=cron, version=version, **options)
    async def report(kind: str = "short") -> None: ...

    return registry


def planner(store, registry: Registry, **options) -> Planner:
    return Planner(Client(store, LocalNotifier("schedules")), lambda: registry, **options)


async def runs(store) -> list[str]:
    tasks = (await store.list_tasks(TaskFilter(), limit=500)).tasks
    return sorted(f"{task.run_at.astimezone(UTC):%H:%M:%S}" for task in tasks)


@pytest_asyncio.fixture(loop_scope="session")
async def noon(store, clock):
    """The clock stands at a full hour, in UTC."""
    now = await store.now()
    hour = now.replace(minute=0, second=0, microsecond=0) + timedelta(hours=1)
    await clock.advance((hour - now).total_seconds())
    return hour


async def test_a_new_one_begins_with_its_next_time(store, clock, noon):
    known = [("a", EVERY), ("b", NIGHTLY)]
    now, nexts = await store.see_schedules(known)
    assert abs(now - noon) < seconds(2)
    assert nexts == [EVERY.after(now), NIGHTLY.after(now)]
    await clock.advance(600)
    later, again = await store.see_schedules([*reversed(known), ("c", EVERY)])
    assert again == [nexts[1], nexts[0], EVERY.after(later)]
    assert (await store.see_schedules([]))[1] == []


async def test_whoever_is_late_plans_nothing(store, dump, noon):
    _, (seen,) = await store.see_schedules([("a", EVERY)])
    then = seen + timedelta(minutes=1)
    assert await store.plan("a", EVERY, seen=seen, next=then, drafts=[draft("a", run_at=seen)])
    before = await dump()
    again = draft("a", run_at=seen)
    for type, cron, at in (
        ("a", EVERY, seen),
        ("a", EVERY, then + seconds(1)),
        ("b", EVERY, then),
        ("a", NIGHTLY, then),
        ("a", Cron("* * * * *", "Europe/Berlin"), then),
    ):
        assert not await store.plan(type, cron, seen=at, next=then, drafts=[again])
    assert await dump() == before
    assert (await store.see_schedules([("a", EVERY)]))[1] == [then]


async def test_what_is_refused_leaves_the_schedule_where_it_was(store, noon):
    _, (seen,) = await store.see_schedules([("a", EVERY)])
    then = seen + timedelta(minutes=1)
    await store.enqueue([draft("a", key="taken", payload=b"[1]")])
    drafts = [draft("a", run_at=seen), draft("a", run_at=seen, key="taken")]
    with pytest.raises(KeyConflict):
        await store.plan("a", EVERY, seen=seen, next=then, drafts=drafts)
    assert (await store.see_schedules([("a", EVERY)]))[1] == [seen]
    assert len(await runs(store)) == 1


async def test_one_that_cannot_be_planned_is_in_nobodys_way(store, clock, noon, caplog):
    registry = functions()

    @registry.durable(name="another", cron="* * * * *")
    async def another() -> None: ...

    plans = planner(store, registry)
    await plans.sweep()
    taken = f"cron:report:{noon + timedelta(minutes=1):%Y-%m-%dT%H:%M:%SZ}"
    await store.enqueue([draft("report", key=taken, payload=b"[1]")])
    await clock.advance(35)
    assert await plans.sweep() == 1
    assert "report is not planned" in caplog.text
    await clock.advance(120)
    assert await plans.sweep() == 4  # the key is only of that time


async def test_tasks_are_made_shortly_before_their_time_and_start_at_it(store, clock, noon):
    plans = planner(store, functions())
    assert await plans.sweep() == 0
    await clock.advance(25)
    assert await plans.sweep() == 0
    await clock.advance(10)
    assert await plans.sweep() == 1
    assert await plans.sweep() == 0
    assert await runs(store) == [f"{noon:%H}:01:00"]
    assert await claim(store) == []
    await clock.advance(25)
    await store.promote()
    (task,) = await claim(store)
    assert task.lane.type == "report"
    await finish(store, task)
    assert await plans.sweep() == 0


async def test_many_planners_plan_each_time_once(store, keeper, clock, noon):
    plans = [planner(keeper.store(), functions()) for _ in range(6)]
    for _ in range(10):
        await asyncio.gather(*(one.sweep() for one in plans))
        await clock.advance(30)
    found = await runs(store)
    assert found == [f"{noon:%H}:0{minute}:00" for minute in range(1, 6)]


async def test_what_was_missed_is_made_up_for_once(store, clock, noon):
    plans = planner(store, functions("*/5 * * * *"))
    await plans.sweep()
    await clock.advance(3600 + 12 * 60)  # nobody was there
    assert await plans.sweep() == 1
    later = noon + timedelta(hours=1)
    assert await runs(store) == [f"{later:%H}:10:00"]
    assert len(await claim(store)) == 1  # at once
    await clock.advance(170)
    assert await plans.sweep() == 1
    assert await runs(store) == [f"{later:%H}:10:00", f"{later:%H}:15:00"]


async def test_two_releases_share_the_times_that_both_have(store, keeper, clock, noon):
    """While a deploy rolls, workers of both are there."""
    old = planner(store, functions("*/2 * * * *", version="1"))
    new = planner(keeper.store(), functions("*/3 * * * *", version="2"))
    for _ in range(25):
        await asyncio.gather(old.sweep(), new.sweep())
        await clock.advance(15)
    # until 06:15 and half a minute more
    assert [time[3:5] for time in await runs(store)] == ["02", "03", "04", "06"]


async def test_an_idempotent_function_runs_at_each_of_its_times(store, clock, noon):
    for registry in (functions(idempotent=True), functions("*/1 * * * *", cached=True)):
        plans = planner(store, registry, ahead=timedelta(0))
        await plans.sweep()
        await clock.advance(60)
        assert await plans.sweep() == 1
        await clock.advance(60)
        assert await plans.sweep() == 1


async def test_its_time_to_expire_counts_from_its_time(store, clock, noon):
    plans = planner(store, functions(expires="10s"))
    await plans.sweep()
    await clock.advance(35)
    await plans.sweep()
    await clock.advance(26)
    await store.expire()
    await store.promote()
    (task,) = await claim(store)
    await finish(store, task)
    await clock.advance(30)
    await plans.sweep()
    await clock.advance(42)
    await store.expire()
    (late,) = (await store.list_tasks(TaskFilter(), limit=1)).tasks
    assert late.status is TaskStatus.FAILED


async def test_what_nobody_knows_any_more_is_forgotten(store, clock, noon):
    _, (first,) = await store.see_schedules([("a", EVERY)])
    await clock.advance(3600)
    assert (await store.see_schedules([("a", EVERY)]))[1] == [first]
    await store.cleanup(seconds(1800))
    assert (await store.see_schedules([("a", EVERY)]))[1] == [first]
    await clock.advance(3600)
    await store.cleanup(seconds(1800))
    now, (anew,) = await store.see_schedules([("a", EVERY)])
    assert anew == EVERY.after(now)


async def test_a_clock_that_was_ahead_for_a_while_stops_no_schedule(store, clock, noon):
    plans = planner(store, functions("0 * * * *"))
    await clock.advance(365 * 86_400)
    await plans.sweep()
    await clock.advance(-365 * 86_400)
    assert await plans.sweep() == 0  # found, and put right
    await clock.advance(3580)
    assert await plans.sweep() == 1


async def test_code_for_keys_is_not_asked_about_its_times(store, clock, noon):
    def fail() -> str:
        raise ZeroDivisionError

    plans = planner(store, functions(idempotency_key_func=lambda kind="short": fail()))
    await plans.sweep()
    await clock.advance(35)
    assert await plans.sweep() == 1


async def test_long_names_have_times_of_their_own(store, clock, noon):
    registry = Registry()
    for end in "ab":
        registry.durable(name="n" * 180 + end, cron="* * * * *")(lambda: None)
    plans = planner(store, registry)
    await plans.sweep()
    await clock.advance(35)
    assert await plans.sweep() == 2
