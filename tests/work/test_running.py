"""What becomes of a call: results, errors, retries, snoozes, timeouts."""

import asyncio
import threading
from datetime import timedelta
from typing import Any

import pytest

from holdfast import NonRetryable, RetryPolicy, Snooze, TaskFailed, current
from holdfast.tasks.task import TaskStatus
from tests.work.bench import Bench, until

SOON = RetryPolicy(initial_delay=0.01, jitter=0.0)


async def test_coroutines_and_sync_functions_give_their_results(bench: Bench) -> None:
    threads: list[str] = []

    @bench.app.durable
    async def add(a: int, b: int = 1) -> int:
        return a + b

    @bench.app.durable
    def shout(text: str) -> str:
        threads.append(threading.current_thread().name)
        return text.upper()

    async with bench.worker():
        first = await bench.app.dispatch(add, 1, b=41)
        second = await bench.app.dispatch(shout, "hey")
        assert await first.result(timeout=60) == 42
        assert await second.result(timeout=60) == "HEY"
    assert threads[0] != threading.current_thread().name


async def test_many_are_dispatched_at_once_and_each_runs_once(bench: Bench) -> None:
    seen: list[int] = []

    @bench.app.durable
    async def note(i: int) -> int:
        seen.append(i)
        return i

    async with bench.worker():
        tasks = await bench.app.dispatch_many([note.call(i) for i in range(300)])
        assert [await task.result(timeout=60) for task in tasks] == list(range(300))
    assert sorted(seen) == list(range(300))


async def test_code_that_does_not_await_can_dispatch_and_wait(bench: Bench) -> None:
    @bench.app.durable
    def double(i: int) -> int:
        return 2 * i

    def script() -> int:
        task = bench.app.dispatch_sync(double, 21)
        return int(bench.app.run_sync(task.result(timeout=60)))

    async with bench.worker():
        assert await asyncio.to_thread(script) == 42


async def test_a_failed_task_is_tried_again_until_its_tries_are_spent(bench: Bench) -> None:
    attempts: list[int] = []

    @bench.app.durable(
        retry_policy=RetryPolicy(max_attempts=4, initial_delay=0.05, backoff_factor=2, jitter=0)
    )
    async def fail() -> None:
        attempts.append(current().attempt)
        raise ValueError(f"no {current().attempt} of {current().max_tries}")

    async with bench.worker():
        task = await bench.app.dispatch(fail)
        with pytest.raises(TaskFailed, match="no 4 of 4") as failed:
            await task.result(timeout=60)
    assert failed.value.type == "ValueError"
    assert attempts == [1, 2, 3, 4]
    history = await bench.history(task)
    assert [one.ended for one in history] == ["retry", "retry", "retry", "failed"]
    # 0.05, then twice as much each time, and never before its time
    for before, after, pause in zip(history, history[1:], (0.05, 0.1, 0.2), strict=False):
        assert before.ended_at
        assert after.started_at
        assert after.started_at - before.ended_at >= timedelta(seconds=pause * 0.99)


async def test_only_errors_that_may_pass_are_tried_again(bench: Bench) -> None:
    policy = RetryPolicy(max_attempts=3, initial_delay=0.01, retry_for=(TimeoutError,))

    @bench.app.durable(retry_policy=policy)
    async def fail(how: str) -> None:
        raise {"passing": TimeoutError, "lasting": KeyError, "fatal": NonRetryable}[how](how)

    async with bench.worker():
        tasks = {how: await bench.app.dispatch(fail, how) for how in ("passing", "lasting")}
        for task in tasks.values():
            with pytest.raises(TaskFailed):
                await task.result(timeout=60)
    assert await bench.ends(tasks["passing"]) == ["retry", "retry", "failed"]
    assert await bench.ends(tasks["lasting"]) == ["failed"]


async def test_nonretryable_goes_straight_to_the_dead_letters(bench: Bench) -> None:
    @bench.app.durable(retry_policy=SOON)
    async def fail() -> None:
        raise NonRetryable("it never works")

    async with bench.worker():
        task = await bench.app.dispatch(fail)
        with pytest.raises(TaskFailed, match="it never works"):
            await task.result(timeout=60)
    assert [letter.id for letter in await bench.app.list_dead_letters()] == [task.id]


async def test_a_snooze_does_not_spend_an_attempt(bench: Bench) -> None:
    seen: list[tuple[int, int]] = []

    @bench.app.durable(max_tries=1)
    async def later() -> str:
        seen.append((current().attempt, current().fence))
        if len(seen) < 4:
            raise Snooze(0.02)
        return "now"

    async with bench.worker():
        task = await bench.app.dispatch(later)
        assert await task.result(timeout=60) == "now"
    assert [attempt for attempt, _ in seen] == [1, 1, 1, 1]
    fences = [fence for _, fence in seen]
    assert fences == sorted(set(fences)), "a fence only grows"


