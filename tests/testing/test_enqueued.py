"""What a test expects to be enqueued, and what it is told where it is not."""

import re
from typing import Any

import pytest

from holdfast import Holdfast, InvalidInput
from holdfast.testing import AppUnderTest


@Holdfast.durable(queue="mail")
async def mail(to: str, subject: str = "hello") -> None: ...


@Holdfast.durable
async def order(number: int) -> None:
    await mail(f"{number}@example.org")


async def test_it_finds_calls_however_they_are_spelled(app: AppUnderTest):
    await app.dispatch(mail, "ada@example.org", subject="news")
    app.assert_enqueued(mail)
    (task,) = app.assert_enqueued(mail, args=["ada@example.org", "news"], queue="mail", count=1)
    app.assert_enqueued(mail, kwargs={"subject": "news", "to": "ada@example.org"})
    assert task.queue == "mail"


async def test_what_has_run_is_not_enqueued_any_more(app: AppUnderTest):
    await app.dispatch(mail, "ada@example.org")
    await app.drain()
    app.assert_enqueued(mail, count=0)


async def test_what_is_due_later_is_enqueued(app: AppUnderTest):
    await app.dispatch(mail.options(delay="1d", queue="slow"), "ada@example.org")
    app.assert_enqueued(mail, queue="slow")


async def test_many(app: AppUnderTest):
    await app.dispatch_many([order.call(i) for i in range(1200)])
    app.assert_enqueued(order, count=1200)
    app.assert_enqueued(order, args=[1199], count=1)


async def test_children_are_enqueued_too(app: AppUnderTest):
    app.crash_at(order, after="nothing").happened = True
    await app.pause_queue("mail")
    await app.dispatch(order, 7)
    await app.drain()
    app.assert_enqueued(mail, args=["7@example.org"], count=1)


@pytest.mark.parametrize(
    ("wanted", "complaint"),
    [
        ({"args": [8]}, 'no \\S+:order {"args":[8],"kwargs":{}} is enqueued\nenqueued are:\n'),
        ({"queue": "vip"}, "no \\S+:order is enqueued on queue vip\nenqueued are:\n"),
        ({"count": 2}, "expected 2 times \\S+:order, found 1\nenqueued are:\n"),
        ({"count": 0}, "expected 0 times \\S+:order, found 1\nenqueued are:\n"),
    ],
)
async def test_the_message_lists_what_is_enqueued(app: AppUnderTest, wanted, complaint):
    await app.dispatch(order, 7)
    with pytest.raises(AssertionError) as raised:
        app.assert_enqueued(order, **wanted)
    said = str(raised.value)
    assert re.match(complaint.replace("[", r"\[").replace("{", r"\{"), said), said
    assert re.search(
        r'\n  \S+:order \{"args":\[7\],"kwargs":\{\}\} on queue default, due \d{4}-', said
    )


async def test_the_message_says_where_there_is_nothing(app: AppUnderTest):
    with pytest.raises(AssertionError, match="nothing is enqueued"):
        app.assert_enqueued(order)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ((mail, {"count": -1}), "count must be a whole number"),
        ((mail, {"count": "2"}), "count must be a whole number"),
        (("mail", {}), "takes a durable function, got str"),
    ],
)
def test_what_cannot_be_expected_is_refused(app: AppUnderTest, wrong: tuple[Any, Any], said: str):
    with pytest.raises(InvalidInput, match=said):
        app.assert_enqueued(wrong[0], **wrong[1])
