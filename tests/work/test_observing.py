"""What a worker tells of itself: recorders, observers, logs."""

import asyncio
import io
import json
import logging
from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from holdfast import RetryPolicy, TaskFailed, current, install_structured_logging
from holdfast.observer import Observer
from holdfast.observers.log import JsonFormatter
from holdfast.observers.prometheus import PrometheusObserver
from holdfast.upkeep import chores
from tests.work.bench import Bench, until

FORMAT = (
    "%(message)s|%(holdfast_task_id)s|%(holdfast_attempt)s|%(holdfast_worker_id)s|"
    "%(holdfast_queue)s|%(holdfast_tenant)s|%(holdfast_root_id)s"
)


class Recorder:
    def __init__(self) -> None:
        self.calls: list[tuple[str, dict[str, Any]]] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return lambda **news: self.calls.append((name, news))

    def of(self, name: str) -> list[dict[str, Any]]:
        return [news for called, news in self.calls if called == name]


class Grumpy(Observer):
    """Raises whatever it hears."""

    def __getattribute__(self, name: str) -> Any:
        def grumble(*_: Any) -> None:
            raise RuntimeError(name)

        names = ("claimed", "settled", "renewed", "renewal_failed", "recovered", "rested")
        return grumble if name in names else super().__getattribute__(name)


async def test_a_recorder_hears_of_claims_ends_and_renewals(bench: Bench) -> None:
    recorder = Recorder()
    app = bench.new_app(metrics=recorder)

    @app.durable(name="work", queue="mail", retry_policy=RetryPolicy(initial_delay=0.01))
    async def work(fail: bool) -> None:
        if fail:
            raise KeyError("x")
        await until(lambda: recorder.of("lease_renewed"))

    async with bench.worker(app):
        good = await app.dispatch(work, False)
        bad = await app.dispatch(work.options(max_tries=2), True)
        await good.result(timeout=60)
        with pytest.raises(TaskFailed):
            await bad.result(timeout=60)
    kind = {"queue": "mail", "step_name": "work", "kind": "task"}
    assert recorder.of("task_claimed") == [kind] * 3
    (completed,) = recorder.of("task_completed")
    assert 0 < completed.pop("duration_s") < 60
    assert completed == kind
    failure = {**kind, "reason": "KeyError"}
    assert recorder.of("task_failed") == [
        {**failure, "retrying": True},
        {**failure, "retrying": False},
    ]
    assert recorder.of("dead_lettered") == [failure]
    assert {"task_id": str(good.id), "success": True} in recorder.of("lease_renewed")
    assert all(news["success"] for news in recorder.of("lease_renewed"))


async def lose(bench: Bench, task: UUID) -> None:
    """A worker takes it, and is never heard of again."""
    store = await bench.store()
    lanes = list((await store.lanes()).lanes)
    answer = await store.claim(worker=7, lanes=lanes, want=1, lease=timedelta(minutes=1))
    assert [one.lease.task for one in answer.tasks] == [task]
    bench.lapse(task)


LETTER = {"queue": "mail", "step_name": "work", "kind": "task", "reason": "WorkerLost"}


async def test_a_dead_letter_made_by_recovery_is_told_by_who_recovers(bench: Bench) -> None:
    recorder, board = Recorder(), PrometheusObserver()
    app = bench.new_app(metrics=recorder, observers=[board])

    @app.durable(name="work", queue="mail", max_tries=1)
    async def work() -> None: ...

    task = await app.dispatch(work)
    await lose(bench, task.id)
    async with bench.worker(app, recovery_interval=0.05):
        await until(lambda: recorder.of("dead_lettered"))
    assert recorder.of("dead_lettered") == [LETTER]
    assert recorder.of("task_failed") == [{**LETTER, "retrying": False}]
    labels = {"outcome": "failed", "queue": "mail", "type": "work"}
    assert board.registry.get_sample_value("holdfast_tasks_settled_total", labels) == 1


async def test_a_dead_letter_made_by_expiry_is_told_by_who_sweeps(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chores, "_NET", 0.05)
    recorder, board = Recorder(), PrometheusObserver()
    app = bench.new_app(metrics=recorder, observers=[board])

    @app.durable(name="work", queue="mail")
    async def work() -> None: ...

    await app.dispatch(work.options(expires=0.001))
    async with bench.worker(app, queues=["other"]):
        await until(lambda: recorder.of("dead_lettered"))
    expired = {**LETTER, "reason": "Expired"}
    assert recorder.of("dead_lettered") == [expired]
    assert recorder.of("task_failed") == [{**expired, "retrying": False}]
    labels = {"outcome": "failed", "queue": "mail", "type": "work"}
    assert board.registry.get_sample_value("holdfast_tasks_settled_total", labels) == 1


