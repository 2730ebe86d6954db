"""Bad input gets an error that says what to do, and nothing changes."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from holdfast.answers import WorkerRecord
from holdfast.errors import InvalidInput, PayloadRefused
from holdfast.tasks.limits import Rate
from holdfast.tasks.payload import encode
from holdfast.tasks.retry import RetryPolicy
from tests.contract.acts import WORKER, draft, put_one

BAD = {
    "a payload that is too large": (
        {"payload": b" " * (1024 * 1024 + 1)},
        "store the data elsewhere",
    ),
    "a payload that is a text": ({"payload": "text"}, "must be bytes"),
    "a payload that is nothing": ({"payload": None}, "must be bytes"),
    "a parent that is no id": ({"parent": "p"}, "must be UUIDs"),
    "a payload that is too deep": ({"payload": b"[" * 101 + b"]" * 101}, "flatten it"),
    "a very deep payload": ({"payload": b"[" * 100_000}, "flatten it"),
    "a key with a NUL": ({"key": "a\0b"}, "remove it"),
    "a key with half a surrogate pair": ({"key": "a\ud800b"}, "remove it"),
    "an empty key": ({"key": ""}, "1 to 255 characters"),
    "a long key": ({"key": "k" * 256}, "1 to 255 characters"),
    "a concurrency key with a NUL": ({"concurrency_key": "\0"}, "remove it"),
    "a negative delay": ({"delay": timedelta(seconds=-1)}, "leave it out to run now"),
    "a delay of centuries": ({"delay": timedelta(days=40_000)}, "at most 100 years"),
    "a negative expiry": ({"expires": timedelta(seconds=-1)}, "must not be negative"),
    "a time without a zone": ({"run_at": datetime(2030, 1, 1)}, "time zone"),  # noqa: DTZ001
    "a time and a delay": (
        {"run_at": datetime(2030, 1, 1, tzinfo=UTC), "delay": timedelta(1)},
        "instead of a delay",
    ),
    "a time that never comes": ({"run_at": datetime.max.replace(tzinfo=UTC)}, "run_at"),
    "a time before all times": (
        {"run_at": datetime.min.replace(tzinfo=timezone(timedelta(hours=14)))},
        "between the years 1970 and 9000",
    ),
    "a queue with a space": ({"queue": "my queue"}, "letters, digits"),
    "an empty queue": ({"queue": ""}, "letters, digits"),
    "a queue with a NUL": ({"queue": "q\0"}, "letters, digits"),
    "a long queue": ({"queue": "q" * 129}, "1 to 128"),
    "a tenant that is no name": ({"tenant": "a b"}, "letters, digits"),
    "a version that is no name": ({"version": "1 2"}, "letters, digits"),
    "a type that is no name": ({"type": "no name"}, "shop.orders:charge"),
    "a tag that is no name": ({"tags": ("a b",)}, "letters, digits"),
    "tags as one text": ({"tags": "abc"}, "list of names"),
    "too many tags": ({"tags": tuple(f"t{n:02}" for n in range(17))}, "at most 16"),
    "tags out of order": ({"tags": ("b", "a")}, "sorted"),
    "requirements out of order": ({"requires": ("b", "a")}, "sorted"),
    "a priority above its range": ({"priority": 32_001}, "-32000 to 32000"),
    "a priority below its range": ({"priority": -32_001}, "-32000 to 32000"),
    "a priority that is no number": ({"priority": 1.5}, "whole number"),
    "no tries": ({"max_tries": 0}, "1 to 32000"),
    "too many tries": ({"max_tries": 32_001}, "1 to 32000"),
    "a kind of uniqueness that is none": ({"unique": "always"}, "while_pending"),
}


@pytest.mark.parametrize(("fields", "advice"), BAD.values(), ids=BAD)
async def test_a_task_that_cannot_be_is_refused_at_the_door(store, dump, fields, advice):
    await put_one(store)
    before = await dump()
    with pytest.raises(InvalidInput, match=advice):
        await store.enqueue([draft(), draft(**fields)])
    assert await dump() == before


@pytest.mark.parametrize(
    "value",
    [float("nan"), float("inf"), [1, {"a": -float("inf")}], "half \ud800", object(), {1, object()}],
    ids=["nan", "infinity", "deep infinity", "surrogate", "object", "set of objects"],
)
async def test_values_that_are_no_json_are_refused(value):
    with pytest.raises(PayloadRefused):
        encode({"args": [value]})


@pytest.mark.parametrize(
    ("make", "advice"),
    [
        (lambda: RetryPolicy(max_attempts=0), "max_attempts"),
        (lambda: RetryPolicy(initial_delay=float("nan")), "initial_delay"),
        (lambda: RetryPolicy(initial_delay=-1.0, jitter=2.0), "initial_delay.*jitter"),
        (lambda: RetryPolicy(backoff_factor=0.5), "backoff_factor"),
        (lambda: Rate.parse("many"), "'100/m'"),
        (lambda: Rate(count=0, period=1.0, burst=1), "positive"),
        (lambda: Rate(count=5, period=1.0, burst=6), "burst"),
    ],
)
async def test_policies_and_rates_that_make_no_sense_are_refused(make, advice):
    with pytest.raises(InvalidInput, match=advice):
        make()


@pytest.mark.parametrize(
    "fields",
    [
        {"slots": 0},
        {"slots": 10**12},
        {"slots": 1.5},
        {"tasks_acquired": -1},
        {"tasks_recovered": 2**63},
        {"priority": 10**6},
        {"poll_interval": -0.1},
        {"loop_lag": float("nan")},
        {"lease": -1.0},
    ],
    ids=repr,
)
async def test_workers_that_cannot_be_are_refused(store, dump, fields):
    before = await dump()
    for tell in (store.register, store.beat):
        with pytest.raises(InvalidInput, match=r"whole number from|seconds from 0 on"):
            await tell(WorkerRecord(id=WORKER, name="w", **fields))
    assert await dump() == before
