"""Chores that one process does for all: of those who ask, one gets the turn."""

import asyncio
from datetime import timedelta

import pytest

from holdfast.errors import InvalidInput
from tests.contract.acts import seconds

HOUR = timedelta(hours=1)


async def test_one_of_many_processes_gets_the_turn(store, keeper, clock):
    processes = [keeper.store() for _ in range(8)]
    for _ in range(3):
        answers = await asyncio.gather(*(p.take_turn("cleanup", HOUR) for p in processes))
        assert sorted(answers) == [False] * 7 + [True]
        await clock.advance(3600)


async def test_the_next_turn_comes_when_the_last_is_over(store, keeper, clock):
    other = keeper.store()
    assert await store.take_turn("cleanup", HOUR)
    await clock.advance(3599)
    assert not await store.take_turn("cleanup", HOUR)
    assert not await other.take_turn("cleanup", HOUR)
    await clock.advance(1)
    assert await other.take_turn("cleanup", HOUR)
    assert not await store.take_turn("cleanup", HOUR)


async def test_a_refused_question_does_not_put_the_turn_off(store, clock):
    assert await store.take_turn("cleanup", HOUR)
    for _ in range(3):
        await clock.advance(1000)
        assert not await store.take_turn("cleanup", HOUR)
    await clock.advance(600)
    assert await store.take_turn("cleanup", HOUR)


async def test_each_chore_has_turns_of_its_own(store):
    assert await store.take_turn("cleanup", HOUR)
    assert await store.take_turn("roll-up", HOUR)
    assert not await store.take_turn("cleanup", HOUR)


async def test_a_shorter_interval_holds_at_once(store):
    assert await store.take_turn("cleanup", timedelta(days=1))
    assert await store.take_turn("cleanup", seconds(60))
    assert not await store.take_turn("cleanup", seconds(60))


async def test_a_clock_that_was_set_back_stops_no_chore(store, clock):
    assert await store.take_turn("cleanup", HOUR)
    await clock.advance(-86_400)
    assert await store.take_turn("cleanup", HOUR)
    assert not await store.take_turn("cleanup", HOUR)


@pytest.mark.parametrize(
    ("chore", "every", "advice"),
    [
        ("", HOUR, "chore"),
        ("a b", HOUR, "chore"),
        ("a", seconds(0), "every"),
        ("a", -HOUR, "every"),
    ],
)
async def test_turns_that_make_no_sense_are_refused(store, dump, chore, every, advice):
    before = await dump()
    with pytest.raises(InvalidInput, match=advice):
        await store.take_turn(chore, every)
    assert await dump() == before
