"""Holding a lease: renewed in time whatever happens, and let go of where it is lost."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import msgspec
import psycopg
import pytest

from holdfast import LeaseLost, RetryPolicy, current
from holdfast.errors import StoreUnreachable
from holdfast.stores.sql import SqlStore
from holdfast.tasks.lifecycle import Settlement, Verdict
from holdfast.tasks.task import TaskStatus
from tests.stalls import measured
from tests.storm.ledger import peek
from tests.storm.proxy import Cut, Proxy
from tests.work.bench import Bench, Watcher, until

ALONE: dict[str, Any] = {"max_concurrency": 1, "recovery_interval": 600.0}  # nor does it sweep
OTHER = Settlement(verdict=Verdict.DONE, result=b'"the other"')


async def test_a_handler_that_blocks_the_loop_loses_nothing(bench: Bench) -> None:
    """While nothing else of this loop can run, its lease lasts longer and longer."""
    ends: list[Any] = []

    @bench.app.durable
    async def block() -> str:
        over = time.monotonic() + 60
        while len(ends) < 4 and time.monotonic() < over:
            if (end := lease_end(bench)) not in ends:
                ends.append(end)
            time.sleep(0.01)  # noqa: ASYNC251
        return "done"

    async with bench.worker():
        task = await bench.app.dispatch(block)
        assert await task.result(timeout=60) == "done"
    assert len(ends) == 4
    assert ends == sorted(ends)
    assert await bench.ends(task) == ["done"]


def lease_end(bench: Bench) -> Any:
    column = "boot_end" if bench.is_sqlite else "lease_timeout"
    return peek(bench.place, f"select {column} from {{s}}lease")[0][0]


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (StoreUnreachable("just this once"), "could not renew 1 leases"),
        (ZeroDivisionError(), "a renewal failed"),
    ],
)
async def test_a_renewal_that_fails_is_followed_by_the_next_and_ends_nothing(
    bench: Bench,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    fault: Exception,
    said: str,
) -> None:
    real, asked = SqlStore.renew, list[str]()

    async def renew(self: SqlStore, *args: Any) -> Any:
        asked.append("renew")
        if len(asked) == 1:
            raise fault
        return await real(self, *args)

    monkeypatch.setattr(SqlStore, "renew", renew)

    @bench.app.durable
    async def work() -> str:
        await until(lambda: len(asked) >= 6)
        return "done"

    async with bench.worker():
        task = await bench.app.dispatch(work)
        assert await task.result(timeout=60) == "done"
    assert await bench.ends(task) == ["done"]
    assert said in caplog.text


async def take_away(bench: Bench, task: Any, *, settle: bool = True) -> None:
    """Let the lease lapse, and another worker take the task and end it."""
    store = await bench.store()

    async def recovered() -> bool:
        bench.lapse(task.id)
        await store.recover()
        return not bench.leases()  # the worker itself sweeps once, soon after its start

    await until(recovered)
    lanes = list((await store.lanes()).lanes)
    answer = await store.claim(worker=7, lanes=lanes, want=1, lease=timedelta(minutes=10))
    (other,) = answer.tasks
    assert other.lease.task == task.id
    if settle:
        assert not await store.settle([(other.lease, OTHER)])


@pytest.fixture
def renewing(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """No renewal is sent until it is set: so that a worker hears of its loss when the other has
    taken the task, and cannot take it again itself."""
    real, go = SqlStore.renew, threading.Event()

    async def renew(self: SqlStore, *args: Any) -> Any:
        while not go.is_set():
            await asyncio.sleep(0.005)
        return await real(self, *args)

    monkeypatch.setattr(SqlStore, "renew", renew)
    return go


async def test_a_task_whose_lease_is_lost_is_stopped_and_the_others_result_stands(
    bench: Bench, renewing: threading.Event
) -> None:
    inside, stopped = asyncio.Event(), asyncio.Event()

    @bench.app.durable
    async def work() -> str:
        inside.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()
        return "mine"

    async with bench.worker(**ALONE):
        task = await bench.app.dispatch(work)
        await inside.wait()
        await take_away(bench, task)
        renewing.set()
        await asyncio.wait_for(stopped.wait(), 60)
        assert await task.result(timeout=60) == "the other"
        await until(lambda: not bench.app.worker_status_overview()["workers"][0]["active_jobs"])
    assert await bench.ends(task) == ["lost", "done"]
    assert await task.result(timeout=60) == "the other"


@pytest.mark.parametrize("how", ["swallows", "raises"])
async def test_whatever_a_stopped_function_does_nothing_of_it_is_written(
    bench: Bench, renewing: threading.Event, how: str
) -> None:
    watcher = Watcher()
    app = bench.new_app(observers=[watcher])
    inside, stopped = asyncio.Event(), asyncio.Event()

    @app.durable
    async def work() -> str:
        inside.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            stopped.set()
            if how == "raises":
                raise ValueError from None
        return "mine"

    async with bench.worker(app, **ALONE):
        task = await app.dispatch(work)
        await inside.wait()
        await take_away(bench, task, settle=False)
        renewing.set()
        await asyncio.wait_for(stopped.wait(), 60)
    assert watcher.of("settled") == [], "not even tried"
    assert [lost for _, _, lost in watcher.of("renewed") if lost] == [{task.id}]
    assert (await task.state()).locked_by != "w0"


async def test_progress_after_the_lease_is_gone_is_refused(bench: Bench) -> None:
    inside, go = asyncio.Event(), asyncio.Event()
    heard: list[BaseException] = []

    @bench.app.durable
    async def work() -> str:
        inside.set()
        await go.wait()
        try:
            await current().progress(50, "still here")
        except LeaseLost as error:
            heard.append(error)
            raise
        return "mine"

    async with bench.worker(**ALONE | {"heartbeat_interval": 30.0}):
        task = await bench.app.dispatch(work)
        await inside.wait()
        await take_away(bench, task)
        go.set()
        await until(lambda: heard)
        assert await task.result(timeout=60) == "the other"
    assert (await task.state()).progress is None
    assert await bench.ends(task) == ["lost", "done"]


async def test_an_old_attempt_that_will_not_end_takes_nothing_from_the_new_one(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both are of one worker, and of one task."""
    monkeypatch.setattr("holdfast.work.slots._STOPPING", 0.05)
    old, new = asyncio.Event(), asyncio.Event()
    started: list[int] = []

    @bench.app.durable(timeout=0.3, max_tries=2, retry_policy=RetryPolicy(initial_delay=0.01))
    async def stubborn() -> str:
        stubborn.traits = msgspec.structs.replace(stubborn.traits, timeout=None)  # for the next
        started.append(current().attempt)
        door = old if current().attempt == 1 else new
        while not door.is_set():
            try:
                await door.wait()
            except asyncio.CancelledError:
                if current().attempt == 2:
                    raise
        return f"attempt {current().attempt}"

    def active() -> list[str]:
        (one,) = bench.app.worker_status_overview()["workers"]
        return list(one["active_job_ids"])

    async with bench.worker(max_concurrency=2):
        task = await bench.app.dispatch(stubborn)
        await until(lambda: started == [1, 2])
        held = len(active())
        old.set()  # first: no loop could be closed on it
        assert held == 2, "it keeps its slot"
        await until(lambda: len(active()) == 1)
        new.set()
        assert await task.result(timeout=60) == "attempt 2"
    assert await bench.ends(task) == ["retry", "done"]


