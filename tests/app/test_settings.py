"""Nothing at all (0) is said too: it is refused, or means what it says."""

from datetime import timedelta
from typing import Any

import pytest

from holdfast import Holdfast, InvalidInput, config
from holdfast.app.serving import Served, _filters, _upkeeping

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
