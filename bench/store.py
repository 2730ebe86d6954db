"""`make bench-store`: the store against the limit of pure SQL, on both databases.

Every figure is a ratio of two measurements in this run; a promise that is missed fails the run.
"""

import asyncio
import functools
import statistics
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import asyncpg
import uvloop
from tests.servers import Postgres, fresh_database

from bench import floor_postgres, floor_sqlite
from bench.measure import Ratio, compare, report, spent
from bench.workload import claim_times, drafts, drain, fill, one_by_one
from holdfast.stores.opening import open_store
from holdfast.stores.sql import SqlStore

TASKS = 60_000
COPIED = ("id", "lane", "np", "payload")


@asynccontextmanager
async def postgres_store(url: str) -> AsyncIterator[SqlStore]:
    await _execute(url, "drop schema if exists holdfast cascade")
    store = await open_store(url)
    try:
        yield store
    finally:
        await store.close()


@asynccontextmanager
async def sqlite_store(folder: Path) -> AsyncIterator[SqlStore]:
    with tempfile.TemporaryDirectory(dir=folder) as place:
        store = await open_store(f"sqlite:///{place}/bench.db")
        try:
            yield store
        finally:
            await store.close()


async def drain_postgres(url: str, in_flight: int) -> float:
    async with postgres_store(url) as store:
        await fill(store, TASKS)
        await _execute(url, "vacuum analyze holdfast.ready", "checkpoint")
        return await drain(store, TASKS, in_flight)


async def drain_sqlite(folder: Path) -> float:
    async with sqlite_store(folder) as store:
        await fill(store, TASKS)
        return await drain(store, TASKS)


async def floor_of_sqlite(folder: Path) -> float:
    return await asyncio.to_thread(floor_sqlite.main, str(folder / "floor.db"), TASKS)


async def enqueue_in_bulk(url: str) -> float:
    async with postgres_store(url) as store:
        parts = [drafts(20_000) for _ in range(3)]
        await store.enqueue(drafts(1))

        async def work() -> None:
            for part in parts:
                await store.enqueue(part)

        return TASKS / await spent(work)


async def copy_into_one_table(url: str, order: bool) -> float:
    """The same rows into one table with their key and, as a queue in one table needs it, their
    order."""
    async with postgres_store(url):
        conn = await asyncpg.connect(url)
        await conn.execute("create table holdfast.copied (like holdfast.task, primary key (id))")
        await conn.execute("alter table holdfast.copied alter created_at set default now()")
        await conn.execute("alter table holdfast.copied alter cancel_requested set default false")
        if order:
            await conn.execute("create index on holdfast.copied (lane, np, id)")
        parts = [drafts(20_000) for _ in range(3)]

        async def work() -> None:
            for part in parts:
                records = [(draft.id, 1, 0, draft.payload) for draft in part]
                await conn.copy_records_to_table(
                    "copied", schema_name="holdfast", columns=COPIED, records=records
                )

        seconds = await spent(work)
        await conn.close()
        return TASKS / seconds


async def growth(name: str, small: SqlStore, waiting: SqlStore, finished: SqlStore) -> list[Ratio]:
    """A claim among many must cost what it costs among few."""
    for store in (small, finished):
        await fill(store, 10_000)
    await fill(waiting, 1_000_000)
    times = await claim_times([small, waiting, finished])
    few, many, beside = (statistics.median(seconds) * 1e3 for seconds in times)
    return [
        Ratio(what=what, ours=own, reference=few, ratio=own / few, most=1.5, unit=" ms")
        for what, own in (
            (f"{name}: claim of 100, 1,000,000 waiting to 10,000", many),
            (f"{name}: claim of 100, 1,000,000 finished beside", beside),
        )
    ]


