"""What every executor promises, whatever it runs functions in."""

import asyncio
import json
from datetime import date, timedelta
from decimal import Decimal

import msgspec
import pytest

from holdfast.errors import LeaseLost, PayloadRefused, StoreUnreachable
from holdfast.executors.outcomes import outcome_of
from holdfast.tasks.lifecycle import Cancelled, Errored, Facts, Snoozed, Verdict, settle
from tests.executors.acts import MemoryKeeper, attempt, soon, within
from tests.executors.evil import EVIL
from tests.executors.functions import MEANT

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_a_result_comes_back_as_json_and_arguments_as_annotated(way):
    context = attempt(way.tomorrow, date(2024, 2, 28), Decimal("1.5"), Decimal(2), days=2)
    result = await way.start(way.tomorrow, context)
    assert json.loads(result) == {"day": "2024-03-01", "sum": "3.5"}


async def test_the_attempt_is_known_inside(way):
    context = attempt(way.about)
    said = json.loads(await way.start(way.about, context))
    assert said["task"] == str(context.task_id)
    assert (said["fence"], said["attempt"], said["max_tries"]) == (7, 2, 5)
    assert (said["queue"], said["tenant"], said["type"]) == ("mail", "acme", way.about.name)
    assert said["worker"] == "worker-1"
    assert said["key"] == context.effect_key("smtp")


@pytest.mark.parametrize("payload", [b'{"args":["no day"]}', b'{"args":[1,2,3],"kwargs":{"x":1}}'])
async def test_arguments_that_do_not_fit_any_more_end_it_for_good(way, payload):
    context = attempt(way.tomorrow, payload=payload)
    outcome = await ending(way, way.tomorrow, context)
    assert isinstance(outcome, Errored)
    assert not outcome.retryable
    assert outcome.failure.type == "holdfast.errors.PayloadRefused"


@pytest.mark.parametrize("name", ["object", "nan", "surrogate", "huge", "deep", "generator"])
async def test_a_result_that_is_no_json_ends_it_for_good(way, name):
    context = attempt(way.odd_result, name)
    outcome = await ending(way, way.odd_result, context)
    assert isinstance(outcome, Errored)
    assert not outcome.retryable
    assert outcome.failure.type == f"holdfast.errors.{PayloadRefused.__name__}"


@pytest.mark.parametrize("name", EVIL)
async def test_every_exception_becomes_bounded_data(way, name):
    context = attempt(way.evil, name)
    outcome = await ending(way, way.evil, context)
    assert isinstance(outcome, Errored)
    failure = outcome.failure
    assert settle(Facts(tries=1, max_tries=3), outcome).verdict is Verdict.RETRY
    assert 0 < len(failure.type) <= 200
    assert 0 < len(failure.message) <= 4000
    assert failure.detail is not None
    assert len(failure.detail) <= 64 * 1024
    assert msgspec.json.decode(failure.detail)["traceback"]
    assert b"raise_evil" in failure.detail or name in ("recursion", "wide_frames")
    assert "\0" not in failure.type + failure.message
    assert msgspec.json.encode(failure)


async def test_a_failure_names_what_was_raised(way):
    context = attempt(way.evil, "odd init")
    outcome = await ending(way, way.evil, context)
    assert isinstance(outcome, Errored)
    assert outcome.failure.type == "tests.executors.evil.OddInit"
    assert outcome.failure.detail is not None
    assert b"evil.py" in outcome.failure.detail
    assert b"holdfast/executors" not in outcome.failure.detail
    outcome = await ending(way, way.evil, attempt(way.evil, "keyboard"))
    assert isinstance(outcome, Errored)
    assert outcome.failure.type == "KeyboardInterrupt"


async def test_stop_iteration_keeps_its_name_where_python_lets_it(way):
    outcome = await ending(way, way.evil, attempt(way.evil, "stop iteration"))
    assert isinstance(outcome, Errored)
    expected = {"sync": "StopIteration", "async": "RuntimeError"}
    assert outcome.failure.type == expected[way.flavour]


