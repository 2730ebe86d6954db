"""Spans of time as people write them."""

from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import InvalidInput
from holdfast.tasks.durations import duration

SPANS: dict[Any, float] = {
    "30s": 30, "5m": 300, "1h": 3600, "2d": 172_800, "1w": 604_800, "250ms": 0.25, "1.5s": 1.5,
    "1h 30m": 5400, "1h30m": 5400, " 2d ": 172_800, "0s": 0, "1m 1m": 120, "1 h": 3600,
    0: 0, 5: 5, 2.5: 2.5, timedelta(minutes=2): 120,
}  # fmt: skip
BAD: list[Any] = [
    "", " ", "5", "s", "5 minutes", "-5s", "+5s", "1e3s", "5S", "5s!", "soon", "5s,5m", "٣s", "1.s",
    ".5s", "5\0s", "9" * 400 + "s", "9999999999999w", "999999999999w",
    True, None, [], b"5s", float("nan"), float("inf"), float("-inf"), 1e300, 10**400, 1j,
]  # fmt: skip


@pytest.mark.parametrize(("written", "seconds"), SPANS.items())
def test_a_span_is_understood(written, seconds):
    assert duration("delay", written) == timedelta(seconds=seconds)


@pytest.mark.parametrize("written", BAD, ids=lambda value: f"{value!r:.20}")
def test_what_is_no_span_is_refused_with_the_way_out(written):
    with pytest.raises(InvalidInput, match=r"delay .* write '30s'") as raised:
        duration("delay", written)
    assert len(str(raised.value)) < 300


@pytest.mark.parametrize("written", [-1, -0.001, timedelta(microseconds=-1)])
def test_the_past_is_refused(written):
    with pytest.raises(InvalidInput, match="delay must not be negative"):
        duration("delay", written)


@given(
    st.text() | st.floats() | st.integers() | st.from_regex(r"(\d+(ms|[smhdw]) ?)+", fullmatch=True)
)
def test_anything_is_a_span_or_refused(written):
    with suppress(InvalidInput):
        assert duration("delay", written) >= timedelta(0)


@given(st.integers(0, 10**5), st.sampled_from("smhdw"))
def test_texts_and_numbers_agree(count, unit):
    seconds = count * {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}[unit]
    assert duration("delay", f"{count}{unit}") == duration("delay", seconds)
