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

BEHIND = {"place": "blocked", "concurrency_key": "acme"}
FULL = {"slots": 1, "active": 1}


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
        ({"ahead": 1}, (WORKER,), "1 comes before it"),
        ({"ahead": 3}, (WORKER,), "3 come before it"),
        ({"ahead": 1000}, (WORKER,), "1,000 or more"),
        ({"due": 30.0}, (WORKER,), "not due for another 30.0 s"),
        ({"due": 3600.0}, (WORKER,), "not due for another 60 min"),
        ({"queue_paused": True}, (WORKER,), "queue 'mail' is paused"),
        ({}, (), "no worker is alive"),
        ({}, worker(status="stopped"), "no worker is alive"),
        ({}, worker(status="stale"), "no worker is alive"),
        ({}, worker(types=("shop:charge",)), "they know shop:charge"),
        ({}, worker(types=("shop:sender",)), "they know shop:sender; start a worker whose app imp"),
        (
            {"lane": lane(version="2")},
            worker(types=("shop:send", "shop:send@1", "shop:sender")),
            "knows the type 'shop:send@2'; they know shop:send, shop:send@1; "
            "start a worker whose app has it in version '2'",
        ),
        (
            {},
            worker(types=("shop:send@1", "x")),
            "'shop:send'; they know shop:send@1; start a worker whose app has it without a version",
        ),
        ({}, worker(queues=("vip",)), "no live worker serves queue 'mail' (w does not)"),
        ({"lane": lane(requires=("gpu",))}, (WORKER,), "offers all of gpu"),
        ({}, worker(tenants=("acme",)), "takes tasks of tenant 'default' (w does not)"),
        ({"lane": lane(tags=("bill",))}, worker(tags=("x",)), "tagged bill (w does not)"),
        ({"gates": gate(max_running=2, running=2)}, (WORKER,), "may run 2 at once, and 2 run"),
        (
            {"gates": gate(max_per_key=1, running_of_key=1), **BEHIND},
            (WORKER,),
            "for key 'acme', and 1 holds it",
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
    (words,) = told(gates=gate(max_running=1, running=1), occupied_by=(UUID(int=7),))
    assert f"and 1 runs ({UUID(int=7)});" in words
    (words,) = told(gates=gate(max_running=3, running=3), occupied_by=(UUID(int=7),))
    assert f"and 3 run ({UUID(int=7)} and 2 more);" in words


def test_tasks_that_hold_a_key_are_named():
    one = gate(max_per_key=1, running_of_key=1)
    (words,) = told(gates=one, occupied_by=(UUID(int=7),), **BEHIND)
    assert f"for key 'acme', and 1 holds it ({UUID(int=7)});" in words
    (words,) = told(gates=one, **BEHIND)
    assert "1 holds it (let in before it, and waiting for a worker);" in words


def test_tasks_that_fill_several_limits_are_named_once():
    """Which of them fills which is not known."""
    both = gate(max_running=1, running=1, max_per_key=1, running_of_key=1)
    *limits, last = told(gates=both, occupied_by=(UUID(int=7),), **BEHIND)
    assert len(limits) == 2
    assert not any(str(UUID(int=7)) in words for words in limits)
    assert last.startswith(f"these fill the limits: {UUID(int=7)};")


def test_a_task_that_its_key_let_in_is_not_held_back_by_itself():
    assert told(gates=gate(max_per_key=1, running_of_key=1), concurrency_key="acme") == told()


# ── workers that take it, but not now ────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("slots", "words"),
    [
        ([1], "the only slot of 1 worker is taken"),
        ([4], "all 4 slots of 1 worker are taken"),
        ([1, 1], "all 2 slots of 2 workers are taken"),
    ],
)
def test_slots_that_are_all_taken_are_told(slots, words):
    workers = [one for n in slots for one in worker(slots=n, active=n)]
    advice = "wait, or add workers or slots: holdfast worker --concurrency …"
    assert told(workers) == [f"{words}; {advice}"]
    assert told(workers, ahead=2)[1:] == ["it stands in line: 2 come before it"]
    assert told([*workers, WORKER]) == ["nothing holds it back: the next free worker takes it"]