MEANINGS = {
    "timeout": (Errored, True),
    "value": (Errored, False),
    "never": (Errored, False),
    "snooze": Snoozed(timedelta(seconds=30)),
    "bad snooze": (Errored, False),
    "endless snooze": (Errored, False),
    "cancelled": (Errored, False),
    "cancelled error": (Errored, False),
    "group with timeout": (Errored, True),
    "group without": (Errored, False),
    "group of never": (Errored, False),
    "group of snooze": Snoozed(timedelta(seconds=5)),
}


@pytest.mark.parametrize("name", MEANT)
async def test_what_an_exception_means_is_the_same_everywhere(way, name):
    outcome = await ending(way, way.meaning, attempt(way.meaning, name))
    if isinstance(outcome, Errored):
        assert (type(outcome), outcome.retryable) == MEANINGS[name]
    else:
        assert outcome == MEANINGS[name]


@pytest.mark.parametrize("name", ["cancelled", "cancelled error"])
async def test_a_task_is_cancelled_only_if_somebody_asked_for_it(way, name):
    context = attempt(way.meaning, name, cancel_requested=True)
    assert await ending(way, way.meaning, context) == Cancelled()


async def test_progress_is_written_when_it_was_reported(way):
    keeper = MemoryKeeper()
    result = await way.start(way.reporting, attempt(way.reporting, keeper=keeper))
    assert keeper.reports == [(25, "began", None), (50.5, None, b'{"row":500}')]
    assert json.loads(result) == {"row": 500}


async def test_a_lost_lease_is_noticed_at_the_next_report(way):
    keeper = MemoryKeeper()
    context = attempt(way.refused, keeper=keeper)
    keeper.refuse = LeaseLost("progress", context.task_id)
    result = json.loads(await way.start(way.refused, context))
    assert result == f"lost: progress of {context.task_id}"


async def test_a_store_that_does_not_answer_is_told_by_its_own_error(way):
    keeper = MemoryKeeper()
    keeper.refuse = StoreUnreachable("no answer")
    result = json.loads(await way.start(way.refused, attempt(way.refused, keeper=keeper)))
    assert result == "StoreUnreachable: no answer"


async def test_a_function_that_looks_sees_that_it_should_stop(way):
    keeper = MemoryKeeper()
    context = attempt(way.until_cancelled, keeper=keeper)
    run = way.start(way.until_cancelled, context)
    await within(keeper.reported.wait())
    context.cancel_requested = True
    with pytest.raises(Exception) as raised:  # noqa: PT011
        await within(run)
    assert outcome_of(raised.value, way.until_cancelled, context) == Cancelled()


async def test_one_that_was_to_stop_before_it_began_sees_it_too(way):
    context = attempt(way.until_cancelled, cancel_requested=True)
    assert await ending(way, way.until_cancelled, context) == Cancelled()


async def test_one_that_was_to_stop_before_it_was_called_sees_it_at_once(way):
    context = attempt(way.check)
    context.cancel_requested = True
    assert await ending(way, way.check, context) == Cancelled()


async def test_a_cancelled_run_ends_at_once_and_as_cancelled(way):
    keeper = MemoryKeeper()
    run = way.start(way.until_cancelled, attempt(way.until_cancelled, keeper=keeper))
    await within(keeper.reported.wait())
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await within(run)
    assert run.cancelled()
    if way.keeper == "thread":  # which sees by itself that nobody waits any more
        await soon(lambda: way.executor.stranded == 0)


async def test_many_calls_at_once_do_not_mix(way):
    contexts = [attempt(way.about) for _ in range(3)]
    said = await asyncio.gather(*(way.start(way.about, context) for context in contexts))
    assert [json.loads(each)["task"] for each in said] == [str(c.task_id) for c in contexts]


async def ending(way, function, context):
    """The outcome of a run that raises; no such run may end the loop or look cancelled."""
    with pytest.raises(Exception) as raised:  # noqa: PT011
        await within(way.start(function, context))
    return outcome_of(raised.value, function, context)
