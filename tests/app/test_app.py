"""How an app is made, what it does with tasks, and what it says of them."""

import asyncio
import threading
from contextvars import ContextVar
from datetime import timedelta
from typing import Any

import pytest

from holdfast import (
    Holdfast,
    InvalidInput,
    LeaseLost,
    NonRetryable,
    RetryPolicy,
    TaskCancelled,
    TaskFailed,
    UnknownTask,
    current,
    durable,
)
from holdfast.app import operating
from holdfast.app.home import plain_url
from holdfast.errors import HoldfastError, StoreUnreachable
from holdfast.executors import places
from holdfast.stores.opening import open_store
from tests.app.conftest import until
from tests.contract.acts import claim


@durable
async def add(a: int, b: int = 1) -> int:
    return a + b


@Holdfast.durable(queue="sync", tags=["x"])
def double(value: int) -> int:
    return 2 * value


@durable(retry_policy=RetryPolicy(max_attempts=1))
async def fail(text: str) -> None:
    raise ValueError(text)


@durable
async def wait_for_ever() -> None:
    await asyncio.Event().wait()


async def is_running(task):
    return (await task.state()).status == "running"


async def test_a_task_is_dispatched_run_and_awaited(serving):
    async with serving() as app:
        task = await app.dispatch(add, 1, b=2)
        assert await task.result(timeout=60) == 3
        state = await task.state()
        assert (state.status, state.try_count, state.type) == ("done", 1, "tests.app.test_app:add")


async def test_sync_functions_and_options(serving):
    async with serving() as app:
        task = await app.dispatch(double.options(queue="vip", priority=9, tags=["y"]), 21)
        assert await task.result(timeout=60) == 42
        state = await task.state()
        assert (state.queue, state.priority, state.tags) == ("vip", 9, ("y",))


async def test_many_go_in_one_call_and_keep_their_order(serving):
    async with serving(max_concurrency=50) as app:
        tasks = await app.dispatch_many([add.call(i) for i in range(300)])
        assert [await task.result(timeout=60) for task in tasks] == list(range(1, 301))


async def test_code_that_does_not_await_dispatches_too(serving):
    async with serving() as app:
        task = await asyncio.to_thread(app.dispatch_sync, add, 4)
        ending = await asyncio.to_thread(app.run_sync, task.result(timeout=60))
        assert ending == 5


async def test_a_failure_comes_as_data(serving):
    async with serving() as app:
        task = await app.dispatch(fail, "no such thing")
        with pytest.raises(TaskFailed, match="no such thing") as caught:
            await task.result(timeout=60)
        assert caught.value.type == "ValueError"
        assert "in fail" in (caught.value.traceback or "")


async def test_dead_letters_are_listed_replayed_and_discarded(serving):
    async with serving() as app:
        task = await app.dispatch(fail, "once")
        with pytest.raises(TaskFailed):
            await task.result(timeout=60)
        assert [letter.id for letter in await app.list_dead_letters()] == [task.id]
        assert await app.replay_dead_letter(task)
        with pytest.raises(TaskFailed):
            await task.result(timeout=60)
        assert await app.discard_dead_letter(task.id)
        assert await app.list_dead_letters() == []
        with pytest.raises(UnknownTask):
            await task.state()


async def test_dead_letters_are_walked_page_by_page(serving):
    async with serving(max_concurrency=10) as app:
        for task in await app.dispatch_many([fail.call(str(i)) for i in range(5)]):
            with pytest.raises(TaskFailed):
                await task.result(timeout=60)
        whole = await app.list_dead_letters()
        assert whole.next is None
        first = await app.list_dead_letters(limit=3)
        rest = await app.list_dead_letters(limit=3, cursor=first.next)
        assert ([*first, *rest], len(whole), rest.next) == (whole, 5, None)


async def test_all_leases_are_answered_or_as_many_as_wanted(url, monkeypatch):
    monkeypatch.setattr(operating, "_PAGE", 2)
    async with Holdfast.bootstrap(url) as app:
        await app.dispatch_many([add.call(i) for i in range(5)])
        store = await open_store(url)
        await claim(store, 5)
        await store.close()
        whole = await app.active_leases()
        assert len({lease.task for lease in whole}) == 5
        assert whole == sorted(whole, key=lambda lease: lease.lease_timeout)
        assert [lease.task for lease in await app.active_leases(limit=3)] == [
            lease.task for lease in whole[:3]
        ]
        with pytest.raises(InvalidInput, match="page"):
            await app.active_leases(limit=0)