async def test_a_dead_letter_made_by_hand_is_told_by_that_process(bench: Bench) -> None:
    recorder = Recorder()
    app = bench.new_app(metrics=recorder)

    @app.durable(name="work", queue="mail", max_tries=1)
    async def work() -> None: ...

    task = await app.dispatch(work)
    await lose(bench, task.id)
    assert await app.reset_expired_leases() == 1
    assert recorder.of("dead_lettered") == [LETTER]


async def test_an_observer_that_raises_harms_nobody(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    recorder = Recorder()
    app = bench.new_app(observers=[Grumpy()], metrics=recorder)

    @app.durable
    async def work() -> str:
        await until(lambda: recorder.of("lease_renewed"))
        return "fine"

    async with bench.worker(app):
        for _ in range(2):
            assert await (await app.dispatch(work)).result(timeout=60) == "fine"
    assert recorder.of("task_completed")
    said = [r for r in caplog.records if "Grumpy.settled failed" in r.getMessage()]
    assert len(said) == 1, "said once, not for every task"


@pytest.fixture
def own_records() -> Iterator[None]:
    before = logging.getLogRecordFactory()
    yield
    logging.setLogRecordFactory(before)


@pytest.mark.usefixtures("own_records")
async def test_records_know_their_task_and_have_empty_fields_outside(bench: Bench) -> None:
    install_structured_logging()
    install_structured_logging()
    out = io.StringIO()
    handler = logging.StreamHandler(out)
    handler.setFormatter(logging.Formatter(FORMAT))
    mine = logging.getLogger("tests.mine")
    mine.addHandler(handler)
    mine.setLevel(logging.INFO)

    @bench.app.durable(queue="mail")
    async def aloud() -> None:
        mine.info("coroutine")
        await asyncio.sleep(0)
        current().logger.info("own")

    @bench.app.durable(queue="mail")
    def thread() -> None:
        mine.info("thread")

    try:
        async with bench.worker(worker_id="w"):
            mine.info("outside")
            one = await bench.app.dispatch(aloud.options(tenant="acme"))
            two = await bench.app.dispatch(thread)
            await one.result(timeout=60)
            await two.result(timeout=60)
            mine.info("outside again")
    finally:
        mine.removeHandler(handler)
    lines = dict(line.split("|", 1) for line in out.getvalue().splitlines())
    assert lines["outside"] == lines["outside again"] == "|||||"
    assert lines["coroutine"] == f"{one.id}|1|w|mail|acme|{one.id}"
    assert lines["thread"] == f"{two.id}|1|w|mail|default|{two.id}"


@pytest.mark.usefixtures("own_records")
def test_json_lines_carry_message_error_and_fields() -> None:
    install_structured_logging()
    out = io.StringIO()
    logger = logging.Logger("tests.json")
    handler = logging.StreamHandler(out)
    logger.addHandler(handler)
    install_structured_logging(logger, as_json=True)
    assert isinstance(handler.formatter, JsonFormatter)
    try:
        raise ValueError("no")
    except ValueError:
        logger.exception("it %s", "broke")
    (line,) = out.getvalue().splitlines()
    told = json.loads(line)
    assert (told["level"], told["logger"], told["message"]) == ("ERROR", "tests.json", "it broke")
    assert "ValueError: no" in told["exception"]
    assert "holdfast_task_id" not in told


@pytest.mark.usefixtures("own_records")
async def test_for_whom_a_task_runs_is_in_no_log(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    install_structured_logging()

    @bench.app.durable(retry_policy=RetryPolicy(max_attempts=2, initial_delay=0.01))
    async def work() -> None:
        current().logger.info("begun")
        raise ValueError("no way")

    async with bench.worker():
        task = await bench.app.dispatch(work.options(user_id="ann-of-these-tests"))
        with pytest.raises(TaskFailed):
            await task.result(timeout=60)
    told = [str(vars(record)) for record in caplog.records]
    assert sum("begun" in one and str(task.id) in one for one in told) == 2
    assert not [one for one in told if "ann-of-these-tests" in one]


async def test_failures_and_recoveries_are_log_events(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    @bench.app.durable(max_tries=1)
    async def work() -> None:
        raise ValueError("no way")

    async with bench.worker():
        task = await bench.app.dispatch(work)
        with pytest.raises(TaskFailed):
            await task.result(timeout=60)
    errors = [r.getMessage() for r in caplog.records if r.levelno == logging.ERROR]
    assert len(errors) == 1
    assert str(task.id) in errors[0]
    assert "no way" in errors[0]
