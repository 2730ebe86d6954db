"""The state machine, whole: every outcome under every set of facts."""

from datetime import timedelta
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import InvalidInput
from holdfast.tasks.lifecycle import (
    EXPIRED,
    LOST,
    Anew,
    Cancelled,
    Done,
    Errored,
    Expired,
    Facts,
    HandedBack,
    Lost,
    Outcome,
    Settlement,
    Snoozed,
    Verdict,
    Waiting,
    settle,
)
from holdfast.tasks.retry import RetryPolicy
from holdfast.tasks.task import Failure

BOOM = Failure(type="Boom", message="it broke")
MINUTE = timedelta(minutes=1)

ENDS: list[tuple[Outcome, Settlement]] = [
    (Done(b"7"), Settlement(verdict=Verdict.DONE, result=b"7")),
    (Errored(BOOM, retryable=False), Settlement(verdict=Verdict.FAILED, failure=BOOM)),
    (Cancelled(), Settlement(verdict=Verdict.CANCELLED)),
    (Expired(), Settlement(verdict=Verdict.FAILED, failure=EXPIRED)),
]
GIVES_BACK: list[Outcome] = [
    Snoozed(MINUTE),
    Anew(b"[]"),
    HandedBack(),
    Waiting(timer=MINUTE),
    Waiting(),
]
PAYS: list[Outcome] = [Errored(BOOM), Lost(in_company=False)]
GOES_ON: list[Outcome] = [*GIVES_BACK, *PAYS, Lost(in_company=True)]

FACTS = [
    Facts(tries=tries, max_tries=3, alone=alone, cancel_requested=cancel, expired=expired)
    for tries in (1, 2, 3, 4)
    for alone, cancel, expired in product((False, True), repeat=3)
]


def facts(tries: int = 1, max_tries: int = 3, alone: bool = False) -> Facts:
    return Facts(tries=tries, max_tries=max_tries, alone=alone)


@pytest.mark.parametrize(("outcome", "follows"), ENDS)
def test_an_end_is_an_end_whatever_the_facts(outcome: Outcome, follows: Settlement):
    for known in FACTS:
        assert settle(known, outcome) == follows


@pytest.mark.parametrize("outcome", GOES_ON)
def test_what_would_go_on_ends_as_cancelled_when_that_was_asked_for(outcome: Outcome):
    for known in FACTS:
        if known.cancel_requested:
            follows = settle(known, outcome)
            assert follows.verdict is Verdict.CANCELLED
            assert not follows.refund
            assert follows.delay is None


def test_a_cancelled_task_keeps_the_error_of_its_last_attempt():
    known = Facts(tries=1, max_tries=3, cancel_requested=True)
    assert settle(known, Errored(BOOM)).failure == BOOM
    assert settle(known, Lost(in_company=False)).failure == LOST
    assert settle(known, Snoozed(MINUTE)).failure is None


@pytest.mark.parametrize("outcome", GOES_ON)
def test_what_would_go_on_past_its_time_fails_as_expired_unless_cancelled(outcome: Outcome):
    for known in FACTS:
        if known.expired and not known.cancel_requested:
            assert settle(known, outcome) == Settlement(verdict=Verdict.FAILED, failure=EXPIRED)


@pytest.mark.parametrize("outcome", PAYS)
@pytest.mark.parametrize("tries", [3, 4, 32_000])
def test_the_last_try_that_pays_ends_in_the_dead_letters(outcome: Outcome, tries: int):
    failure = BOOM if isinstance(outcome, Errored) else LOST
    assert settle(facts(tries), outcome) == Settlement(verdict=Verdict.FAILED, failure=failure)


@pytest.mark.parametrize("outcome", GIVES_BACK)
@pytest.mark.parametrize("tries", [1, 3, 4])
def test_snooze_hand_back_and_wait_return_the_try_even_the_last(outcome: Outcome, tries: int):
    follows = settle(facts(tries), outcome)
    assert follows.refund
    assert not follows.verdict.final