async def test_a_task_that_has_not_started_never_starts_once_cancelled(serving):
    async with serving() as app:
        task = await app.dispatch(add.options(delay="1h"), 1)
        assert await task.cancel() == "cancelled"
        with pytest.raises(TaskCancelled):
            await task.result(timeout=60)


async def test_what_has_not_begun_is_changed(serving):
    async with serving() as app:
        task = await app.dispatch(add.options(delay="1h", max_tries=2), 1)
        assert await app.edit(task, priority=7, tags=["b", "a"], expires="2h")
        state = await task.state()
        assert (state.priority, state.tags, state.max_tries) == (7, ("a", "b"), 2)
        assert state.expires_at is not None
        with pytest.raises(InvalidInput, match="say what to change"):
            await app.edit(task)
        with pytest.raises(InvalidInput, match="delay"):
            await app.edit(task, priority=1, delay="soon")
        with pytest.raises(InvalidInput, match="tags must be a list"):
            await app.edit(task, tags=None)
        assert (await task.state()).priority == 7
        assert await app.edit(str(task.id), delay=0, expires=None)
        assert await task.result(timeout=60) == 2
        assert not await app.edit(task, priority=1), "it has ended"


async def test_a_running_task_is_told_to_cancel_long_before_the_next_heartbeat(serving):
    async with serving(lease_duration="60s") as app:
        task = await app.dispatch(wait_for_ever)
        await until(lambda: is_running(task))
        assert await app.cancel(task) in ("requested", "cancelled")
        with pytest.raises(TaskCancelled):
            await task.result(timeout=60)


async def test_what_ended_before_the_time_was_over_is_known(serving, monkeypatch):
    """However long the pause between two looks."""
    monkeypatch.setattr("holdfast.client._FIRST_LOOK", 60.0)
    monkeypatch.setattr("holdfast.client._LONGEST_PAUSE", 60.0)
    async with serving() as app:
        task = await app.dispatch(add, 1, 2)
        assert await task.result(timeout=3) == 3


async def test_queues_are_paused_counted_and_resumed(serving):
    async with serving() as app:
        await app.pause_queue("sync")
        task = await app.dispatch(double, 1)
        assert await app.queue_depth("sync") == await app.queue_depth() == 1
        (reason, *_) = await app.explain(task)
        assert reason.why == "queue 'sync' is paused"
        assert 'app.resume_queue("sync")' in reason.advice
        await app.resume_queue("sync")
        assert await task.result(timeout=60) == 2
        assert await app.queue_depth() == 0


async def test_bad_calls_fail_in_the_caller_and_change_nothing(serving):
    async with serving() as app:
        for args, words in (((), "missing"), ((1, 2, 3), "too many"), (("x",), "int")):
            with pytest.raises(InvalidInput, match=words):
                await app.dispatch(add, *args)
        with pytest.raises(InvalidInput, match="not a durable function"):
            await app.dispatch(len, [])
        with pytest.raises(InvalidInput, match="not the id"):
            await app.cancel("nobody")
        assert (await app.list_tasks()).tasks == []


async def test_an_id_that_nobody_knows_is_not_awaited_for_ever(serving):
    async with serving() as app:
        with pytest.raises(UnknownTask):
            await app.wait_for("00000000-0000-7000-8000-000000000000", timeout=60)


async def test_waiting_has_an_end(serving):
    async with serving() as app:
        task = await app.dispatch(add.options(delay="1h"), 1)
        with pytest.raises(TimeoutError):
            await task.result(timeout=0.05)


async def test_progress_is_for_the_attempt_itself(serving):
    async with serving() as app:

        @app.durable
        async def report(name: str) -> None:
            await app.update_progress(current().task_id, 50, name)

        task = await app.dispatch(report, "half way")
        await task.result(timeout=60)
        with pytest.raises(LeaseLost):
            await app.update_progress(task.id, 60)


def test_an_app_takes_the_spelling_of_the_seed(tmp_path):
    app = Holdfast(
        backend=Holdfast.backends.SQLiteBackend(tmp_path / "workflow.db"),
        notification_backend=Holdfast.notifications.RedisBackend("redis://localhost:6379"),
        poll_min_interval=0.1,
        poll_max_interval=3.0,
        poll_backoff_factor=1.5,
    )
    assert app.home.url == f"sqlite:///{tmp_path}/workflow.db?synchronous=full"
    assert app.polling == (0.1, 3.0, 1.5)


