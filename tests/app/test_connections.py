"""How many connections a worker opens on PostgreSQL: what docs/howto/operate.md promises."""

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path

import asyncpg
import pytest

from holdfast import Holdfast, current
from tests.app.conftest import until
from tests.servers import fresh_database

PAGE = (Path(__file__).parents[2] / "docs/howto/operate.md").read_text()
OWN = 12  # claims and settles 8, renewals 2, hints 2
SIZE, SLOTS = 3, 10


@pytest.fixture
async def outside(postgres_current) -> AsyncIterator[tuple[str, asyncpg.Connection]]:
    with fresh_database(postgres_current) as url:
        conn = await asyncpg.connect(url)
        yield url, conn
        await conn.close()


async def opened(conn: asyncpg.Connection) -> int:
    """By others than the one who asks."""
    found: int = await conn.fetchval(
        "select count(*) from pg_stat_activity "
        "where datname = current_database() and pid <> pg_backend_pid()"
    )
    return found


async def in_transactions(conn: asyncpg.Connection) -> int:
    found: int = await conn.fetchval(
        "select count(*) from pg_stat_activity where datname = current_database() "
        "and state = 'idle in transaction'"
    )
    return found


async def test_a_worker_opens_no_more_than_the_page_says(outside):
    url, conn = outside
    app = Holdfast(url, pool_size=SIZE)
    go = asyncio.Event()

    @app.durable(name="own")
    async def own() -> None:
        async with current().transaction() as mine:
            await mine.execute("select 1")
            await go.wait()

    @app.durable(name="steps")
    async def steps(n: int) -> int:
        return await Holdfast.step("a", len, "x" * n)

    async with app:
        lifecycle = app.create_worker_lifecycle("w")
        working = asyncio.create_task(
            app.serve(lifecycle=lifecycle, max_concurrency=SLOTS, poll_interval=0.02)
        )
        held = await app.dispatch_many([own.call() for _ in range(SLOTS - 2)])

        async def all_taken() -> bool:
            return await in_transactions(conn) == SIZE

        await until(all_taken)
        quick = await app.dispatch_many([steps.call(n) for n in range(100)])
        most = 0
        while quick:
            most = max(most, await opened(conn))
            assert await in_transactions(conn) <= SIZE
            if (await quick[0].state()).status == "done":
                quick.pop(0)
        go.set()
        for task in held:
            await task.result(timeout=60)
        lifecycle.request_drain()
        await working
    assert SIZE < most <= OWN + SIZE


def test_the_page_has_the_formula():
    assert re.search(rf"{OWN} \+ min\(pool size, slots\)", PAGE)
    assert "--pool-size" in PAGE


def test_a_flag_goes_before_the_code_and_the_code_before_the_environment(monkeypatch, tmp_path):
    from holdfast.cli.loading import app_at

    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "sized.py").write_text(
        "from holdfast import Holdfast\napp = Holdfast(pool_size=4)\n"
    )
    monkeypatch.setenv("HOLDFAST_POOL_SIZE", "5")
    assert Holdfast().home.pool_size == 5
    assert app_at(None, "sized").home.pool_size == 4
    assert app_at(None, "sized", pool_size=6).home.pool_size == 6
