"""`make bench-flows`: durable functions against bare commits of the same database, in one run."""

import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import apsw
import asyncpg
import msgspec
import uvloop
from tests.contract.acts import DONE, MINUTE, WORKER, claim_one, draft, put_one
from tests.servers import Postgres, fresh_database

from bench.measure import Ratio, report, spent
from holdfast import Holdfast, current, durable
from holdfast.answers import Step, Taking
from holdfast.function import Function
from holdfast.ids import new_grant
from holdfast.stores.opening import open_store
from holdfast.stores.sql import SqlStore
from holdfast.tasks.task import Lease

ROUNDS = 5
STEPS, MANY, CHAIN, FAN, LONG = 200, 100, 100, 1000, 10_000
SLOWER = 500  # microseconds more for each flush, and what the timer adds
Commits = Callable[[int], Awaitable[float]]
marks: dict[str, tuple[float, float]] = {}


async def nothing() -> None: ...


@durable(name="flows:steps")
async def steps(count: int) -> None:
    began = time.perf_counter()
    for _ in range(count):
        await Holdfast.step("step", nothing)
    marks[str(current().task_id)] = (began, time.perf_counter())


@durable(name="flows:leaf")
async def leaf(i: int) -> int:
    return i


@durable(name="flows:chain")
async def chain(count: int) -> float:
    began = time.perf_counter()
    for i in range(count):
        await leaf(i)
    return time.perf_counter() - began


@durable(name="flows:fan")
async def fan(count: int) -> float:
    began = time.perf_counter()
    assert sum(await leaf.map(range(count))) == sum(range(count))
    return time.perf_counter() - began


@durable(name="flows:abreast")
async def abreast(count: int) -> float:
    began = time.perf_counter()
    await asyncio.gather(*(Holdfast.step("step", nothing) for _ in range(count)))
    return time.perf_counter() - began


@durable(name="flows:long")
async def long(count: int) -> None:
    began = time.perf_counter()
    for _ in range(count):
        await Holdfast.step("step", nothing)
    marks["long"] = (began, time.perf_counter())
    await Holdfast.wait_for_signal("again")
    marks["again"] = (began, time.perf_counter())


class Alone:
    """The store's own part of a step and of a child, called without a function around it: what no
    engine on this store can go below."""

    def __init__(self, store: SqlStore, lease: Lease) -> None:
        self._store, self._lease, self._position = store, lease, 0

    @classmethod
    @asynccontextmanager
    async def on(cls, url: str) -> AsyncIterator["Alone"]:
        store = await open_store(url)
        try:
            await put_one(store, "flows:alone")
            yield cls(store, (await claim_one(store, lease=60 * MINUTE)).lease)
        finally:
            await store.close()

    async def step(self) -> None:
        await self._store.record(self._lease, [self._entry("step")])

    async def child(self) -> None:
        grant = new_grant()
        taking = Taking(worker=WORKER, grant=grant, lease=MINUTE, most=1, durable=False)
        child = draft("flows:alone", parent=self._lease.task)
        entries = [self._entry("came"), self._entry("child")]
        written = await self._store.record(self._lease, entries, children=[child], taking=taking)
        assert written.leased == {child.id}
        ended = [(Lease(child.id, grant, 1), DONE)]
        assert not await self._store.settle(ended, is_awake=lambda parent: True)

    def _entry(self, kind: str) -> Step:
        self._position += 1
        return Step(position=self._position, kind=kind, name=kind, value=b"null")


@asynccontextmanager
async def serving(url: str) -> AsyncIterator[Holdfast]:
    async with Holdfast.bootstrap(url, serve=True, max_concurrency=200, poll_interval=0.05) as app:
        yield app


