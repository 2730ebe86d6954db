"""What a claim reads where much was taken, lanes are many or priorities differ; never how long."""

import json
from collections.abc import AsyncIterator, Iterator, Sequence
from datetime import timedelta
from typing import NamedTuple
from uuid import uuid4

import asyncpg
import pytest
import pytest_asyncio

from holdfast.ids import new_id
from holdfast.stores.sql import SqlStore
from holdfast.tasks.task import Claimed, Draft
from tests.plans.explained import Explained
from tests.servers import AnyPostgres, fresh_database

pytestmark = pytest.mark.asyncio(loop_scope="module")

LEASE = timedelta(minutes=5)
CLAIM = """
explain (analyze, buffers, format json)
select ids from holdfast.claim(1, $1, $2, null, $3, 60, null, false, $4)
"""


STANDS_STILL = """
create or replace function holdfast.clock() returns timestamptz
language sql as 'select timestamptz ''2030-01-01'' '
"""
ENTRIES = "select pg_stat_get_xact_tuples_returned('holdfast.ready_order'::regclass)"


class Weight(NamedTuple):
    pages: int
    entries: int  # of the lanes' index


class Bench:
    """A store of its own, emptied for each test, whose claims can be weighed."""

    def __init__(self, url: str, driver: Explained, conn: asyncpg.Connection) -> None:
        self.url, self.driver, self.conn = url, driver, conn
        self.store = SqlStore(driver, share_commits=False)

    async def fill(self, tasks: Sequence[tuple[int, int]]) -> None:
        """Tasks of numbered lanes, with their priorities."""
        drafts = [Draft(id=new_id(), type=f"job:{n}", priority=p) for n, p in tasks]
        await self.store.enqueue(drafts)

    async def claim(self, want: int) -> list[Claimed]:
        lanes = list((await self.store.lanes()).lanes)
        answer = await self.store.claim(worker=1, lanes=lanes, want=want, lease=LEASE)
        assert len(answer.tasks) == want
        return answer.tasks

    async def weigh(self, want: int) -> Weight:
        """What the next claim would read; it is rolled back."""
        lanes = sorted((await self.store.lanes()).lanes)
        transaction = self.conn.transaction()
        await transaction.start()
        try:
            memory, before = self.store._memory, await self.conn.fetchval(ENTRIES)
            plan = json.loads(await self.conn.fetchval(CLAIM, uuid4(), lanes, want, memory))
            entries = await self.conn.fetchval(ENTRIES) - before
        finally:
            await transaction.rollback()
        top = plan[0]["Plan"]
        return Weight(top["Shared Hit Blocks"] + top["Shared Read Blocks"], entries)


@pytest.fixture(scope="module")
def url(postgres_current: AnyPostgres) -> Iterator[str]:
    with fresh_database(postgres_current) as url:
        yield url


@pytest_asyncio.fixture(loop_scope="module")
async def bench(url: str) -> AsyncIterator[Bench]:
    conn = await asyncpg.connect(url)
    driver = Explained(url, conn)
    await driver.migrate()
    await conn.execute("truncate holdfast.task, holdfast.ready, holdfast.lease, holdfast.lane")
    await conn.execute("alter table holdfast.ready set (autovacuum_enabled = off)")
    await conn.execute(STANDS_STILL)  # else a slow machine would see what holds for a second end
    yield Bench(url, driver, conn)
    await driver.close()
    await conn.close()


@pytest_asyncio.fixture(loop_scope="module")
async def reader(url: str) -> AsyncIterator[asyncpg.Connection]:
    """Somebody who looks at an old state for very long."""
    conn = await asyncpg.connect(url)
    transaction = conn.transaction(isolation="repeatable_read")
    await transaction.start()
    await conn.fetch("select 1")
    yield conn
    await conn.close()


@pytest.mark.parametrize("lanes", [1, 10])
async def test_a_claim_reads_no_more_where_much_was_taken_before_an_old_snapshot(
    bench: Bench, reader: asyncpg.Connection, lanes: int
) -> None:
    await bench.fill([(n % lanes, n // lanes % 2) for n in range(23_000)])
    for _ in range(20):
        await bench.claim(1000)
    await bench.claim(100)
    assert (await bench.weigh(100)).entries < 300 + 10 * lanes


async def test_a_lane_that_was_emptied_before_an_old_snapshot_is_not_read_again(
    bench: Bench, reader: asyncpg.Connection
) -> None:
    await bench.fill([(n % 2, 0) for n in range(20_000)])
    for _ in range(20):
        await bench.claim(1000)
    await bench.fill([(1, 0)] * 300)
    await bench.claim(100)
    assert (await bench.weigh(100)).entries < 300


async def test_a_claim_reads_only_the_lanes_that_hold_something(bench: Bench) -> None:
    await bench.fill([(n, 0) for n in range(5000)])
    for _ in range(5):
        await bench.claim(1000)
    await bench.conn.execute("vacuum holdfast.ready")
    await bench.fill([(n, 0) for n in range(0, 5000, 500) for _ in range(20)])
    assert (await bench.weigh(10)).pages < 500


async def test_a_claim_reads_a_window_where_very_many_lanes_hold_something(bench: Bench) -> None:
    await bench.fill([(n, 0) for n in range(4000)])
    await bench.conn.execute("vacuum holdfast.ready")
    assert (await bench.weigh(10)).pages < 10_000


@pytest.mark.parametrize("each", [1, 10])
async def test_many_priorities_are_taken_in_a_few_rounds(bench: Bench, each: int) -> None:
    await bench.fill([(n, n) for n in range(300) for _ in range(each)])
    await bench.driver.start()
    lanes = list((await bench.store.lanes()).lanes)
    bench.driver.take()
    await bench.store.claim(worker=1, lanes=lanes, want=300, lease=LEASE)
    looks = bench.driver.take()
    taking = [
        k for k in looks if k.table == "ready" and "delete from holdfast.ready" in k.statement
    ]
    rounds = sum(look.how == "Tid Scan" for look in taking)
    assert 1 <= rounds <= 8
