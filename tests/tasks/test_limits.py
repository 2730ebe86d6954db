"""Rates and limits, and that the arithmetic of the rate keeps its word in every span."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.errors import InvalidInput
from holdfast.tasks.limits import Limit, Rate


@pytest.mark.parametrize(
    ("text", "count", "period", "burst"),
    [
        ("100/m", 100, 60, 10),
        ("5/10s", 5, 10, 1),
        ("1/s", 1, 1, 1),
        ("  7 / 2h ", 7, 7200, 1),
        ("1000/d", 1000, 86400, 100),
        ("19/s", 19, 1, 1),
        ("20/s", 20, 1, 2),
        ("999999999/999999d", 999_999_999, 999_999 * 86400, 99_999_999),
    ],
)
def test_a_rate_is_read_as_people_write_it(text, count, period, burst):
    assert Rate.parse(text) == Rate(count=count, period=period, burst=burst)


@pytest.mark.parametrize(
    "text",
    [
        "", "100", "/m", "100/", "100/x", "1.5/s", "-1/s", "1/-1s", "1/s extra", "1//s",
        "1/1.5s", "1/ms", "1000000000000/s", "1/1000000000s", "1/s\0", "0/s", "5/0s",
        None, 5, b"1/s",
    ],
)  # fmt: skip
def test_anything_else_is_refused(text):
    with pytest.raises(InvalidInput, match="rate"):
        Rate.parse(text)


def test_the_burst_can_be_chosen():
    assert Rate.parse("100/m", burst=100).burst == 100


@pytest.mark.parametrize("burst", [0, -1, 101])
def test_a_burst_outside_the_count_is_refused_not_replaced(burst):
    with pytest.raises(InvalidInput, match="burst"):
        Rate.parse("100/m", burst=burst)


@pytest.mark.parametrize(
    ("count", "period", "burst"),
    [(0, 1, 1), (-1, 1, 1), (1, 0, 1), (1, -1, 1), (1, math.nan, 1), (1, math.inf, 1)],
)
def test_a_rate_needs_a_count_and_a_period(count, period, burst):
    with pytest.raises(InvalidInput):
        Rate(count=count, period=period, burst=burst)


@pytest.mark.parametrize(
    ("field", "said"), [("max_running", "max_concurrent must"), ("max_per_key", "for a key must")]
)
@pytest.mark.parametrize("value", [0, -1, 1_000_001, "5", 2.0, True])
def test_a_limit_out_of_range_is_refused_in_the_words_of_those_who_set_it(field, said, value):
    with pytest.raises(InvalidInput, match=f"{said} be a whole number from 1 to 1000000"):
        Limit(**{field: value})


@pytest.mark.parametrize("text", ["100/m", "5/10s", "1/d", "3/h", "7/90s"])
def test_a_rate_is_shown_as_it_was_written(text):
    assert str(Rate.parse(text)) == text
    assert str(Rate(count=100, period=60.0, burst=7)) == "100/m, 7 at once"


def test_no_limit_is_the_default():
    assert Limit() == Limit(max_running=None, max_per_key=None, rate=None)


class Gate:
    """The arithmetic of the claim, as its SQL has it: looked at without the lock, then under it."""

    def __init__(self, rate: Rate) -> None:
        self.interval, self.burst = rate.interval, rate.burst
        self.next: float | None = None

    def opens(self, now: float) -> float:
        """Seconds until a start is possible; not above zero: now."""
        return 0.0 if self.next is None else self.next - now - (self.burst - 1) * self.interval

    def start(self, now: float, want: int) -> int:
        if self.opens(now) > 0:
            return 0
        debt = 0.0 if self.next is None else max(self.next - now, 0.0)
        took = min(want, math.floor(self.burst - debt / self.interval + 1e-6))
        if took > 0:
            self.next = max(now if self.next is None else self.next, now) + took * self.interval
        return max(took, 0)


@st.composite
def rates(draw: st.DrawFn) -> Rate:
    count = draw(st.integers(1, 60))
    period = draw(st.sampled_from([0.01, 1.0, 7.0, 60.0, 86400.0]))
    return Rate(count=count, period=period, burst=draw(st.integers(1, count)))


asks = st.lists(st.tuples(st.floats(0, 2), st.integers(1, 80)), min_size=1, max_size=120)


def starts_of(rate: Rate, asks: list[tuple[float, int]]) -> list[float]:
    gate, now, starts = Gate(rate), 0.0, []
    for gap, want in asks:
        now += gap * rate.period / 4
        starts += [now] * gate.start(now, want)
    return starts


@given(rates(), asks)
@settings(max_examples=300)
def test_in_any_span_of_the_period_at_most_the_count_starts(rate, asks):
    starts = starts_of(rate, asks)
    # Start number i + count must lie a whole period after start number i. The tolerance is the
    # one of the arithmetic: a millionth of an interval, so that float dust delays nobody.
    slack = 2e-6 * rate.interval + 1e-9 * rate.period
    for early, late in zip(starts, starts[rate.count :], strict=False):
        assert late - early >= rate.period - slack


@given(rates())
def test_a_greedy_caller_gets_the_burst_at_once_then_one_per_interval(rate):
    gate, now = Gate(rate), 5.0
    assert gate.start(now, 10_000) == rate.burst
    for _ in range(2 * rate.count):
        assert gate.start(now + 0.5 * rate.interval, 10_000) == 0
        now += rate.interval * (1 + 1e-9)
        assert gate.start(now, 10_000) == 1


@given(rates(), asks)
def test_a_gate_that_says_when_it_opens_opens_then(rate, asks):
    gate, now = Gate(rate), 0.0
    for gap, want in asks:
        now += gap * rate.period / 4
        gate.start(now, want)
        wait = max(gate.opens(now), 0.0)
        assert gate.opens(now + wait + 1e-9 * rate.period) <= 0
        assert wait <= rate.period * (1 + 1e-9)


@given(rates())
def test_after_a_quiet_period_the_whole_burst_is_back(rate):
    gate = Gate(rate)
    gate.start(0.0, 10_000)
    later = rate.burst * rate.interval * (1 + 1e-9)
    assert gate.start(later, 10_000) == rate.burst


def test_the_burst_is_part_of_the_count_not_on_top():
    rate = Rate(count=10, period=10, burst=10)
    assert len([t for t in starts_of(rate, [(0, 80), *[(0.1, 80)] * 39]) if t < 10]) == 10