async def test_init_db_may_be_done_again(url):
    kind = Holdfast.backends.SQLiteBackend if "sqlite" in url else Holdfast.backends.PostgresBackend
    backend = kind(url.removeprefix("sqlite:///"))
    await backend.init_db()
    await backend.init_db()
    async with Holdfast(backend=backend) as app:
        assert await app.queue_depth() == 0


def test_the_environment_names_the_store(monkeypatch, tmp_path):
    monkeypatch.delenv("HOLDFAST_STORE", raising=False)
    monkeypatch.setenv("DATABASE_URL", "postgresql+psycopg://u:secret@host/db")
    assert Holdfast().home.url == "postgresql://u:secret@host/db"
    assert "secret" not in Holdfast().home.name
    monkeypatch.setenv("DATABASE_URL", "mysql://host/db")
    assert Holdfast().home.url == "sqlite:///holdfast.db"
    monkeypatch.setenv("HOLDFAST_STORE", "sqlite:///mine.db")
    assert Holdfast().home.url == "sqlite:///mine.db"


def test_two_stores_are_one_too_many():
    with pytest.raises(InvalidInput, match="not both"):
        Holdfast("sqlite:///a.db", backend=Holdfast.backends.SQLiteBackend("b.db"))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"max_concurrency": 0.5}, "max_concurrency"),
        ({"lease_duration": "1ms"}, "lease_duration"),
        ({"lease_duration": "10s", "heartbeat_interval": "9s"}, "heartbeat_interval"),
        ({"poll_interval": 5.0, "poll_interval_max": 1.0}, "polling"),
        ({"queues": "mail"}, "list of names"),
        ({"lease_duration": "soon"}, "span of time"),
    ],
)
async def test_serve_refuses_what_cannot_be(options, words):
    with pytest.raises(InvalidInput, match=words):
        await Holdfast("sqlite://:memory:").serve(**options)


async def test_a_function_of_one_app_is_unknown_to_another(url):
    one, other = Holdfast(url), Holdfast(url)

    @one.durable(name="mine")
    async def mine() -> None: ...

    assert ("mine", "") in one.functions.all()
    assert ("mine", "") not in other.functions.all()


async def test_two_loops_that_open_memory_at_once_share_it(monkeypatch):
    app = Holdfast("sqlite://:memory:")
    real, coming = app.home._store, threading.Event()

    async def slow(*args, **kwargs):
        await asyncio.to_thread(coming.wait, 10)
        await asyncio.sleep(0.1)  # in which the other one arrives
        return await real(*args, **kwargs)

    async def other():
        coming.set()
        return await app.home.client()

    monkeypatch.setattr(app.home, "_store", slow)
    mine, theirs = await asyncio.gather(app.home.client(), asyncio.to_thread(app.run_sync, other()))
    assert mine.store is theirs.store
    await app.close()


async def test_memory_that_could_not_be_opened_is_opened_by_the_next_who_asks(monkeypatch):
    app = Holdfast("sqlite://:memory:")
    real, tries = app.home._store, []

    async def failing(*args, **kwargs):
        tries.append(1)
        if len(tries) == 1:
            raise StoreUnreachable("not now")
        return await real(*args, **kwargs)

    monkeypatch.setattr(app.home, "_store", failing)
    with pytest.raises(StoreUnreachable):
        await app.home.client()
    await app.home.client()
    assert len(tries) == 2
    await app.close()


async def test_a_worker_that_stopped_hears_no_more_hints(tmp_path):
    async with Holdfast(f"sqlite:///{tmp_path}/app.db") as app:
        for _ in range(2):
            lifecycle = app.create_worker_lifecycle()
            working = asyncio.create_task(app.serve(lifecycle=lifecycle))
            await lifecycle.wait_until_ready()
            notifier: Any = app.home.notifier()
            assert len(notifier._ear._listeners) == 1
            lifecycle.request_drain()
            await working
            assert notifier._ear._listeners == []


async def test_memory_lives_as_long_as_its_app():
    async with Holdfast.bootstrap("sqlite://:memory:", serve=True) as app:
        assert await (await app.dispatch(add, 1)).result(timeout=60) == 2


