"""When to try again: growth, cap, jitter, and the policy as bytes on a row."""

import math
from datetime import timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import InvalidInput, ProcessDied
from holdfast.stores.base import policy_bytes, policy_of
from holdfast.tasks.retry import DEFAULT_RETRY, RetryPolicy

policies = st.builds(
    RetryPolicy,
    max_attempts=st.none() | st.integers(1, 32_000),
    initial_delay=st.floats(0, 3e9),
    backoff_factor=st.floats(1, 1e308),
    max_delay=st.floats(0, 3e9),
    jitter=st.floats(0, 1),
)
rolls = st.floats(0, 1)


def seconds(policy: RetryPolicy, tries: int, roll: float = 0.5) -> float:
    return policy.delay(tries, roll).total_seconds()


def test_only_what_a_function_raises_is_chosen_among():
    policy = RetryPolicy(retry_for=(TimeoutError,))
    assert policy.tries_again(TimeoutError())
    assert not policy.tries_again(ValueError())
    assert policy.tries_again(ProcessDied("exited with code 3"))


def test_the_delay_doubles_up_to_the_cap():
    policy = RetryPolicy(initial_delay=1, backoff_factor=2, max_delay=60, jitter=0)
    assert [seconds(policy, n) for n in range(1, 9)] == [1, 2, 4, 8, 16, 32, 60, 60]


def test_a_factor_of_one_keeps_the_delay():
    policy = RetryPolicy(initial_delay=5, backoff_factor=1, jitter=0)
    assert {seconds(policy, n) for n in (1, 2, 100, 32_000)} == {5}


def test_an_initial_delay_above_the_cap_is_capped():
    assert seconds(RetryPolicy(initial_delay=100, max_delay=10, jitter=0), 1) == 10


def test_no_delay_stays_no_delay():
    assert seconds(RetryPolicy(initial_delay=0), 30) == 0
    assert seconds(RetryPolicy(max_delay=0), 1) == 0


def test_jitter_moves_the_delay_by_its_share_in_either_direction():
    policy = RetryPolicy(initial_delay=100, jitter=0.25)
    assert [seconds(policy, 1, roll) for roll in (0, 0.5, 1)] == [75, 100, 125]


def test_jitter_never_exceeds_the_cap():
    assert seconds(RetryPolicy(initial_delay=100, max_delay=100, jitter=1), 5, 1.0) == 100


@pytest.mark.parametrize("tries", [0, -1, 1024, 1025, 32_000, 10**9, 10**300])
def test_any_number_of_tries_has_a_delay(tries: int):
    assert 0 <= seconds(DEFAULT_RETRY, tries) <= 300


@given(policies, st.integers(-5, 10**6), rolls)
def test_every_delay_lies_between_nothing_and_the_cap(policy, tries, roll):
    # A timedelta counts whole microseconds.
    assert 0 <= seconds(policy, tries, roll) <= policy.max_delay + 1e-6


@given(policies, st.integers(1, 2000), rolls)
def test_the_delay_never_shrinks_with_more_tries(policy, tries, roll):
    assert policy.delay(tries, roll) <= policy.delay(tries + 1, roll)


@given(policies, st.integers(1, 40), rolls)
def test_jitter_stays_within_its_share(policy, tries, roll):
    middle = seconds(policy, tries, 0.5)
    assert abs(seconds(policy, tries, roll) - middle) <= middle * policy.jitter + 1e-5


@given(policies)
def test_a_policy_survives_the_trip_through_its_row(policy):
    data = policy_bytes(policy)
    assert policy_of(data) == policy
    assert msgspec.json.decode(data, type=RetryPolicy).delay(3, 0.1) == policy.delay(3, 0.1)


def test_defaults_are_not_written_so_that_rows_stay_small():
    assert policy_bytes(RetryPolicy()) == b"{}"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("max_attempts", n) for n in (0, -1, 32_001, "5", 2.0, True)),
        *(("initial_delay", x) for x in (-1, math.nan, math.inf, 3.1e9)),
        *(("max_delay", x) for x in (-0.1, math.nan, -math.inf, 1e12)),
        *(("backoff_factor", x) for x in (0.99, 0, -2, math.nan, math.inf)),
        *(("jitter", x) for x in (-0.1, 1.1, math.nan, "0.1", None)),
        ("initial_delay", timedelta(seconds=5)),
        ("backoff_factor", "2"),
        *(("retry_for", x) for x in (TimeoutError, [TimeoutError], ("TimeoutError",), None)),
    ],
)
def test_a_bad_field_is_refused_by_name(field, value):
    with pytest.raises(InvalidInput, match=field):
        RetryPolicy(**{field: value})


def test_all_faults_are_told_at_once():
    with pytest.raises(InvalidInput, match=r"max_attempts.*jitter"):
        RetryPolicy(max_attempts=0, jitter=2)


@pytest.mark.parametrize("data", [b'{"jitter": 7}', b'{"curve": "sinus"', b"[]"])
def test_a_policy_on_a_row_that_cannot_be_read_counts_as_none(data):
    assert policy_of(data) is None


def test_the_longest_delay_fits_a_timedelta():
    policy = RetryPolicy(initial_delay=3e9, max_delay=3e9, jitter=1)
    assert policy.delay(10**6, 1.0) == timedelta(seconds=3e9)
