"""Nothing at all (0) is said too: it is refused, or means what it says."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from holdfast import Holdfast, InvalidInput, UnknownTask, config
from holdfast.app.serving import Served, _filters, _upkeeping
from holdfast.ids import new_id

ZEROS = [
    ("max_concurrency", 0),
    ("poll_interval", 0.0),
    ("poll_interval_max", 0.0),
    ("poll_backoff_factor", 0.0),
    ("lease_duration", 0),
    ("heartbeat_interval", 0),
    ("recovery_interval", 0),
    ("cleanup_interval", 0),
    ("stuck_after", "0s"),
    ("on_stuck", ""),
]


@pytest.mark.parametrize(("name", "nothing"), ZEROS)
async def test_a_worker_is_refused_what_cannot_be_nothing(name: str, nothing: Any) -> None:
    async with Holdfast("sqlite://:memory:") as app:
        with pytest.raises(InvalidInput):
            await app.serve(**{name: nothing})


WRONG = [
    ("max_concurrency", "5", "a whole number from 1 to 100000, got '5'"),
    ("max_concurrency", 2.0, "a whole number"),
    ("poll_interval", "fast", "a number, got 'fast'"),
    ("poll_interval_max", timedelta(seconds=5), "a number"),
    ("poll_backoff_factor", True, "a number, got True"),
    ("lease_duration", "soon", "not a span of time"),
    ("worker_priority", "high", "a whole number"),
    ("health_port", 99_999, "a whole number from 0 to 65535, got 99999"),
    ("worker_id", 7, "a text, got 7"),
    ("queues", "mail", "a list of names, not the string 'mail'"),
    ("queues", [], "an empty list; name some queues, or leave it out for all"),
    ("tags", [], "an empty list"),
    ("tenants", [], "an empty list"),
]


@pytest.mark.parametrize(("name", "wrong", "said"), WRONG)
async def test_what_is_no_setting_is_refused_by_name(name: str, wrong: Any, said: str) -> None:
    async with Holdfast("sqlite://:memory:") as app:
        with pytest.raises(InvalidInput, match=said) as refused:
            await app.serve(**{name: wrong})
        assert name.removesuffix("s") in str(refused.value)
        assert await (await app.desk()).workers() == []


@pytest.mark.parametrize("size", [0, "5", 1001, True])
def test_a_pool_of_no_size_is_refused(size: Any) -> None:
    with pytest.raises(InvalidInput, match="pool_size must be a whole number from 1 to 1000"):
        Holdfast("sqlite://:memory:", pool_size=size)
    with pytest.raises(InvalidInput, match="HOLDFAST_POOL_SIZE"):
        config.read({"HOLDFAST_POOL_SIZE": f"{size}x"})


async def test_options_of_a_worker_that_was_not_asked_for_are_refused() -> None:
    with pytest.raises(InvalidInput, match=r"max_concurrency of bootstrap.* give serve=True too"):
        async with Holdfast.bootstrap("sqlite://:memory:", max_concurrency=5):
            pass


async def test_a_signal_to_a_task_that_nobody_knows_is_refused() -> None:
    async with Holdfast("sqlite://:memory:") as app:
        with pytest.raises(UnknownTask, match="no such task"):
            await app.send_signal(new_id(), "go")


@pytest.mark.parametrize("at", ["tomorrow", datetime(2030, 1, 1), 7])  # noqa: DTZ001
def test_a_time_that_is_none_is_refused_where_it_is_written(at: Any) -> None:
    app = Holdfast("sqlite://:memory:")

    @app.durable
    async def send() -> None: ...

    with pytest.raises(InvalidInput, match="run_at must be a datetime with a time zone"):
        send.options(run_at=at)
    with pytest.raises(InvalidInput, match="max_tries must be a whole number from 1"):
        send.options(max_tries=0)


@pytest.mark.parametrize("name", ["poll_min_interval", "poll_max_interval", "poll_backoff_factor"])
async def test_an_app_is_refused_to_poll_without_a_pause(name: str) -> None:
    async with Holdfast("sqlite://:memory:", **{name: 0.0}) as app:  # type: ignore[arg-type]
        with pytest.raises(InvalidInput):
            await app.serve()


def test_a_retention_of_nothing_forgets_at_once() -> None:
    app = Holdfast("sqlite://:memory:")
    kept = _upkeeping(app, Served(retention_period=0, dead_letter_retention=0))
    assert (kept.retention, kept.dead_letter_retention) == (timedelta(0), timedelta(0))


@pytest.mark.parametrize(
    "name",
    [
        "CONCURRENCY",
        "WORKER_MAX_RETRIES",
        "WORKER_LEASE_DURATION_SECONDS",
        "WORKER_RECOVERY_INTERVAL_SECONDS",
        "WORKER_POLL_MIN_INTERVAL_SECONDS",
        "WORKER_POLL_MAX_INTERVAL_SECONDS",
        "HOLDFAST_HEARTBEAT_INTERVAL",
        "HOLDFAST_CLEANUP_INTERVAL",
        "HOLDFAST_STUCK_AFTER",
    ],
)
def test_the_environment_is_refused_what_cannot_be_nothing(name: str) -> None:
    with pytest.raises(InvalidInput, match=name):
        config.read({name: "0"})


def test_a_worker_type_is_the_queue_of_its_name_unless_queues_are_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def queues(**wanted: Any) -> Any:
        return _filters(Holdfast("sqlite://:memory:"), Served(**wanted)).queues

    assert queues() is None
    monkeypatch.setenv("WORKER_TYPE", "intake")
    assert queues() == {"intake"}
    monkeypatch.setenv("HOLDFAST_QUEUES", "triage")
    assert queues() == {"triage"}
    assert queues(queues=["policy"]) == {"policy"}