async def measured(name: str, url: str, commits: Commits) -> list[Ratio]:
    async with serving(url) as app:
        joined = await (await app.dispatch(fan, FAN)).result()
        children = await ten_times(app, f"{name}: a child", fan)
        abreasts = await ten_times(app, f"{name}: a step", abreast)
        replay = await replayed(app)
    return [
        *await to_commits(name, url, commits),
        _within(f"{name}: fan-out and join of {FAN}", joined * 1e3, 1000),
        children,
        abreasts,
        _within(f"{name}: replay of 1,000 of {LONG:,} steps", replay * 1e3, 100),
    ]


async def ten_times(app: Holdfast, what: str, many: Function[[int], Any, float]) -> Ratio:
    """However many are asked for at once, each takes as long."""
    few, all = [await (await app.dispatch(many, n)).result() / n * 1e3 for n in (FAN, 10 * FAN)]
    return Ratio(
        what=f"{what} of {10 * FAN:,} at once to one of {FAN:,}",
        ours=all, reference=few, ratio=all / few, most=2, unit=" ms",
    )  # fmt: skip


async def to_commits(name: str, url: str, commits: Commits) -> list[Ratio]:
    """What is promised in bare commits."""
    async with serving(url) as app, Alone.on(url) as alone:
        await commits(20)
        await (await app.dispatch(steps, 20)).result()
        rounds = [await one_round(app, commits, alone) for _ in range(ROUNDS)]
    commit, step, many, child, lone_step, lone_child = map(
        statistics.median, zip(*rounds, strict=True)
    )
    to_one = statistics.median(r.step / r.many for r in rounds)
    of_step, of_child, least, least_of_child = (
        statistics.median(getattr(r, name) / r.commit for r in rounds)
        for name in ("step", "child", "lone_step", "lone_child")
    )
    ms = 1e3
    return [
        Ratio(
            what=f"{name}: an inline step to a bare commit",
            ours=step * ms, reference=commit * ms, ratio=of_step, most=1.5, unit=" ms",
        ),
        Ratio(
            what=f"{name}:   of that, the store alone",
            ours=lone_step * ms, reference=commit * ms, ratio=least, unit=" ms",
        ),
        Ratio(
            what=f"{name}: steps of {MANY} functions to those of one",
            ours=1 / many, reference=1 / step, ratio=to_one, least=10,
        ),
        Ratio(
            what=f"{name}: a child in a chain, to bare commits",
            ours=child * ms, reference=commit * ms, ratio=of_child, most=4, unit=" ms",
        ),
        Ratio(
            what=f"{name}:   of that, the store alone",
            ours=lone_child * ms, reference=commit * ms, ratio=least_of_child, unit=" ms",
        ),
    ]  # fmt: skip


class Round(NamedTuple):
    """Seconds for a bare commit, a step, a step among those of many functions, a child; and what
    the store alone takes for a step and for a child."""

    commit: float
    step: float
    many: float
    child: float
    lone_step: float
    lone_child: float


async def one_round(app: Holdfast, commits: Commits, alone: Alone) -> Round:
    commit = await commits(STEPS) / STEPS
    lone_step = await spent(lambda: _times(STEPS, alone.step)) / STEPS
    lone_child = await spent(lambda: _times(CHAIN, alone.child)) / CHAIN
    ((began, ended),) = await spans(app, 1)
    many = await spans(app, MANY)
    together = max(ended for _, ended in many) - min(began for began, _ in many)
    links = await (await app.dispatch(chain, CHAIN)).result() / CHAIN
    step, each = (ended - began) / STEPS, together / (MANY * STEPS)
    return Round(commit, step, each, links, lone_step, lone_child)


async def _times(count: int, call: Callable[[], Awaitable[None]]) -> None:
    for _ in range(count):
        await call()


async def spans(app: Holdfast, count: int) -> list[tuple[float, float]]:
    """When so many functions of some steps each began and ended."""
    tasks = await app.dispatch_many([steps.call(STEPS) for _ in range(count)])
    for each in tasks:
        await each.result()
    return [marks.pop(str(each.id)) for each in tasks]


