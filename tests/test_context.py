"""What a function may know of its attempt."""

import asyncio
import contextvars

import pytest

from holdfast.context import current, entered, running
from holdfast.errors import HoldfastError, PayloadRefused, TaskCancelled
from holdfast.registry import Registry
from tests.executors.acts import MemoryKeeper, attempt


@Registry().durable
async def function() -> None: ...


def test_outside_of_a_task_there_is_none():
    assert entered() is None
    with pytest.raises(HoldfastError, match=r"current\(\) works inside a durable function"):
        current()


async def test_each_asyncio_task_sees_its_own():
    async def seen(context):
        running.set(context)
        await asyncio.sleep(0)
        return current()

    contexts = [attempt(function) for _ in range(3)]
    assert await asyncio.gather(*map(seen, contexts)) == contexts
    assert entered() is None


async def test_an_effect_key_is_the_same_in_every_attempt_and_for_no_other_task():
    one, other = attempt(function), attempt(function)
    assert one.effect_key("smtp") == one.effect_key("smtp")
    assert len({one.effect_key("smtp"), one.effect_key("sms"), other.effect_key("smtp")}) == 3


async def test_a_cancel_request_is_raised_where_it_is_asked_for_and_told_once():
    context = attempt(function)
    told = []
    context.when_cancelled(lambda: told.append(1))
    context.check_cancelled()
    assert told == []
    context.cancel_requested = True
    assert told == [1]
    with pytest.raises(TaskCancelled, match=str(context.task_id)):
        context.check_cancelled()


async def test_a_cancel_request_that_was_there_before_is_told_too():
    context = attempt(function, cancel_requested=True)
    told = []
    context.when_cancelled(lambda: told.append(1))
    assert told == [1]
    context.when_cancelled(None)
    context.cancel_requested = True
    assert told == [1]


async def test_what_was_saved_comes_back_as_asked_for():
    keeper = MemoryKeeper()
    context = attempt(function, keeper=keeper)
    assert await context.saved() is None
    await context.progress(10, save={"row": 5})
    assert keeper.reports == [(10, None, b'{"row":5}')]
    assert await context.saved(dict[str, int]) == {"row": 5}
    with pytest.raises(PayloadRefused):
        await context.saved(list[int])


async def test_what_cannot_be_saved_is_refused_before_it_is_sent():
    keeper = MemoryKeeper()
    with pytest.raises(PayloadRefused):
        attempt(function, keeper=keeper).progress(10, save=object())
    assert keeper.reports == []


async def test_saved_sync_never_waits_on_a_keeper_that_does():
    class Waiting(MemoryKeeper):
        async def saved(self) -> bytes | None:
            await asyncio.sleep(0)
            return None

    context = attempt(function, keeper=Waiting())

    def outside() -> None:
        with pytest.raises(HoldfastError):
            context.saved_sync()

    await asyncio.to_thread(contextvars.Context().run, outside)