def test_a_retry_waits_as_its_policy_says():
    policy = RetryPolicy(initial_delay=10, backoff_factor=3, max_delay=1000, jitter=0)
    known = Facts(tries=2, max_tries=5, retry=policy)
    follows = settle(known, Errored(BOOM))
    assert follows == Settlement(
        verdict=Verdict.RETRY, failure=BOOM, delay=timedelta(seconds=30), refund=False
    )


def test_a_retry_without_a_policy_follows_the_default():
    assert settle(facts(1), Errored(BOOM)).delay == timedelta(seconds=1)
    assert settle(facts(2), Errored(BOOM)).delay == timedelta(seconds=2)


def test_chance_moves_only_the_delay():
    low, high = (settle(facts(), Errored(BOOM), roll) for roll in (0.0, 1.0))
    assert low.delay is not None
    assert high.delay is not None
    assert low.delay < high.delay
    assert low.verdict is high.verdict


def test_a_snooze_waits_as_long_as_it_was_asked_to():
    assert settle(facts(), Snoozed(MINUTE)).delay == MINUTE


def test_a_hand_back_has_no_delay():
    assert settle(facts(), HandedBack()) == Settlement(verdict=Verdict.HANDED_BACK, refund=True)


def test_a_wait_carries_what_it_waits_for():
    outcome = Waiting(timer=MINUTE, wakes=4, seen=(7, 9), reason="children")
    assert settle(facts(), outcome) == Settlement(
        verdict=Verdict.WAITING,
        delay=MINUTE,
        refund=True,
        wakes=4,
        seen=(7, 9),
        reason="children",
    )


def test_a_wait_without_a_timer_has_no_delay():
    assert settle(facts(), Waiting()).delay is None


def test_lost_in_company_gives_the_try_back_once_and_runs_alone_from_then_on():
    follows = settle(facts(3), Lost(in_company=True))
    assert (follows.verdict, follows.refund, follows.alone) == (Verdict.LOST, True, True)


def test_lost_in_company_a_second_time_pays():
    follows = settle(facts(2, alone=True), Lost(in_company=True))
    assert (follows.verdict, follows.refund, follows.alone) == (Verdict.LOST, False, True)
    assert settle(facts(3, alone=True), Lost(in_company=True)).verdict is Verdict.FAILED


def test_lost_without_company_pays_and_stays_among_others():
    follows = settle(facts(1), Lost(in_company=False))
    assert (follows.verdict, follows.refund, follows.alone) == (Verdict.LOST, False, False)


def test_lost_after_it_had_recorded_something_it_pays_nothing():
    follows = settle(facts(3), Lost(in_company=False, recorded=True))
    assert (follows.verdict, follows.refund, follows.alone) == (Verdict.LOST, True, False)


def test_whoever_is_marked_pays_in_company_whatever_it_had_recorded_and_stays_marked():
    follows = settle(facts(2, alone=True), Lost(in_company=True, recorded=True))
    assert (follows.verdict, follows.refund, follows.alone) == (Verdict.LOST, False, True)
    follows = settle(facts(3, alone=True), Lost(in_company=False, recorded=True))
    assert (follows.verdict, follows.refund, follows.alone) == (Verdict.LOST, True, True)


def test_a_lost_task_goes_back_without_backoff():
    for known, outcome in product(FACTS, (Lost(in_company=False), Lost(in_company=True))):
        assert settle(known, outcome).delay is None


def test_only_done_has_a_result_and_only_what_goes_on_has_a_delay_or_a_refund():
    outcomes = [outcome for outcome, _ in ENDS] + GOES_ON
    for known, outcome in product(FACTS, outcomes):
        follows = settle(known, outcome)
        assert (follows.result is not None) == (follows.verdict is Verdict.DONE)
        if follows.verdict.final:
            assert follows.delay is None
            assert not follows.refund


