"""The environment: names of ours, names of the seeds, faults all at once."""

from datetime import timedelta

import pytest

from holdfast import config
from holdfast.errors import InvalidInput


def test_nothing_said_is_nothing_set():
    assert config.read({}) == config.Config()


def test_the_names_of_the_seeds_are_understood():
    found = config.read(
        {
            "WORKER_LEASE_DURATION_SECONDS": "600",
            "WORKER_RECOVERY_INTERVAL_SECONDS": "30",
            "WORKER_POLL_MIN_INTERVAL_SECONDS": "0.2",
            "WORKER_POLL_MAX_INTERVAL_SECONDS": "10.0",
            "WORKER_MAX_RETRIES": "5",
            "WORKER_ID": "worker-1",
            "WORKER_MAX_JOBS": "3",
            "WORKER_TYPE": "email",
            "GROUP_ID": "email-group",
            "REDIS_URL": "redis://localhost",
            "DATABASE_URL": "postgresql://host/db",
        }
    )
    assert found.lease == timedelta(minutes=10)
    assert found.recovery_interval == timedelta(seconds=30)
    assert (found.poll_min, found.poll_max, found.max_tries) == (0.2, 10.0, 5)
    assert (found.worker_id, found.concurrency, found.worker_type) == ("worker-1", 3, "email")
    assert found.redis_url == "redis://localhost"
    assert found.store == "postgresql://host/db"
    assert found.origin["store"] == "DATABASE_URL"


@pytest.mark.parametrize(
    ("names", "slots"),
    [
        (["CONCURRENCY"], 1),
        (["CONCURRENCY", "MAX_CONCURRENT_JOBS"], 2),
        (["CONCURRENCY", "MAX_CONCURRENT_JOBS", "WORKER_MAX_JOBS"], 3),
        (["CONCURRENCY", "MAX_CONCURRENT_JOBS", "WORKER_MAX_JOBS", "HOLDFAST_CONCURRENCY"], 4),
    ],
)
def test_our_own_name_comes_before_those_of_others(names, slots):
    environ = {name: str(number) for number, name in enumerate(names, 1)}
    assert config.read(environ).concurrency == slots


def test_a_secret_may_stand_in_a_file(tmp_path):
    file = tmp_path / "url"
    file.write_text("postgresql://user:pass@host/db\n")
    assert config.read({"HOLDFAST_STORE_FILE": str(file)}).store == "postgresql://user:pass@host/db"


def test_a_file_that_is_not_there_is_named_without_a_guess(tmp_path):
    with pytest.raises(InvalidInput, match="HOLDFAST_STORE_FILE cannot be read"):
        config.read({"HOLDFAST_STORE_FILE": str(tmp_path / "no")})


def test_durations_are_read_as_people_write_them():
    found = config.read({"HOLDFAST_LEASE": "1m 30s", "HOLDFAST_RETENTION": "7d"})
    assert (found.lease, found.retention) == (timedelta(seconds=90), timedelta(days=7))


def test_lists_are_split_at_commas():
    found = config.read({"HOLDFAST_QUEUES": "mail, high", "HOLDFAST_TAGS": "b,a"})
    assert (found.queues, found.tags) == (("high", "mail"), ("a", "b"))


def test_all_faults_are_told_at_once():
    with pytest.raises(InvalidInput) as caught:
        config.read(
            {"WORKER_MAX_JOBS": "many", "HOLDFAST_LEASE": "soon", "HOLDFAST_AUTO_MIGRATE": "2"}
        )
    for name in ("WORKER_MAX_JOBS", "HOLDFAST_LEASE", "HOLDFAST_AUTO_MIGRATE"):
        assert name in str(caught.value)


def test_an_empty_variable_says_nothing():
    assert config.read({"HOLDFAST_STORE": " ", "DATABASE_URL": "sqlite:///x.db"}).store == (
        "sqlite:///x.db"
    )
