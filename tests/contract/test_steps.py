"""Steps: a recorded step comes back byte for byte, and never changes."""

import asyncio

import pytest

from holdfast.answers import Journal, Step
from holdfast.errors import InvalidInput, JournalConflict, LeaseLost, PayloadRefused
from holdfast.ids import new_id
from tests.contract.acts import claim_one, finish, put_one, retry

A = Step(position=1, name="fetch", value=b'{"n":\x00\xff1}')
B = Step(position=2, name="store", kind="child", value=None)
C = Step(position=10, name="send", value=b"")


async def _held(store):
    id = await put_one(store)
    return id, (await claim_one(store)).lease


async def test_a_task_begins_with_an_empty_journal(store):
    id = await put_one(store)
    assert await store.journal(id) == Journal(steps=[], ages=[])


async def test_steps_come_back_byte_for_byte_in_their_order(store):
    id, lease = await _held(store)
    await store.record(lease, [C, A])
    await store.record(lease, [B])
    assert (await store.journal(id)).steps == [A, B, C]


async def test_steps_outlive_the_attempt(store):
    id, lease = await _held(store)
    await store.record(lease, [A])
    await store.settle([(lease, retry())])
    second = (await claim_one(store)).lease
    await store.record(second, [B])
    assert (await store.journal(id)).steps == [A, B]


async def test_recording_the_same_again_is_accepted_and_writes_nothing(store, dump):
    _, lease = await _held(store)
    await store.record(lease, [A, B])
    before = await dump()
    await store.record(lease, [A, B])
    await store.record(lease, [B])
    assert await dump() == before


async def test_the_same_again_may_come_with_more(store):
    id, lease = await _held(store)
    await store.record(lease, [A])
    await store.record(lease, [A, B])
    assert (await store.journal(id)).steps == [A, B]


@pytest.mark.parametrize(
    "other",
    [
        Step(position=1, name="fetch", value=b"2"),
        Step(position=1, name="fetch", value=None),
        Step(position=1, name="other", value=A.value),
        Step(position=1, name="fetch", kind="child", value=A.value),
    ],
    ids=["value", "no value", "name", "kind"],
)
async def test_another_value_at_a_recorded_position_is_refused(store, dump, other):
    id, lease = await _held(store)
    await store.record(lease, [A])
    signal = new_id()
    await store.send_signal(id, signal, "go", b"1")
    wakes = (await store.news(id, [])).wakes
    before = await dump()
    with pytest.raises(JournalConflict, match="step 1") as refused:
        await store.record(lease, [C, other], consumed=[signal], seen=wakes)
    assert refused.value.positions == (1,)
    assert await dump() == before


@pytest.mark.parametrize("beside", [[], [C]], ids=["alone", "with a new one"])
@pytest.mark.parametrize(
    ("company", "first"),
    [(False, True), (True, True), (True, False)],
    ids=["one", "before others", "among others"],
)
async def test_another_value_of_plain_steps_is_refused_and_harms_nobody_else(
    store, dump, beside, company, first
):
    id, lease = await _held(store)
    other, theirs = await _held(store)
    await store.record(lease, [A])
    before = await dump()
    clash = store.record(lease, [*beside, Step(position=1, name="fetch", value=b"2")])
    asked = [clash]
    if company:  # the first one goes alone, the others together
        asked += [store.record(theirs, [A]), store.record(theirs, [B])]
        asked = asked if first else [asked[1], clash, asked[2]]
    refused, *fine = sorted(
        await asyncio.gather(*asked, return_exceptions=True),
        key=lambda answer: not isinstance(answer, JournalConflict),
    )
    assert isinstance(refused, JournalConflict)
    assert refused.positions == (1,)
    assert [error for error in fine if isinstance(error, BaseException)] == []
    assert (await store.journal(id)).steps == [A]
    assert (await store.journal(other)).steps == ([A, B] if company else [])
    assert company or await dump() == before