async def test_what_a_busy_worker_takes_back_an_idle_one_hears_of(bench: Bench) -> None:
    """Neither polls for an hour; the one that recovers has no room, the other does not sweep."""
    deaf: dict[str, Any] = {"poll_interval": 3600.0, "poll_interval_max": 3600.0}
    inside, go = asyncio.Event(), asyncio.Event()
    store = await bench.store()

    @bench.app.durable
    async def hold() -> None:
        inside.set()
        await go.wait()

    @bench.app.durable
    async def work() -> str:
        return current().worker_id

    async with bench.worker(max_concurrency=1, **deaf):
        held = await bench.app.dispatch(hold)
        await inside.wait()
        task = await bench.app.dispatch(work)
        lanes = list((await store.lanes()).lanes)
        dead = await store.claim(worker=13, lanes=lanes, want=1, lease=timedelta(seconds=60))
        assert [one.lease.task for one in dead.tasks] == [task.id]
        async with bench.worker(recovery_interval=3600.0, worker_id="idle", **deaf):
            bench.lapse(task.id)
            assert await task.result(timeout=60) == "idle"
            go.set()
            await held.result(timeout=60)


# ── through a proxy: PostgreSQL ──────────────────────────────────────────────────────────────


@pytest.fixture
async def proxy(postgres_bench: Bench) -> AsyncIterator[Proxy]:
    await postgres_bench.store()  # the tables
    async with Proxy(postgres_bench.url) as proxy:
        yield proxy


