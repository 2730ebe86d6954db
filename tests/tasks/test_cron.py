"""Times of cron expressions, by the wall clocks of a zone, through the hours that change."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.errors import InvalidInput
from holdfast.tasks.cron import Cron

ZONES = ("UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu")
EXPRESSIONS = (
    *("* * * * *", "*/10 * * * *", "0 * * * *", "30 2 * * *", "15 1,2,3 * * *", "0 9 * * MON-FRI"),
    *("0 0 L * *", "45 1 * * SUN#1", "0 */6 * * *", "59 23 29 2 *", "@daily", "@weekly"),
)


def at(text: str) -> datetime:
    return datetime.fromisoformat(text)


def times(cron: Cron, start: str, count: int) -> list[str]:
    found = [at(start)]
    for _ in range(count):
        found.append(cron.after(found[-1]))
    return [tick.strftime("%m-%d %H:%M") for tick in found[1:]]


def test_office_hours_in_a_zone():
    cron = Cron("0 9 * * MON-FRI", "Europe/Berlin")
    assert times(cron, "2026-11-20T07:59:59+00:00", 3) == [
        "11-20 08:00",
        "11-23 08:00",
        "11-24 08:00",
    ]
    assert cron.after(at("2026-07-01T00:00+00:00")) == at("2026-07-01T09:00+02:00")


def test_an_hour_that_is_left_out_in_spring():
    assert times(Cron("30 2 * * *", "Europe/Berlin"), "2026-03-28T12:00+00:00", 2) == [
        "03-29 01:00",  # 03:00 there, right after the gap
        "03-30 00:30",
    ]
    assert times(Cron("*/30 * * * *", "Europe/Berlin"), "2026-03-29T00:00+00:00", 4) == [
        "03-29 00:30",
        "03-29 01:00",
        "03-29 01:30",
        "03-29 02:00",
    ]


def test_an_hour_that_comes_twice_in_autumn():
    cron = Cron("30 2 * * *", "Europe/Berlin")
    assert times(cron, "2026-10-24T12:00+00:00", 2) == ["10-25 00:30", "10-26 01:30"]
    # In the second of the two: the next is tomorrow's, not the one an hour ago.
    assert times(cron, "2026-10-25T01:10+00:00", 1) == ["10-26 01:30"]
    assert len(times(Cron("0 * * * *", "Europe/Berlin"), "2026-10-24T22:00+00:00", 25)) == 25


def test_the_last_time_of_many_that_were_missed():
    cron = Cron("*/5 * * * *")
    first = at("2026-01-01T00:05+00:00")
    assert cron.last(first, at("2026-03-01T10:07:30+00:00")) == at("2026-03-01T10:05+00:00")
    assert cron.last(first, at("2026-03-01T10:05+00:00")) == at("2026-03-01T10:05+00:00")
    assert cron.last(first, first) == first


@settings(max_examples=300, deadline=None)
@given(
    expression=st.sampled_from(EXPRESSIONS),
    zone=st.sampled_from(ZONES),
    minutes=st.integers(0, 3 * 366 * 24 * 60),
    later=st.integers(0, 5000),
    micros=st.integers(0, 59_999_999),
)
def test_times_only_go_forward_and_the_last_is_one_of_them(
    expression: str, zone: str, minutes: int, later: int, micros: int
):
    cron = Cron(expression, zone)
    now = datetime(2025, 1, 1, tzinfo=UTC) + timedelta(minutes=minutes, microseconds=micros)
    first = cron.after(now)
    assert first > now
    assert first.second == 0
    assert first.tzinfo is UTC
    assert cron.after(first) > first
    until = first + timedelta(minutes=later)
    last = cron.last(first, until)
    assert first <= last <= until
    assert cron.after(last) > last
    assert last == first or cron.after(last - timedelta(seconds=1)) == last


def test_the_zone_of_what_is_asked_makes_no_difference():
    cron = Cron("0 9 * * *", "Asia/Kathmandu")
    for hours in (-8, 0, 5):
        zone = timezone(timedelta(hours=hours))
        now = at("2026-05-01T00:00+00:00").astimezone(zone)
        assert cron.after(now) == at("2026-05-01T03:15+00:00")


@pytest.mark.parametrize(
    ("expression", "zone", "advice"),
    [
        ("0 9 * *", "UTC", "Wrong number of fields"),
        ("61 * * * *", "UTC", "Bad minute"),
        ("every day", "UTC", "0 9 * * MON-FRI"),
        ("", "UTC", "minute, hour, day, month and weekday"),
        ("0 0 30 2 *", "UTC", "Bad day-of-month"),
        ("0 0 * 2 MON#6", "UTC", "Bad day-of-week"),
        ("* * * * *", "Mars/Olympus", "not known here"),
        ("* * * * *", "../../etc/passwd", "not known here"),
        ("* * * * *", "", "not known here"),
        (7, "UTC", "are texts"),
        ("* * * * *", timedelta(0), "are texts"),
    ],
)
def test_what_cannot_be_read_is_refused(expression, zone, advice):
    with pytest.raises(InvalidInput, match=advice.replace("*", r"\*")):
        Cron(expression, zone)