@pytest.mark.parametrize("late", [[B], [B, C]], ids=["one step", "two"])
async def test_who_lost_its_lease_writes_nothing_among_others_who_hold_theirs(store, late):
    id, stale = await _held(store)
    await store.settle([(stale, retry())])
    again = (await claim_one(store)).lease
    assert again.task == id
    others = [await _held(store) for _ in range(3)]
    asked = [store.record(lease, [A]) for _, lease in others]
    asked.insert(2, store.record(stale, late))
    answers = await asyncio.gather(*asked, return_exceptions=True)
    assert isinstance(answers.pop(2), LeaseLost)
    assert [error for error in answers if isinstance(error, BaseException)] == []
    assert (await store.journal(id)).steps == []
    assert [(await store.journal(other)).steps for other, _ in others] == [[A]] * 3


async def test_two_values_for_one_position_are_refused(store, dump):
    _, lease = await _held(store)
    before = await dump()
    with pytest.raises(InvalidInput, match="position 1"):
        await store.record(lease, [A, Step(position=1, name="fetch", value=b"2")])
    assert await dump() == before


async def test_journals_are_their_tasks_own(store):
    first, one = await _held(store)
    second, two = await _held(store)
    await store.record(one, [A])
    await store.record(two, [Step(position=1, name="other", value=b"2")])
    assert (await store.journal(first)).steps == [A]
    assert [s.value for s in (await store.journal(second)).steps] == [b"2"]


async def test_a_value_that_is_too_large_is_refused(store, dump):
    _, lease = await _held(store)
    before = await dump()
    with pytest.raises(PayloadRefused, match="over the limit"):
        await store.record(lease, [A, Step(position=2, name="b", value=b" " * (1200 * 1024))])
    assert await dump() == before


@pytest.mark.parametrize("field", ["name", "kind"])
@pytest.mark.parametrize("text", ["", "NUL \0", "half \ud800"], ids=repr)
async def test_names_that_no_database_can_hold_are_refused(store, dump, field, text):
    _, lease = await _held(store)
    before = await dump()
    with pytest.raises(InvalidInput, match=f"step {field}"):
        await store.record(lease, [Step(**{"position": 1, "name": "a", field: text})])
    assert await dump() == before


async def test_many_steps_are_recorded_at_once(store):
    id, lease = await _held(store)
    steps = [Step(position=n, name=f"s{n}", value=str(n).encode()) for n in range(500)]
    await store.record(lease, steps)
    assert (await store.journal(id)).steps == steps
    await store.settle([(lease, retry())])
    await finish(store, await claim_one(store))
    assert (await store.journal(id)).steps == steps


async def test_a_journal_is_read_in_pages_that_fit_into_memory(store):
    """By number, and by bytes: at least one entry, whatever its size."""
    id, lease = await _held(store)
    small = [Step(position=n, name=f"s{n}", value=str(n).encode()) for n in range(7)]
    large = [Step(position=n, name=f"l{n}", value=b"x" * 1024 * 1024) for n in range(7, 16)]
    empty = [Step(position=n, name=f"e{n}", value=None) for n in (20, 30)]
    for step in small, *([step] for step in large), empty:
        await store.record(lease, step)
    found, sizes = [], []
    after: int | None = -1
    while after is not None:
        page = await store.journal_page(id, after=after, limit=5)
        assert page.steps
        found += page.steps
        sizes.append(len(page.steps))
        after = page.next_after
    assert found == [*small, *large, *empty]
    assert sizes == [5, 5, 4, 4]
    assert (await store.journal_page(id, after=30)).steps == []
    for limit in (0, 1001):
        with pytest.raises(InvalidInput, match="a page holds"):
            await store.journal_page(id, limit=limit)


async def test_a_page_of_a_journal_may_be_only_what_asks_for_children(store):
    id, lease = await _held(store)
    kinds = ["child", "step", "came", "child", "holder", "sleep"]
    steps = [Step(position=n, name="s", kind=kind) for n, kind in enumerate(kinds)]
    await store.record(lease, steps)
    page = await store.journal_page(id, after=0, families=True)
    assert page.steps == [steps[3], steps[4]]
    assert page.next_after is None
