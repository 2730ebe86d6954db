"""The log of a worker: claims, renewals, lost leases and recoveries, a line for each batch."""

import logging

import msgspec
import pytest

from holdfast.answers import Recovered
from holdfast.clock import ManualClock
from holdfast.ids import new_grant, new_id
from holdfast.observer import Ended
from holdfast.observers.log import LogObserver, TextFormatter
from holdfast.tasks.lane import Lane
from holdfast.tasks.lifecycle import Settlement, Verdict
from holdfast.tasks.task import Claimed, Failure, Lease, TaskStatus

TASK = "01936f2e-8c3a-7b52-9d41-3f6f2a7c1e90"


def some(number: int, type: str = "shop:send") -> list[Claimed]:
    lane = Lane(queue="mail", type=type)
    return [
        Claimed(
            lease=Lease(new_id(), new_grant(), 4), lane=lane, priority=0, tries=2, payload=b"null"
        )
        for _ in range(number)
    ]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def observer(clock: ManualClock, caplog: pytest.LogCaptureFixture) -> LogObserver:
    caplog.set_level(logging.INFO, "holdfast.worker")
    return LogObserver("w", clock)


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture):
    def told() -> list[str]:
        found = [record.getMessage() for record in caplog.records]
        caplog.clear()
        return found

    return told


def test_a_few_claims_are_named_one_by_one(observer, lines):
    first, second = some(2)
    observer.claimed([first, second])
    assert lines() == [
        f"worker w claimed task {one.lease.task} (shop:send), try 2, fence 4"
        for one in (first, second)
    ]


def test_many_claims_are_one_line_a_second(observer, lines, clock):
    observer.claimed([*some(300), *some(20, "shop:charge")])
    assert lines() == ["worker w claimed 320 tasks: 300 x shop:send, 20 x shop:charge"]
    for _ in range(1000):
        observer.claimed(some(1))
    assert lines() == []
    clock.advance(1)
    observer.claimed(some(1))
    assert lines() == ["worker w claimed 1001 tasks: 1001 x shop:send"]
    observer.claimed(some(9))
    observer.rested(1.0)  # nothing more comes: none stays untold
    observer.rested(1.0)
    assert lines() == ["worker w claimed 9 tasks: 9 x shop:send"]
    observer.claimed(some(1))
    observer.renewed([], frozenset())  # all slots are taken: nothing is looked for
    assert [line.startswith("worker w claimed task ") for line in lines()] == [True]


def test_a_renewal_is_one_line_and_a_lost_lease_is_named(observer, lines, caplog):
    ids = [new_id() for _ in range(12)]
    observer.renewed(ids, frozenset())
    assert lines() == ["worker w renewed 12 leases"]
    observer.renewed([], frozenset(ids[:1]))
    assert caplog.records[0].levelname == "WARNING"
    (told,) = lines()
    assert told.startswith(f"worker w lost the leases of task {ids[0]}: ")
    observer.renewed(ids[:1], frozenset(ids[1:]))
    _, told = lines()
    assert "of 11 tasks (" in told
    observer.renewed([], frozenset())
    assert lines() == []


def test_recoveries_are_named_or_counted(observer, lines):
    lost = [Recovered(one.lease, 1, TaskStatus.PENDING, 2.0) for one in some(5)]
    observer.recovered(lost[:1])
    (told,) = lines()
    assert told == (
        f"recovered task {lost[0].lease.task}: its worker stopped renewing 2.0 s ago; "
        "it is pending now"
    )
    observer.recovered(lost)
    (told,) = lines()
    assert told.startswith("recovered 5 tasks (")
    assert told.endswith("stopped renewing up to 2.0 s ago; now 5 are pending")


def test_a_failure_for_good_says_after_how_many_tries(observer, lines):
    settlement = Settlement(verdict=Verdict.FAILED, failure=Failure(type="Boom", message="no"))
    (twice,) = some(1)
    once = msgspec.structs.replace(twice, tries=1)
    observer.settled([Ended(once, settlement, 0.1), Ended(twice, settlement, 0.1)], frozenset())
    assert [line.partition("(shop:send) ")[2] for line in lines()] == [
        "failed for good after 1 try: Boom: no",
        "failed for good after 2 tries: Boom: no",
    ]


def test_a_line_for_people_names_the_task_that_it_was_written_in():
    record = logging.LogRecord("shop", logging.INFO, "shop.py", 1, "sent", None, None)
    record.holdfast_task_id = ""
    form = TextFormatter()
    assert form.format(record).endswith("INFO    sent")
    record.holdfast_task_id = TASK
    assert form.format(record).endswith(f"INFO    sent [task {TASK}]")
    record.msg = f"task {TASK} is sent"
    assert form.format(record).count(TASK) == 1