async def test_a_worker_that_is_cut_off_stops_in_time_writes_nothing_and_goes_on(
    postgres_bench: Bench,
    proxy: Proxy,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("holdfast.upkeep.keeping.random.random", lambda: 0.0)  # recovers at once
    bench = postgres_bench
    app = bench.new_app(proxy.url)
    inside, finish = asyncio.Event(), asyncio.Event()
    stopped: list[float] = []
    runs: list[str] = []

    @app.durable(name="hang")
    async def hang() -> str:
        runs.append("hang")
        if len(runs) > 1:
            return "second"
        inside.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            stopped.append(time.time())
            raise
        return ""

    @app.durable(name="finish")
    async def finished() -> str:
        await finish.wait()
        return "finished while cut off"

    options = {"lease_duration": 1.5, "recovery_interval": 600.0}
    async with measured() as stalls, bench.worker(app, **options):
        lost, kept = await app.dispatch(hang), await app.dispatch(finished)
        lost_id, kept_id = lost.id, kept.id
        await inside.wait()
        await until(lambda: bench.leases() == 2)
        proxy.fall_silent()
        finish.set()
        await until(lambda: stopped)
        left, held = lease_ends(bench.url, lost_id) - stopped[0], bench.leases()
        proxy.speak_again()
        assert left > -2 * stalls.worst, "stopped only after its lease had lapsed"
        assert held == 2, "nothing is written of what did not finish"
        assert sum("could not be renewed in time" in r.message for r in caplog.records) <= 2
        assert (await bench.app.wait_for(kept_id, timeout=60)).result == b'"finished while cut off"'
        assert await bench.ends(kept_id) == ["done"]
        await until(bench.app.reset_expired_leases)
        assert (await bench.app.wait_for(lost_id, timeout=60)).result == b'"second"'
    assert await bench.ends(lost_id) == ["lost", "done"]


def lease_ends(url: str, task: Any) -> float:
    """By the clock of the machine, which is the server's too."""
    with psycopg.connect(url, autocommit=True) as conn:
        row = conn.execute(
            "select extract(epoch from lease_timeout) from holdfast.lease where id = %s", [task]
        ).fetchone()
    assert row, "somebody took it back"
    return float(row[0])


@pytest.mark.parametrize("cut", ["before", "during", "after"])
@pytest.mark.parametrize("verb", ["settle", "claim"])
async def test_a_connection_cut_around_a_commit_loses_and_doubles_nothing(
    postgres_bench: Bench, proxy: Proxy, verb: str, cut: Cut
) -> None:
    bench = postgres_bench
    app = bench.new_app(proxy.url)
    runs: list[int] = []

    @app.durable(max_tries=2)
    async def work(i: int) -> int:
        runs.append(i)
        return i

    tasks = await app.dispatch_many([work.call(i) for i in range(20)])
    proxy.arm(f"holdfast.{verb}(", cut)
    async with bench.worker(app):
        for task in tasks:
            await bench.app.wait_for(task.id, timeout=60)
        assert proxy.fired.is_set()
    assert sorted(runs) == list(range(20)), "a lost answer is asked for again, not run again"
    for task in tasks:
        assert await bench.ends(task.id) == ["done"]
    assert bench.leases() == 0


async def test_tasks_of_a_claim_are_run_although_the_next_question_fails(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """New lanes have come, and looking them up fails: what was granted must not be held for ever
    by a worker that has forgotten of it."""
    store = await bench.store()
    real, asked = store.lanes, list[int]()

    async def lanes() -> Any:
        asked.append(1)
        if len(asked) == 2:
            raise StoreUnreachable("not now")
        return await real()

    @bench.app.durable
    async def work(i: int) -> int:
        return i

    monkeypatch.setattr(store, "lanes", lanes, raising=False)
    first = await bench.app.dispatch(work, 1)
    async with bench.worker():
        assert await first.result(timeout=60) == 1
        calls = [work.options(queue=f"q{i}").call(i) for i in range(3)] + [work.call(3)]
        for task in await bench.app.dispatch_many(calls):
            await task.result(timeout=60)
        assert len(asked) >= 3
    assert (await first.state()).status is TaskStatus.DONE


async def test_a_claim_that_never_arrived_does_not_hold_up_the_next_one(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, asked = await bench.store(), list[str]()
    claim, claimed = store.claim, store.claimed
    gone = list[Any]()

    async def lossy(**ask: Any) -> Any:
        asked.append("claim")
        if not gone:
            gone.append(ask["grant"])
            raise StoreUnreachable("cut")
        return await claim(**ask)

    async def watched(**ask: Any) -> Any:
        asked.append("claimed")
        assert ask["grant"] == gone[0]
        return await claimed(**ask)

    @bench.app.durable
    async def work() -> None: ...

    monkeypatch.setattr(store, "claim", lossy, raising=False)
    monkeypatch.setattr(store, "claimed", watched, raising=False)
    task = await bench.app.dispatch(work)
    async with bench.worker(lease_duration=30, heartbeat_interval=1.2):
        await task.result(timeout=10)
        assert asked[:3] == ["claim", "claimed", "claim"]
        # At once, twice soon, and with the next two renewals.
        await until(lambda: asked.count("claimed") == 5)


async def test_a_claim_that_was_granted_late_is_found_while_others_are_made(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its connection broke while it waited in the server; nobody asks in vain for ever."""
    store, late = await bench.store(), list[dict[str, Any]]()
    claim, ran = store.claim, list[int]()

    async def cut(**ask: Any) -> Any:
        if not late:
            late.append(ask)
            raise StoreUnreachable("cut")
        return await claim(**ask)

    @bench.app.durable
    async def work(number: int) -> int:
        ran.append(number)
        return number

    @bench.app.durable(queue="astray")
    async def lost() -> str:
        return "found"

    monkeypatch.setattr(store, "claim", cut, raising=False)
    await bench.app.dispatch(work, 0)
    async with bench.worker(queues=["default"], lease_duration=60):
        await until(lambda: ran == [0])
        task = await bench.app.dispatch(lost)
        lanes = (await store.lanes()).lanes
        there = [id for id, lane in lanes.items() if lane.queue == "astray"]
        answer = await claim(**late[0] | {"lanes": there, "turns": None})
        assert [one.lease.task for one in answer.tasks] == [task.id]
        assert await task.result(timeout=30) == "found"
    assert await bench.ends(task) == ["done"]