async def on_postgres(url: str, others: list[str]) -> list[Ratio]:
    ratios = [
        await compare(
            "PostgreSQL: claim + settle, to floor_postgres (1 client)",
            functools.partial(drain_postgres, url, 2),
            functools.partial(floor_postgres.main, url, 1, TASKS),
            least=0.6,
        ),
        await compare(
            "PostgreSQL: the same, one batch after the other",
            functools.partial(drain_postgres, url, 1),
            functools.partial(floor_postgres.main, url, 1, TASKS),
            least=0.45,
        ),
        await compare(
            "PostgreSQL: enqueue in bulk, to COPY into one table",
            functools.partial(enqueue_in_bulk, url),
            functools.partial(copy_into_one_table, url, order=True),
            least=0.4,
        ),
        await compare(
            "PostgreSQL: the same, to COPY into one table without order",
            functools.partial(enqueue_in_bulk, url),
            functools.partial(copy_into_one_table, url, order=False),
            least=0.3,
        ),
    ]
    async with postgres_store(url) as store:
        ratios.append(await shared_commits("PostgreSQL", store))
    async with AsyncExitStack() as stack:
        small, waiting, finished = [
            await stack.enter_async_context(postgres_store(place)) for place in (url, *others)
        ]
        await fill(finished, 1_000_000)
        await _finish(others[1])
        ratios += await growth("PostgreSQL", small, waiting, finished)
    return ratios


async def on_sqlite(folder: Path) -> list[Ratio]:
    ratios = [
        await compare(
            "SQLite (FULL): claim + settle, to floor_sqlite",
            functools.partial(drain_sqlite, folder),
            functools.partial(floor_of_sqlite, folder),
            least=0.5,
        )
    ]
    async with sqlite_store(folder) as store:
        ratios.append(await shared_commits("SQLite (FULL)", store))
    async with AsyncExitStack() as stack:
        small, waiting, finished = [
            await stack.enter_async_context(sqlite_store(folder)) for _ in range(3)
        ]
        await fill(finished, 1_000_000)
        await drain(finished, 1_000_000)
        ratios += await growth("SQLite", small, waiting, finished)
    return ratios


async def shared_commits(name: str, store: SqlStore) -> Ratio:
    return await compare(
        f"{name}: enqueue one by one, 100 callers to 1",
        functools.partial(one_by_one, store, 100),
        functools.partial(one_by_one, store, 1),
        least=8.0,
        rounds=3,
    )


def import_time() -> Ratio:
    """`import holdfast` in a fresh interpreter, less the interpreter's own start."""
    took = {
        code: min(_milliseconds(code) for _ in range(7)) for code in ("import holdfast", "pass")
    }
    own = took["import holdfast"] - took["pass"]
    return Ratio(
        what="import holdfast, to 150 ms",
        ours=own,
        reference=150,
        ratio=own / 150,
        most=1.0,
        unit=" ms",
    )


def _milliseconds(code: str) -> float:
    timed = f"import time; s = time.perf_counter(); {code}; print(time.perf_counter() - s)"
    out = subprocess.run([sys.executable, "-c", timed], capture_output=True, check=True, text=True)
    return float(out.stdout) * 1e3


async def _finish(url: str) -> None:
    """What waits is done: the same rows as after a settle, a million of them at once."""
    await _execute(
        url,
        "with gone as (delete from holdfast.ready returning id) "
        "insert into holdfast.outcome (id, finished_at, fence, tries, state, ended_by, result) "
        "select id, now(), 1, 1, 'done', 'holder', 'null' from gone",
        "vacuum analyze",
    )


async def _execute(url: str, *statements: str) -> None:
    conn = await asyncpg.connect(url)
    for statement in statements:
        await conn.execute(statement)
    await conn.close()


async def run(server: Postgres, folder: Path) -> list[Ratio]:
    with fresh_database(server) as url, fresh_database(server) as a, fresh_database(server) as b:
        return [*await on_postgres(url, [a, b]), *await on_sqlite(folder), import_time()]


def main() -> int:
    with Postgres.current() as server, tempfile.TemporaryDirectory() as folder:
        ratios = uvloop.run(run(server, Path(folder)))
    return 0 if report(ratios) else 1


if __name__ == "__main__":
    sys.exit(main())
