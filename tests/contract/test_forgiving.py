"""Who gets on is forgiven the deaths of its workers, never its own errors."""

from uuid import UUID

import pytest

from holdfast.answers import Step
from holdfast.stores.sql import SqlStore
from holdfast.tasks.task import Claimed, TaskStatus
from tests.contract.acts import (
    HANDED_BACK,
    anew,
    claim,
    claim_one,
    finish,
    put,
    put_one,
    retry,
    snoozed,
    status_of,
    waiting,
)

WORKERS = iter(range(100, 1_000_000))


async def begin(store: SqlStore) -> Claimed:
    """By a worker that nobody has lost anything of."""
    return await claim_one(store, worker=next(WORKERS))


async def get_on(store: SqlStore, task: Claimed) -> None:
    """Record one thing more."""
    steps = (await store.journal(task.lease.task)).steps
    position = 1 + max((step.position for step in steps), default=0)
    await store.record(task.lease, [Step(position=position, name="step", value=b"1")])


async def die(store: SqlStore, clock, *, recorded: bool) -> TaskStatus:
    task = await begin(store)
    if recorded:
        await get_on(store, task)
    await clock.advance(61)
    (lost,) = await store.recover()
    return lost.status


async def rest(store: SqlStore, clock, settlement=None, *, recorded: bool = True) -> None:
    """An attempt that ends well, and is ready again."""
    task = await begin(store)
    if recorded:
        await get_on(store, task)
    await finish(store, task, settlement or waiting(timer=1))
    await clock.advance(1)
    await store.promote()


async def tries_of(store: SqlStore, id: UUID) -> int:
    return (await store.get(id)).try_count


async def test_a_death_after_something_was_recorded_costs_nothing(store, clock):
    id = await put_one(store, max_tries=3)
    for _ in range(10):
        assert await die(store, clock, recorded=True) is TaskStatus.PENDING
        assert await tries_of(store, id) == 0
    ends = [await die(store, clock, recorded=False) for _ in range(3)]
    assert ends == [TaskStatus.PENDING, TaskStatus.PENDING, TaskStatus.FAILED]


async def test_a_death_after_something_was_recorded_forgives_those_before(store, clock):
    id = await put_one(store, max_tries=3)
    for _ in range(5):
        await die(store, clock, recorded=False)
        await die(store, clock, recorded=False)
        assert await tries_of(store, id) == 2
        assert await die(store, clock, recorded=True) is TaskStatus.PENDING
        assert await tries_of(store, id) == 0


ENDS_WELL = {"waiting": waiting(timer=1), "snoozed": snoozed(1), "handed back": HANDED_BACK}


@pytest.mark.parametrize("end", ENDS_WELL.values(), ids=ENDS_WELL)
async def test_whoever_gets_on_and_ends_well_is_forgiven_the_deaths_before(store, clock, end):
    id = await put_one(store, max_tries=3)
    for _ in range(3):
        await die(store, clock, recorded=False)
        await die(store, clock, recorded=False)
        await rest(store, clock, end)
        assert await tries_of(store, id) == 0


async def test_whoever_records_nothing_gets_its_own_try_back(store, clock):
    id = await put_one(store, max_tries=3)
    await rest(store, clock)
    await die(store, clock, recorded=False)
    await die(store, clock, recorded=False)
    await rest(store, clock, recorded=False)
    assert await tries_of(store, id) == 2
    assert await die(store, clock, recorded=False) is TaskStatus.FAILED


async def test_recording_the_same_again_is_not_getting_on(store, clock):
    id = await put_one(store, max_tries=2)
    step = Step(position=1, name="step", value=b"1")
    for expected in (0, 1):
        await store.record((await begin(store)).lease, [step])
        await clock.advance(61)
        await store.recover()
        assert await tries_of(store, id) == expected


async def test_errors_are_not_forgiven(store, clock):
    id = await put_one(store, max_tries=3)
    for errors in (1, 2):
        task = await begin(store)
        await get_on(store, task)
        await finish(store, task, retry())
        await store.promote()
        for _ in range(3):
            await rest(store, clock)
            assert await tries_of(store, id) == errors
            await die(store, clock, recorded=True)
            assert await tries_of(store, id) == errors
    await die(store, clock, recorded=True)
    await rest(store, clock)
    assert await tries_of(store, id) == 2
    await finish(store, await begin(store), retry())
    assert await status_of(store, id) is TaskStatus.FAILED


async def test_an_error_between_deaths_is_not_forgiven(store, clock):
    id = await put_one(store, max_tries=4)
    await die(store, clock, recorded=False)
    await finish(store, await begin(store), retry())
    await store.promote()
    await die(store, clock, recorded=False)
    assert await tries_of(store, id) == 3
    await rest(store, clock)
    assert await tries_of(store, id) == 1