@pytest.mark.parametrize("delay", ["soonish", -1, "9999999d", None])
async def test_a_snooze_that_names_no_time_fails_its_task_and_frees_its_slot(
    bench: Bench, delay: Any
) -> None:
    @bench.app.durable(max_tries=1)
    async def later() -> None:
        raise Snooze(delay)

    @bench.app.durable
    async def fine() -> str:
        return "fine"

    async with bench.worker(max_concurrency=1):
        task = await bench.app.dispatch(later)
        with pytest.raises(TaskFailed):
            await task.result(timeout=60)
        assert await (await bench.app.dispatch(fine)).result(timeout=60) == "fine"


async def test_a_coroutine_that_runs_too_long_is_stopped(bench: Bench) -> None:
    stopped = asyncio.Event()

    @bench.app.durable(timeout=0.05, max_tries=1)
    async def hang() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    async with bench.worker():
        task = await bench.app.dispatch(hang)
        with pytest.raises(TaskFailed) as failed:
            await task.result(timeout=60)
    assert failed.value.type == "TimeoutError"
    assert stopped.is_set()


async def test_a_coroutine_that_swallows_its_timeout_has_failed_all_the_same(bench: Bench) -> None:
    @bench.app.durable(timeout=0.05, max_tries=1)
    async def hang() -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "I made it"
        return ""

    async with bench.worker():
        task = await bench.app.dispatch(hang)
        with pytest.raises(TaskFailed) as failed:
            await task.result(timeout=60)
    assert failed.value.type == "TimeoutError"


async def test_a_thread_that_runs_too_long_has_failed_and_its_end_is_not_heard(
    bench: Bench,
) -> None:
    go = threading.Event()

    @bench.app.durable(timeout=0.05, max_tries=1)
    def hang() -> str:
        go.wait(60)
        return "late"

    async with bench.worker():
        task = await bench.app.dispatch(hang)
        try:
            with pytest.raises(TaskFailed) as failed:
                await task.result(timeout=60)
        finally:
            go.set()
    assert failed.value.type == "TimeoutError"
    assert (await task.state()).status is TaskStatus.FAILED


async def test_results_that_cannot_be_stored_fail_at_once(bench: Bench) -> None:
    runs: list[str] = []

    @bench.app.durable(retry_policy=SOON)
    async def give(what: str) -> Any:
        runs.append(what)
        return {"object": object(), "nan": float("nan"), "huge": "x" * 200_000_000}[what]

    async with bench.worker():
        for what in ("object", "nan", "huge"):
            task = await bench.app.dispatch(give, what)
            with pytest.raises(TaskFailed):
                await task.result(timeout=60)
    assert runs == ["object", "nan", "huge"], "another try cannot mend it"


async def test_a_payload_that_no_longer_fits_the_signature_is_a_dead_letter(bench: Bench) -> None:
    @bench.app.durable(name="changed")
    async def before(a: int) -> int:
        return a

    other = bench.new_app()

    @other.durable(name="changed")
    async def after(a: int, b: str) -> int:
        return a

    task = await bench.app.dispatch(before, 1)
    async with bench.worker(other):
        with pytest.raises(TaskFailed) as failed:
            await task.result(timeout=60)
    assert "PayloadRefused" in failed.value.type
    assert await bench.ends(task) == ["failed"]


async def test_a_function_that_cancels_itself_has_failed(bench: Bench) -> None:
    @bench.app.durable(max_tries=1)
    async def odd() -> None:
        raise asyncio.CancelledError

    async with bench.worker(max_concurrency=1):
        task = await bench.app.dispatch(odd)
        with pytest.raises(TaskFailed):
            await task.result(timeout=60)


async def test_exits_and_interrupts_end_the_attempt_and_not_the_worker(bench: Bench) -> None:
    @bench.app.durable(max_tries=1)
    async def leave(how: str) -> None:
        raise {"exit": SystemExit, "interrupt": KeyboardInterrupt, "stop": StopIteration}[how](1)

    @bench.app.durable(max_tries=1)
    def leave_thread(how: str) -> None:
        raise {"exit": SystemExit, "interrupt": KeyboardInterrupt, "stop": StopIteration}[how](1)

    async with bench.worker(max_concurrency=1):
        for function in (leave, leave_thread):
            for how in ("exit", "interrupt", "stop"):
                task = await bench.app.dispatch(function, how)
                with pytest.raises(TaskFailed):
                    await task.result(timeout=60)


async def test_an_expired_task_is_not_started(bench: Bench) -> None:
    runs: list[int] = []

    @bench.app.durable(expires=0.02)
    async def fresh() -> None:
        runs.append(1)

    task = await bench.app.dispatch(fresh)
    store = await bench.store()

    async def has_expired() -> bool:
        return bool((await store.standing(task.id)).place != "ready") or await _age(bench) > 0.03

    await until(has_expired)
    async with bench.worker():
        with pytest.raises(TaskFailed) as failed:
            await task.result(timeout=60)
    assert failed.value.type == "Expired"
    assert not runs