def test_only_slots_of_workers_that_take_it_count():
    full = worker(**FULL)
    others = [
        *worker(queues=("vip",)),
        *worker(types=("shop:charge",)),
        *worker(tenant="acme"),
        *worker(status="draining"),
    ]
    assert told([*full, *others]) == told(full)


@pytest.mark.parametrize(
    ("facts", "why", "advice"),
    [
        (
            {"status": "blocked", "loop_lag": 5.0},
            "w (blocked: its event loop is 5.0 s late) lives but does not get to work",
            "make such functions `def`, or isolation='process'",
        ),
        (
            {"status": "deaf"},
            "w (deaf: it has free slots, and no claim of it is answered) lives but does not get to",
            "look at the store and at the worker's log, or restart it",
        ),
    ],
)
def test_workers_that_do_not_get_to_work_are_told(facts, why, advice):
    (words,) = told(worker(**facts))
    assert words.startswith(why)
    assert advice in words
    assert "start another worker" in words
    assert told([*worker(**facts), WORKER]) == told()


def test_workers_that_are_full_and_workers_that_are_unwell_are_both_told():
    unwell = [*worker(name="a", status="blocked"), *worker(name="b", status="deaf")]
    full, ill = told([*unwell, *worker(**FULL)])
    assert full.startswith("the only slot of 1 worker is taken")
    assert ill.startswith("a (blocked")
    assert ", b (deaf" in ill
    assert "live but do not get to work" in ill


def test_nobody_needs_a_free_slot_for_what_is_not_due():
    assert len(told(worker(**FULL), due=30.0)) == 1


def test_many_workers_are_not_all_named():
    (words,) = told([one for n in range(7) for one in worker(name=f"w{n}", queues=("vip",))])
    assert "(w0, w1, w2, w3, w4 and 2 more do not)" in words


# ── what to do ───────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("facts", "workers", "advice"),
    [
        (
            {"queue_paused": True},
            (WORKER,),
            'resume it: holdfast queues resume mail or app.resume_queue("mail")',
        ),
        (
            {},
            worker(queues=("vip",)),
            "start one: holdfast worker --app … --queues mail; or move the task: holdfast tasks "
            "edit ID --queue …",
        ),
        (
            {"lane": lane(tags=("bill",))},
            worker(tags=("x",)),
            "start one with one of these among its --tags, or without the flag; or change the "
            "task: holdfast tasks edit ID --tags …",
        ),
        (
            {"gates": gate(rate_opens=5.0)},
            (WORKER,),
            "wait until then, or raise the limit: holdfast limits set type shop:send "
            "--rate-limit …",
        ),
        (
            {"gates": gate(max_running=1, running=1, kind="queue", name="mail")},
            (WORKER,),
            "wait for one of them, or raise the limit: holdfast limits set queue mail "
            "--max-concurrent …",
        ),
        (
            {"gates": gate(max_per_key=1, running_of_key=1), **BEHIND},
            (WORKER,),
            "wait for one of them, or raise the limit: holdfast limits set type shop:send "
            "--max-concurrent-per-key …",
        ),
    ],
)
def test_what_to_do_is_said(facts, workers, advice):
    (words,) = told(workers, **facts)
    assert words.endswith(f"; {advice}")


def test_workers_that_take_only_parts_of_it_are_no_help():
    tagged = lane(tags=("bill",))
    parts = [*worker(queues=("vip",)), *worker(name="v", tags=("x",))]
    (words,) = told(parts, lane=tagged)
    assert "takes its tenant, queue, tags and requirements (v, w do not)" in words
    assert "start one that takes them all" in words


def test_several_reasons_come_together():
    assert len(told((), due=10.0, queue_paused=True, gates=gate(rate_opens=1.0))) == 4
