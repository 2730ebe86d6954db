"""Hints as messages."""

import pytest

from holdfast.notifier import EVERYTHING, Hint
from holdfast.notifiers.messages import pack, unpack


@pytest.mark.parametrize("limit", [12, 25, 100, 7_900])
def test_hints_come_back_whole_and_no_message_is_too_long(limit):
    hints = [Hint("work", f"n{i}ä") for i in range(300)]
    messages = pack(hints, limit)
    assert [hint for message in messages for hint in unpack(message)] == hints
    assert max(len(message.encode()) for message in messages) <= limit


def test_messages_are_filled_to_the_brim():
    assert pack([Hint("work", "a"), Hint("work", "b")], 13) == ["work:a\nwork:b"]
    assert pack([Hint("work", "a"), Hint("work", "b")], 12) == ["work:a", "work:b"]


def test_what_is_known_by_its_mark_is_passed_over_and_the_mark_by_who_does_not_know_it():
    hints = [Hint("work", f"n{i}") for i in range(20)]
    messages = pack(hints, 40, "told:me")
    assert len(messages) > 1
    assert max(len(message) for message in messages) <= 40
    assert [hint for message in messages for hint in unpack(message)] == hints
    assert [hint for one in messages for hint in unpack(one, "told:me".__eq__)] == []


def test_what_does_not_fit_becomes_everything_once():
    hints = [Hint("work", "x" * 9), Hint("work", "y" * 9), Hint("cancel", "1")]
    assert pack(hints, 10) == [str(EVERYTHING), "cancel:1"]