async def replayed(app: Holdfast) -> float:
    """Seconds for 1,000 steps, in a function that was put down and is picked up again."""
    task = await app.dispatch(long, LONG)
    while (await task.state()).status != "waiting":
        await asyncio.sleep(0.2)
    await app.send_signal(task, "again")
    await task.result()
    began, ended = marks["long"]
    return (ended - began) / LONG * 1000


def _within(what: str, ours: float, most: float) -> Ratio:
    return Ratio(what=what, ours=ours, reference=most, ratio=ours / most, most=1.0, unit=" ms")


async def on_postgres(url: str) -> list[Ratio]:
    """Also with flushes that take longer: where a disk is quick, a commit is mostly computing."""
    conn = await asyncpg.connect(url)
    await conn.execute("create table bare (id int, value bytea)")
    found = await measured("PostgreSQL", url, inserts(conn))
    database = await conn.fetchval("select current_database()")
    for setting, value in (("commit_delay", SLOWER), ("commit_siblings", 0)):
        await conn.execute(f'alter database "{database}" set {setting} = {value}')
    name = "PostgreSQL, slower flushes"
    return found + await to_commits(name, url, inserts(await asyncpg.connect(url)))


def inserts(conn: asyncpg.Connection) -> Commits:
    async def commits(count: int) -> float:
        began = time.perf_counter()
        for i in range(count):
            await conn.execute("insert into bare values ($1, $2)", i, b"null")
        return time.perf_counter() - began

    return commits


async def on_sqlite(folder: Path) -> list[Ratio]:
    return await measured("SQLite", f"sqlite:///{folder}/flows.db", bare_commits(folder))


async def on_sqlite_slower(folder: Path) -> list[Ratio]:
    name = "SQLite, slower flushes"
    return await to_commits(name, f"sqlite:///{folder}/flows.db", bare_commits(folder))


def slower_flushes(folder: Path) -> Path:
    """Nothing in SQLite makes a flush slower: what is loaded before it does."""
    library = folder / "slower_flushes.so"
    source = Path(__file__).with_name("slower_flushes.c")
    compiler = ["cc", f"-DSLOWER={SLOWER}", "-shared", "-fPIC"]
    subprocess.run([*compiler, "-o", library, source, "-ldl"], check=True)
    return library


def slowed_down(library: Path, folder: Path) -> list[Ratio]:
    """`on_sqlite_slower` in a process of its own."""
    printed = subprocess.run(
        [sys.executable, "-m", "bench.flows", folder],
        env=os.environ | {"LD_PRELOAD": str(library)}, stdout=subprocess.PIPE, check=True,
    ).stdout  # fmt: skip
    return msgspec.json.decode(printed, type=list[Ratio])


def bare_commits(folder: Path) -> Commits:
    conn = apsw.Connection(str(folder / "bare.db"))
    conn.execute("pragma journal_mode = wal").fetchall()
    conn.execute("pragma synchronous = full; create table bare (a, b)")

    async def commits(count: int) -> float:
        began = time.perf_counter()
        for i in range(count):
            conn.execute("insert into bare values (?, ?)", (i, b"null"))
        return time.perf_counter() - began

    return commits


async def run(server: Postgres, folder: Path) -> list[Ratio]:
    with fresh_database(server) as url:
        return [*await on_postgres(url), *await on_sqlite(folder)]


def main() -> int:
    if len(sys.argv) > 1:  # as `slowed_down` calls it
        print(msgspec.json.encode(uvloop.run(on_sqlite_slower(Path(sys.argv[1])))).decode())
        return 0
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other:
        library = slower_flushes(Path(other))
        with Postgres.current() as server:
            ratios = uvloop.run(run(server, Path(one)))
        ratios += slowed_down(library, Path(other))
    return 0 if report(ratios) else 1


if __name__ == "__main__":
    sys.exit(main())