async def test_errors_that_another_try_cannot_mend_fail_at_once(serving):
    @durable(name="hopeless")
    async def hopeless() -> None:
        raise NonRetryable("give up")

    async with serving() as app:
        task = await app.dispatch(hopeless)
        with pytest.raises(TaskFailed, match="give up"):
            await task.result(timeout=timedelta(seconds=60))
        assert (await task.state()).try_count == 1


async def test_a_function_that_cancels_itself_spends_its_tries(serving):
    async with serving() as app:
        runs = 0

        @app.durable(max_tries=2, retry_policy=RetryPolicy(initial_delay=0.01))
        async def quits() -> None:
            nonlocal runs
            runs += 1
            task = asyncio.current_task()
            assert task
            task.cancel()
            await asyncio.sleep(0)

        with pytest.raises(TaskFailed, match="Cancelled"):
            await (await app.dispatch(quits)).result(timeout=60)
        assert runs == 2


async def test_what_a_function_leaves_in_its_context_reaches_no_other(serving):
    tenant: ContextVar[str] = ContextVar("tenant", default="")
    async with serving(max_concurrency=4) as app:

        @app.durable
        async def leaves(name: str) -> str:
            seen = tenant.get()
            tenant.set(name)
            await asyncio.sleep(0.001)
            return seen

        tasks = await app.dispatch_many([leaves.call("acme") for _ in range(60)])
        assert {await task.result(timeout=60) for task in tasks} == {""}


async def test_closing_an_app_drains_its_workers(url):
    app = Holdfast(url)
    await app.__aenter__()
    lifecycle = app.create_worker_lifecycle()
    working = asyncio.create_task(app.serve(lifecycle=lifecycle))
    await lifecycle.wait_until_ready()
    await app.close()
    assert lifecycle.state == "stopped"
    await asyncio.wait_for(working, 60)


async def test_a_lifecycle_is_good_for_one_worker(url):
    async with Holdfast(url) as app:
        lifecycle = app.create_worker_lifecycle()
        working = asyncio.create_task(app.serve(lifecycle=lifecycle))
        await lifecycle.wait_until_ready()
        with pytest.raises(HoldfastError, match=r"is ready already; make another one"):
            await app.serve(lifecycle=lifecycle)
        assert lifecycle.state == "ready"
        lifecycle.request_drain()
        await working
        with pytest.raises(HoldfastError, match=r"is stopped already; make another one"):
            await app.serve(lifecycle=lifecycle)


async def test_settings_that_cannot_be_do_not_keep_anybody_waiting(url):
    app = Holdfast(url)
    lifecycle = app.create_worker_lifecycle()
    with pytest.raises(InvalidInput):
        await app.serve(lifecycle=lifecycle, lease_duration="1ms")
    with pytest.raises(HoldfastError, match=r"stopped before it was ready: .*lease_duration"):
        await asyncio.wait_for(lifecycle.wait_until_ready(), 60)
    assert lifecycle.state == "stopped"


async def test_a_name_that_cannot_be_does_not_keep_anybody_waiting(url):
    app = Holdfast(url)
    lifecycle = app.create_worker_lifecycle()
    wrong: Any = 7
    with pytest.raises(InvalidInput, match="worker_id must be a text"):
        await app.serve(lifecycle=lifecycle, worker_id=wrong)
    with pytest.raises(HoldfastError, match=r"stopped before it was ready: .*worker_id"):
        await asyncio.wait_for(lifecycle.wait_until_ready(), 60)


async def test_a_worker_of_a_program_that_a_child_imports_does_not_keep_anybody_waiting(
    url, monkeypatch
):
    monkeypatch.setattr(places, "_importing", {"shop.py"})
    app = Holdfast(url)
    lifecycle = app.create_worker_lifecycle()
    with pytest.raises(HoldfastError, match=r"shop\.py is imported by a child process"):
        await app.serve(lifecycle=lifecycle)
    with pytest.raises(HoldfastError, match=r"stopped before it was ready: .*shop\.py"):
        await asyncio.wait_for(lifecycle.wait_until_ready(), 60)


@pytest.mark.parametrize("secret", ["se?cret", "se/cret", "se@cret", "plain"])
def test_no_part_of_a_password_is_shown(secret):
    assert plain_url(f"postgresql://user:{secret}@host/db?schema=x") == "postgresql://host/db"