async def test_errors_long_ago_are_remembered_and_so_is_what_was_forgiven(store, clock):
    id = await put_one(store, max_tries=3)
    await finish(store, await begin(store), retry())
    await store.promote()
    for _ in range(120):
        await rest(store, clock)
    await die(store, clock, recorded=False)
    assert await tries_of(store, id) == 2
    await rest(store, clock)
    assert await tries_of(store, id) == 1


async def test_lost_in_company_it_pays_whatever_it_recorded(store, clock):
    """Else one that gets on and kills would take the tries of all others."""
    await put(store, 2, max_tries=3)
    charged = []
    for worker in (1, 2, 3, 4):
        held = await claim(store, worker=worker)
        for task in held:
            await get_on(store, task)
        await clock.advance(61)
        assert len(await store.recover()) == 2
        charged.append([await tries_of(store, task.lease.task) for task in held])
    assert charged == [[0, 0], [1, 1], [2, 2], [3, 3]]


async def test_a_loss_in_company_forgives_nothing(store, clock):
    """It gives back its own try, and no more."""
    id = await put_one(store, max_tries=3)
    await die(store, clock, recorded=False)
    await put_one(store)
    held = await claim(store, worker=next(WORKERS))
    for task in held:
        await get_on(store, task)
    await clock.advance(61)
    await store.recover()
    assert await tries_of(store, id) == 1
    assert all(task.alone for task in await claim(store, worker=next(WORKERS)))


async def test_whoever_ends_well_after_a_loss_in_company_is_like_a_new_one(store, clock):
    first, second = await put(store, 2, max_tries=3)
    await claim(store, worker=next(WORKERS))
    await clock.advance(61)
    await store.recover()
    await store.cancel([second])
    task = await begin(store)
    assert task.alone
    await get_on(store, task)
    await finish(store, task, waiting(timer=1))
    await clock.advance(1)
    again = await begin(store)
    assert (again.lease.task, again.tries, again.alone) == (first, 1, False)


async def test_a_marked_one_stays_marked_when_it_dies_alone_and_pays_nothing(store, clock):
    """It may have killed others: so it is not forgiven what it paid before it ends well."""
    id, other = await put(store, 2, max_tries=3)
    for _ in range(2):
        await claim(store, worker=next(WORKERS))
        await clock.advance(61)
        await store.recover()
    await store.cancel([other])
    for _ in range(5):
        assert await die(store, clock, recorded=True) is TaskStatus.PENDING
        assert await tries_of(store, id) == 1
    task = await begin(store)
    assert task.is_suspect(3)
    await get_on(store, task)
    await finish(store, task, waiting(timer=1))
    assert await tries_of(store, id) == 0


async def test_rests_that_say_nothing_hide_no_error_and_no_death(store, clock):
    """Whoever waits for somebody else's task is put down every few seconds."""
    id = await put_one(store, max_tries=3)
    await finish(store, await begin(store), retry())
    await store.promote()
    for _ in range(2):
        await die(store, clock, recorded=False)
        assert await tries_of(store, id) == 2
        for _ in range(110):
            await rest(store, clock, recorded=False)
        await rest(store, clock)
        assert await tries_of(store, id) == 1


async def test_a_life_that_begins_with_the_fence_of_the_last_counts_its_own_errors(store, clock):
    """Cancelled before it was tried again: two rows of its history have one fence."""
    id = await put_one(store, max_tries=3)
    await finish(store, await begin(store), retry(5))
    await store.cancel([id])
    await store.retry([id])
    await store.promote()
    await die(store, clock, recorded=False)
    await rest(store, clock)
    assert await tries_of(store, id) == 0


async def test_errors_of_a_former_life_do_not_count(store, clock):
    id = await put_one(store, max_tries=2)
    for _ in range(2):
        await finish(store, await begin(store), retry())
        await store.promote()
    assert await status_of(store, id) is TaskStatus.FAILED
    await store.retry([id])
    await die(store, clock, recorded=False)
    assert await tries_of(store, id) == 1
    await rest(store, clock)
    assert await tries_of(store, id) == 0


async def test_errors_of_a_former_run_do_not_count(store, clock):
    id = await put_one(store, max_tries=3)
    await finish(store, await begin(store), retry())
    await store.promote()
    await rest(store, clock, anew(b"[]"), recorded=False)
    assert await tries_of(store, id) == 0
    await die(store, clock, recorded=False)
    await rest(store, clock)
    assert await tries_of(store, id) == 0
