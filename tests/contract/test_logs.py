"""Logs of attempts: in order, bounded, each line once, and only from whoever holds the lease."""

import pytest

from holdfast.errors import InvalidInput, LeaseLost
from holdfast.ids import new_grant, new_id
from holdfast.records import LogLine
from holdfast.tasks.task import Lease
from tests.contract.acts import claim_one, finish, put_one, retry, seconds


def _lines(first: int, count: int, message: str = "line {}") -> list[LogLine]:
    return [
        LogLine(position=n, level="INFO", logger="shop", message=message.format(n))
        for n in range(first, first + count)
    ]


async def _held(store) -> Lease:
    await put_one(store)
    return (await claim_one(store)).lease


async def test_lines_are_read_back_in_order(store):
    lease = await _held(store)
    await store.log(lease, _lines(1, 2))
    await store.log(lease, [])
    line = LogLine(position=3, level="ERROR", logger="shop.pay", message="no\0 money", age=2.5)
    await store.log(lease, [line])
    found = await store.logs(lease.task)
    assert [(r.fence, r.position) for r in found] == [(1, 1), (1, 2), (1, 3)]
    assert [r.message for r in found] == ["line 1", "line 2", "no� money"]
    assert (found[2].level, found[2].logger) == ("ERROR", "shop.pay")
    assert found[1].at - found[2].at == seconds(2.5)
    assert {r.left_out for r in found} == {None}


async def test_each_attempt_has_lines_of_its_own(store):
    id = await put_one(store)
    for _ in range(2):
        claimed = await claim_one(store)
        await store.log(claimed.lease, _lines(1, 2))
        await finish(store, claimed, retry())
    pages = [await store.logs(id, limit=3)]
    pages.append(await store.logs(id, after=(pages[0][-1].fence, pages[0][-1].position)))
    assert [[(r.fence, r.position) for r in page] for page in pages] == [
        [(1, 1), (1, 2), (2, 1)],
        [(2, 2)],
    ]


async def test_a_line_that_is_written_again_is_there_once(store):
    lease = await _held(store)
    await store.log(lease, _lines(1, 3))
    await store.log(lease, _lines(2, 4))
    assert [r.position for r in await store.logs(lease.task)] == [1, 2, 3, 4, 5]


async def test_an_attempt_keeps_a_thousand_lines_and_counts_the_others(store):
    lease = await _held(store)
    for first in range(1, 1000, 300):
        await store.log(lease, _lines(first, 300))
    *kept, last = await store.logs(lease.task, limit=1000) + await store.logs(
        lease.task, after=(1, 1000)
    )
    assert [r.position for r in kept] == list(range(1, 1001))
    assert (last.left_out, last.message) == (200, "")
    for _ in range(2):
        await store.log(lease, _lines(1201, 5))
    (last,) = await store.logs(lease.task, after=(1, 1000))
    assert last.left_out == 205


async def test_an_attempt_keeps_so_many_bytes_and_counts_the_others(store, peek):
    lease = await _held(store)
    long = "ü" * 7000 + "{}"
    for first in (1, 11, 21):
        await store.log(lease, _lines(first, 10, long))
    await store.log(lease, _lines(31, 1, "short"))
    *kept, last = await store.logs(lease.task)
    assert [r.position for r in kept] == list(range(1, 19))
    assert sum(len((r.message + r.logger).encode()) for r in kept) <= 256 * 1024
    assert last.left_out == 31 - 18
    assert await peek("select count(*) from task_log") == [(19,)]


async def test_only_the_holder_writes(store, dump):
    lease = await _held(store)
    before = await dump()
    with pytest.raises(LeaseLost, match="log"):
        await store.log(Lease(lease.task, new_grant(), lease.fence), _lines(1, 1))
    after = await dump()
    assert after.pop("refusal")
    assert after == before


async def test_logs_are_forgotten_with_their_task(store, clock, peek):
    id = await put_one(store)
    claimed = await claim_one(store)
    await store.log(claimed.lease, _lines(1, 3))
    await finish(store, claimed)
    await clock.advance(3601)
    await store.cleanup(seconds(3600))
    assert await store.logs(id) == []
    assert await peek("select count(*) from task_log") == [(0,)]


@pytest.mark.parametrize(
    "lines",
    [_lines(0, 1), _lines(1, 2)[::-1], [*_lines(1, 1), *_lines(3, 1)], _lines(2**31, 1)],
    ids=["zero", "backwards", "a gap", "too far"],
)
async def test_lines_without_an_order_are_refused(store, dump, lines):
    lease = await _held(store)
    before = await dump()
    with pytest.raises(InvalidInput, match="lines"):
        await store.log(lease, lines)
    assert await dump() == before


@pytest.mark.parametrize("age", [-1, float("nan"), float("inf")])
async def test_a_line_that_was_never_written_is_refused(store, age):
    lease = await _held(store)
    line = LogLine(position=1, level="INFO", logger="", message="", age=age)
    with pytest.raises(InvalidInput, match="seconds ago"):
        await store.log(lease, [line])


async def test_the_logs_of_nobody_are_empty(store):
    assert await store.logs(new_id()) == []
    with pytest.raises(InvalidInput, match="1 to 1000"):
        await store.logs(new_id(), limit=0)
