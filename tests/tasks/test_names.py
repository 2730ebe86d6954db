"""Which names, numbers and delays are let in."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import InvalidInput
from holdfast.tasks.names import (
    PRIORITY_RANGE,
    check_delay,
    check_key,
    check_labels,
    check_name,
    check_priority,
    check_type,
)

GOOD = ["a", "0", "_", "default", "mail.out", "eu-west-1", "a:b/c@d", "A" * 128]
BAD = [
    "", " ", "a b", " a", "a ", "-a", ".a", "/a", "@a", "a\n", "a\0", "é", "a\ud800", "a;b",
    "a'b", 'a"b', "a\\b", "a,b", "A" * 129, "\u202ea", "a\u200b", None, 5, b"a", ["a"],
]  # fmt: skip


@pytest.mark.parametrize("name", GOOD)
def test_a_good_name_comes_back_as_it_is(name):
    assert check_name("queue", name) == name


@pytest.mark.parametrize("name", BAD)
def test_a_bad_name_is_refused_with_the_way_out(name):
    with pytest.raises(InvalidInput, match=r"queue .* is not a name: use 1 to 128"):
        check_name("queue", name)


@pytest.mark.parametrize("name", [*GOOD, "shop.orders:charge", "m:f.<locals>.g", "a+b", "T" * 200])
def test_a_good_type_comes_back_as_it_is(name):
    assert check_type(name) == name


@pytest.mark.parametrize("name", [*(b for b in BAD if b != "A" * 129), "T" * 201, "<lambda>"])
def test_a_bad_type_is_refused_with_an_example(name):
    with pytest.raises(InvalidInput, match=r"shop\.orders:charge"):
        check_type(name)


def test_labels_come_back_sorted_and_each_once():
    assert check_labels("tag", ["b", "a", "b"]) == ("a", "b")
    assert check_labels("tag", iter(())) == ()


def test_a_text_is_no_list_of_labels():
    with pytest.raises(InvalidInput, match="list of names"):
        check_labels("tag", "eu")


def test_labels_are_names_and_at_most_sixteen():
    with pytest.raises(InvalidInput, match="requirement"):
        check_labels("requirement", ["gpu", "no good"])
    assert len(check_labels("tag", [f"t{n}" for n in range(16)])) == 16
    with pytest.raises(InvalidInput, match="at most 16"):
        check_labels("tag", [f"t{n}" for n in range(17)])


@pytest.mark.parametrize("key", ["k", "order 7 / ü / 語 / 🙂", "x" * 255, " ", "\n", "'; drop"])
def test_a_key_may_be_any_text(key):
    assert check_key("key", key) == key


@pytest.mark.parametrize("key", ["", "x" * 256, "a\0b", "\ud800", "a\udfffb", None, 7, b"k"])
def test_a_key_that_a_database_cannot_hold_is_refused(key):
    with pytest.raises(InvalidInput, match="idempotency key"):
        check_key("idempotency key", key)


@given(st.text(min_size=1, max_size=255, alphabet=st.characters(exclude_categories=["Cs"])))
def test_every_accepted_key_can_be_written_as_utf8(key):
    if "\0" not in key:
        assert check_key("key", key).encode().decode() == key


@pytest.mark.parametrize("priority", [*PRIORITY_RANGE, 0, 1, -1])
def test_priorities_in_range_pass(priority):
    assert check_priority(priority) == priority


@pytest.mark.parametrize(
    "priority", [PRIORITY_RANGE[0] - 1, PRIORITY_RANGE[1] + 1, 10**50, 0.5, 1.0, "1", None, True]
)
def test_priorities_out_of_range_or_kind_are_refused(priority):
    with pytest.raises(InvalidInput, match="priority must be a whole number"):
        check_priority(priority)


def test_delays_lie_ahead_and_within_a_hundred_years():
    for good in (timedelta(0), timedelta(microseconds=1), timedelta(days=36_525)):
        assert check_delay("delay", good) == good
    with pytest.raises(InvalidInput, match="must not be negative"):
        check_delay("delay", timedelta(microseconds=-1))
    with pytest.raises(InvalidInput, match="100 years"):
        check_delay("delay", timedelta.max)


@pytest.mark.parametrize("delay", [1, 1.5, "1s", None, float("nan")])
def test_a_delay_is_a_timedelta(delay):
    with pytest.raises(InvalidInput, match="timedelta"):
        check_delay("delay", delay)
