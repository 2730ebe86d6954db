"""Why a task does not run, from facts alone."""

from uuid import UUID

import msgspec
import pytest

from holdfast.answers import Gate, Standing, WorkerRecord
from holdfast.explain import explain
from holdfast.tasks.lane import Lane

LANE = Lane(queue="mail", type="shop:send")
READY = Standing(
    task=UUID(int=1),
    place="ready",
    lane=LANE,
    due=None,
    queue_paused=False,
    concurrency_key=None,
    gates=(),
    ahead=0,
    occupied_by=(),
    cancel_requested=False,
    reason=None,
    holder=None,
    lease_left=None,
)
WORKER = WorkerRecord(id=1, name="w", types=("shop:send",), status="ready")
GATE = Gate(
    kind="type",
    name="shop:send",
    max_running=None,
    running=None,
    max_per_key=None,
    running_of_key=None,
    rate_opens=None,
)


def told(workers=(WORKER,), **facts):
    return [str(reason) for reason in explain(msgspec.structs.replace(READY, **facts), workers)]


def worker(**facts):
    return (msgspec.structs.replace(WORKER, **facts),)


def lane(**parts):
    return msgspec.structs.replace(LANE, **parts)


def gate(**facts):
    return (msgspec.structs.replace(GATE, **facts),)


def test_nothing_holds_it_back():
    assert told() == ["nothing holds it back: the next free worker takes it"]


@pytest.mark.parametrize(
    ("facts", "workers", "words"),
    [
        ({"ahead": 3}, (WORKER,), "3 come before it"),
        ({"ahead": 1000}, (WORKER,), "1,000 or more"),
        ({"due": 30.0}, (WORKER,), "not due for another 30.0 s"),
        ({"due": 3600.0}, (WORKER,), "not due for another 60 min"),
        ({"queue_paused": True}, (WORKER,), "queue 'mail' is paused"),
        ({}, (), "no worker is alive"),
        ({}, worker(status="stopped"), "no worker is alive"),
        ({}, worker(status="stale"), "no worker is alive"),
        ({}, worker(types=("shop:charge",)), "they know shop:charge"),
        ({"lane": lane(version="2")}, (WORKER,), "knows the type 'shop:send@2'"),
        ({}, worker(queues=("vip",)), "no live worker serves queue 'mail' (w do not)"),
        ({"lane": lane(requires=("gpu",))}, (WORKER,), "offers all of gpu"),
        ({}, worker(tenants=("acme",)), "takes tasks of tenant 'default' (w do not)"),
        ({"lane": lane(tags=("bill",))}, worker(tags=("x",)), "tagged bill"),
        ({"gates": gate(max_running=2, running=2)}, (WORKER,), "may run 2 at once, and 2 run"),
        (
            {"gates": gate(max_per_key=1, running_of_key=1), "concurrency_key": "acme"},
            (WORKER,),
            "for key 'acme', and 1 run",
        ),
        ({"gates": gate(rate_opens=5.0)}, (WORKER,), "opens again in 5.0 s"),
        ({"place": "outcome"}, (WORKER,), "it has ended"),
        ({"place": "waiting", "reason": "parked"}, (WORKER,), "it waits: parked"),
        ({"place": "lease", "holder": "w", "lease_left": 9.0}, (WORKER,), "w holds it for another"),
        ({"place": "lease", "holder": "w", "lease_left": -9.0}, (WORKER,), "stopped renewing 9 s"),
    ],
)
def test_what_holds_it_back_is_said(facts, workers, words):
    assert words in told(workers, **facts)[0]


def test_a_limit_that_has_room_is_no_reason():
    assert told(gates=gate(max_running=2, running=1, max_per_key=3, running_of_key=2)) == told()


def test_a_worker_that_serves_it_is_enough():
    assert told((WORKER, *worker(queues=("vip",)))) == told()
    assert told(worker(tenants=("acme", "default"))) == told()


def test_tasks_that_fill_a_limit_are_named():
    words = told(gates=gate(max_running=1, running=1), occupied_by=(UUID(int=7),))
    assert str(UUID(int=7)) in words[0]


def test_several_reasons_come_together():
    assert len(told((), due=10.0, queue_paused=True, gates=gate(rate_opens=1.0))) == 4