async def _age(bench: Bench) -> float:
    loads = await (await bench.store()).queue_loads()
    return max((load.oldest_age or 0.0 for load in loads), default=0.0)


async def test_unknown_types_are_left_alone(bench: Bench) -> None:
    other = bench.new_app()

    @other.durable
    async def elsewhere() -> str:
        return "done elsewhere"

    @bench.app.durable
    async def here() -> str:
        return "done here"

    async with bench.worker():
        stranger = await other.dispatch(elsewhere)
        assert await (await bench.app.dispatch(here)).result(timeout=60) == "done here"
        state = await bench.app.state_of(stranger.id)
        assert (state.status, state.try_count) == (TaskStatus.PENDING, 0)
        async with bench.worker(other):
            assert await stranger.result(timeout=60) == "done elsewhere"


async def test_versions_run_on_the_code_that_they_were_made_for(bench: Bench) -> None:
    new = bench.new_app()

    @bench.app.durable(name="f", version="1")
    async def old_code() -> str:
        return "one"

    @new.durable(name="f", version="2")
    async def new_code() -> str:
        return "two"

    one, two = await bench.app.dispatch(old_code), await new.dispatch(new_code)
    async with bench.worker(new):
        assert await two.result(timeout=60) == "two"
        assert (await one.state()).status is TaskStatus.PENDING
        async with bench.worker():
            assert await one.result(timeout=60) == "one"


async def test_a_delayed_task_waits_for_its_time(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody polls for it; the chores are done at the start, and again in a minute."""
    monkeypatch.setattr("holdfast.upkeep.keeping.random.random", lambda: 0.0)

    @bench.app.durable
    async def now() -> None:
        return None

    async with bench.worker(poll_interval_max=3600.0, poll_interval=3600.0):
        task = await bench.app.dispatch(now.options(delay=0.3))
        await task.result(timeout=40)
    (only,) = await bench.history(task)
    created = (await task.state()).created_at
    assert only.started_at
    assert only.started_at - created >= timedelta(seconds=0.29)


async def test_one_idempotency_key_makes_one_task(bench: Bench) -> None:
    runs: list[int] = []

    @bench.app.durable
    async def pay(order: int) -> int:
        runs.append(order)
        return order

    once = pay.options(idempotency_key="order-7")
    async with bench.worker():
        tasks = await asyncio.gather(*(bench.app.dispatch(once, 7) for _ in range(8)))
        assert len({task.id for task in tasks}) == 1
        assert await tasks[0].result(timeout=60) == 7
        assert (await bench.app.dispatch(once, 7)).id == tasks[0].id
    assert runs == [7]


async def test_the_context_tells_of_its_attempt_and_its_effect_key_stays(bench: Bench) -> None:
    seen: list[tuple[Any, ...]] = []

    @bench.app.durable(retry_policy=SOON, queue="mail")
    async def look() -> None:
        me = current()
        seen.append((me.task_id, me.attempt, me.fence, me.queue, me.tenant, me.worker_id,
                     me.effect_key("smtp"), me.effect_key("sms"), me.max_tries))  # fmt: skip
        if me.attempt < 3:
            raise ValueError

    async with bench.worker(worker_id="looker"):
        task = await bench.app.dispatch(look.options(tenant="acme", max_tries=5))
        await task.result(timeout=60)
    assert [one[0] for one in seen] == [task.id] * 3
    assert [one[1] for one in seen] == [1, 2, 3]
    assert [one[2] for one in seen] == sorted({one[2] for one in seen})
    assert {one[3:6] for one in seen} == {("mail", "acme", "looker")}
    assert len({one[6] for one in seen}) == len({one[7] for one in seen}) == 1
    assert seen[0][6] != seen[0][7]
    assert {one[8] for one in seen} == {5}


async def test_what_an_attempt_saved_is_there_in_the_next(bench: Bench) -> None:
    seen: list[Any] = []

    @bench.app.durable(retry_policy=SOON)
    async def crawl() -> int:
        row = (await current().saved() or {"row": 0})["row"]
        seen.append(row)
        await current().progress(row / 3 * 100, f"row {row}", save={"row": row + 1})
        if row < 2:
            raise ConnectionError
        return int(row)

    async with bench.worker():
        task = await bench.app.dispatch(crawl)
        assert await task.result(timeout=60) == 2
    assert seen == [0, 1, 2]
    assert (await task.state()).progress_message == "row 2"


async def test_a_retry_policy_that_cannot_be_read_counts_as_none(bench: Bench) -> None:
    @bench.app.durable(retry_policy=RetryPolicy(initial_delay=0.01))
    async def work() -> int:
        return 1

    bad = await bench.app.dispatch(work)
    if bench.is_sqlite:
        bench._write("update task set policy = ? where id = ?", b'{"jitter": 7}', bad.id.bytes)
    else:
        bench._write("update holdfast.task set policy = %s where id = %s", b'{"jitter": 7}', bad.id)
    async with bench.worker(lease_duration=60):
        assert await bad.result(timeout=60) == 1