@pytest.mark.parametrize(
    "end",
    [
        {"verdict": Verdict.DONE},
        {"verdict": Verdict.WAITING, "refund": True},
        {"verdict": Verdict.SNOOZED, "refund": True, "delay": MINUTE},
        {"verdict": Verdict.SNOOZED, "refund": False},
    ],
)
def test_only_what_begins_anew_at_once_has_a_payload(end: dict[str, Any]):
    with pytest.raises(InvalidInput, match="new run begins at once"):
        Settlement(**end, payload=b"[]")


def test_the_final_verdicts_are_the_three_end_states():
    assert {v for v in Verdict if v.final} == {Verdict.DONE, Verdict.FAILED, Verdict.CANCELLED}


@st.composite
def lives(draw: st.DrawFn) -> tuple[int, list[Outcome]]:
    outcome = st.sampled_from([Done(b"1"), *GOES_ON])
    return draw(st.integers(1, 6)), draw(st.lists(outcome, min_size=40, max_size=40))


@given(lives())
def test_no_life_charges_more_tries_than_allowed(life: tuple[int, list[Outcome]]):
    max_tries, outcomes = life
    charged, alone, paid_grants = 0, False, 0
    for outcome in outcomes:
        charged += 1  # at the grant, whatever comes
        assert charged <= max_tries
        paid_grants += not isinstance(outcome, Snoozed | Anew | HandedBack | Waiting)
        assert paid_grants <= max_tries + 1  # the one that was lost in company
        follows = settle(facts(charged, max_tries, alone), outcome)
        if follows.verdict.final:
            return
        charged -= follows.refund
        alone = alone or follows.alone
    assert charged < max_tries


@given(st.integers(1, 32_000), st.lists(st.booleans(), min_size=64, max_size=64))
def test_a_poison_task_ends_after_its_tries_and_at_most_one_more(max_tries, company):
    max_tries = min(max_tries, 60)
    charged, alone = 0, False
    for granted, in_company in enumerate(company, 1):
        charged += 1
        follows = settle(facts(charged, max_tries, alone), Lost(in_company))
        if follows.verdict.final:
            assert follows.verdict is Verdict.FAILED
            assert granted in (max_tries, max_tries + 1)
            return
        charged -= follows.refund
        alone = follows.alone
    pytest.fail("it never ended")


BAD = {
    "a snooze without end": ({"delay": timedelta.max}, "at most 100 years"),
    "a wait backwards": ({"delay": timedelta(seconds=-1)}, "must not be negative"),
    "a delay that is a number": ({"delay": 5}, "must be a timedelta"),
    "no wakes": ({"wakes": 0}, "wakes must be"),
    "too many wakes": ({"wakes": 2**40}, "wakes must be"),
    "wakes that are no numbers": ({"seen": (2**63,)}, "seen must be"),
    "a detail without end": (
        {"failure": Failure(type="Boom", message="", detail=b" " * 65_537)},
        "shorten its traceback",
    ),
    "a result that is no bytes": ({"result": "text"}, "must be bytes"),
    "a result that is too large": ({"result": b" " * 1_048_577}, "over the limit"),
}


@pytest.mark.parametrize(("fields", "advice"), BAD.values(), ids=BAD)
def test_what_no_store_could_write_is_refused_before_it_shares_a_batch(fields, advice):
    with pytest.raises(InvalidInput, match=advice):
        Settlement(verdict=Verdict.SNOOZED, **fields)


def test_a_snooze_that_never_ends_fails_its_attempt():
    with pytest.raises(InvalidInput, match="at most 100 years"):
        settle(facts(), Snoozed(timedelta.max))


def test_a_done_task_with_a_result_that_is_too_large_is_refused():
    with pytest.raises(InvalidInput, match="over the limit"):
        settle(facts(), Done(b" " * 1_048_577))


def test_a_long_reason_is_cut():
    follows = settle(facts(), Waiting(reason="because\0" * 1000))
    assert follows.reason is not None
    assert len(follows.reason) == 1000
    assert "\0" not in follows.reason
