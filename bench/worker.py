"""`make bench`: workers as real processes against the limit of pure SQL, on both databases.

Every rate is a ratio of two measurements in this run; a promise that is missed fails the run.
"""

import asyncio
import ctypes
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import asyncpg
import msgspec
import uvloop
from tests.servers import Postgres, fresh_database

from bench import floor_postgres, floor_sqlite
from bench.functions import hold, mixed, noop, stamp, wait_and_compute
from bench.measure import Ratio, line, report
from bench.served import Account
from holdfast import Holdfast, TaskHandle
from holdfast.function import Call, Function

TASKS = 100_000
ROUNDS = 5  # of drains: a shared machine changes its pace within minutes
MIXED = 5000
SLOTS = 200
Fresh = Callable[[], Awaitable[str]]


class Process:
    """One worker process."""

    def __init__(self, url: str, slots: int, lease: str = "5m") -> None:
        command = [sys.executable, "-m", "bench.served", url, str(slots), lease]
        self._process = subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, preexec_fn=_dies_with_us
        )
        self.pid = self._process.pid
        assert self._process.stdout
        assert self._process.stdout.readline() == "ready\n", "the worker did not start"

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def drain(self) -> Account:
        self._process.terminate()
        out, _ = self._process.communicate(timeout=60)
        return msgspec.json.decode(out, type=Account)


def _dies_with_us() -> None:
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


@asynccontextmanager
async def producer(url: str) -> AsyncIterator[Holdfast]:
    async with Holdfast(url) as app:
        yield app


async def fill(app: Holdfast, calls: list[Call[None]]) -> TaskHandle[None]:
    """Answers the last of them."""
    made: list[TaskHandle[None]] = []
    for start in range(0, len(calls), 20_000):
        made = await app.dispatch_many(calls[start : start + 20_000])
    return made[-1]


async def drained(
    fresh: Fresh,
    tasks: int,
    processes: int = 1,
    seconds: float | None = None,
    what: Function[[], Any, None] = noop,
    slots: int = SLOTS,
) -> list[Account]:
    """Tasks through worker processes: all of them, or as many as go in so many seconds."""
    url = await fresh()
    async with producer(url) as app:
        last = await fill(app, [what.options(queue="bench").call()] * tasks)
        if url.startswith("postgres"):
            await _execute(url, "vacuum analyze holdfast.ready", "checkpoint")
        await app.pause_queue("bench")  # until all of them are there: to start takes as long
        workers = [await asyncio.to_thread(Process, url, slots) for _ in range(processes)]
        await app.resume_queue("bench")
        if seconds:
            await asyncio.sleep(seconds)
        while not seconds and (await last.state()).finished_at is None:  # cheap to ask
            await asyncio.sleep(0.5)
        while not seconds and await app.queue_depth("bench"):
            await asyncio.sleep(0.5)
        return [await asyncio.to_thread(worker.drain) for worker in workers]


def rate(accounts: list[Account]) -> float:
    begun = [account for account in accounts if account.count]
    span = max(a.last for a in begun) - min(a.first for a in begun)
    return sum(account.count for account in begun) / span


async def throughput(
    name: str, fresh: Fresh, floor: Callable[[], Awaitable[float]], least: float
) -> list[Ratio]:
    ratios, costs, twos = [], [], []
    for _ in range(ROUNDS):
        limit = await floor()
        one = await drained(fresh, TASKS)
        two = await drained(fresh, TASKS, processes=2)
        ratios.append((rate(one), limit))
        costs.append(one[0].cpu / one[0].count * 1e3)
        twos.append((rate(two), rate(one)))
    return [
        _median(f"{name}: drain of no-op tasks, one worker, to the floor", ratios, least=least),
        _median(f"{name}: two worker processes to one", twos, least=1.0),
        _within(f"{name}: CPU of the worker per task", statistics.median(costs), 0.03),
    ]


async def backlog(name: str, fresh: Fresh) -> list[Ratio]:
    pairs = [
        (rate(await drained(fresh, 500_000, seconds=3)), rate(await drained(fresh, 60_000)))
        for _ in range(ROUNDS)
    ]
    return [_median(f"{name}: 500,000 waiting to few", pairs, least=0.9)]


async def occupation(name: str, fresh: Fresh) -> list[Ratio]:
    """Functions that wait and then compute: against as many at a time without any store."""
    pairs = [
        (rate(await drained(fresh, MIXED, what=mixed, slots=100)), await abreast(MIXED, 100))
        for _ in range(2)
    ]
    return [_median(f"{name}: functions that wait and compute, to asyncio", pairs, least=0.7)]


async def abreast(count: int, slots: int) -> float:
    """How many a second."""
    numbers = iter(range(count))

    async def slot() -> None:
        for _ in numbers:
            await wait_and_compute()

    began = time.perf_counter()
    await asyncio.gather(*(slot() for _ in range(slots)))
    return count / (time.perf_counter() - began)


async def latency(name: str, fresh: Fresh, most: float) -> list[Ratio]:
    """From before the dispatch to the first line of the handler, in another process."""
    url = await fresh()
    worker = await asyncio.to_thread(Process, url, 10)
    seen, dispatched = [], []
    async with producer(url) as app:
        await (await app.dispatch(stamp)).result(timeout=30)
        for number in range(300):
            await asyncio.sleep(0.02 + 0.0001 * number)
            before = time.time()
            task = await app.dispatch(stamp)
            dispatched.append((time.time() - before) * 1e3)
            await asyncio.sleep(0.02)
            seen.append((await task.result(timeout=30) - before) * 1e3)
    await asyncio.to_thread(worker.drain)
    after = [pick_up - commit for pick_up, commit in zip(seen, dispatched, strict=True)]
    return [
        _within(f"{name}: pick-up of a lone task, p50", statistics.median(seen), most),
        _within(f"{name}: pick-up of a lone task, p99", _p99(seen), 15.0),
        _within(f"{name}:   of that, after its dispatch was committed", _p99(after), 15.0),
    ]


def _p99(seen: list[float]) -> float:
    return statistics.quantiles(seen, n=100)[98]


async def idleness(name: str, fresh: Fresh, seconds: float = 30) -> list[Ratio]:
    url = await fresh()
    if not url.startswith("postgres"):
        return await _idle(name, url, seconds)
    # Autovacuum's transactions would be counted too.
    await _execute(url, "alter system set autovacuum = off", "select pg_reload_conf()")
    try:
        return await _idle(name, url, seconds)
    finally:
        await _execute(url, "alter system reset autovacuum", "select pg_reload_conf()")


async def _idle(name: str, url: str, seconds: float) -> list[Ratio]:
    worker = await asyncio.to_thread(Process, url, 10)
    await asyncio.sleep(15)  # until it rests as long as it may
    cpu, asked = _cpu_of(worker.pid), await _transactions(url)
    await asyncio.sleep(seconds)
    share = (_cpu_of(worker.pid) - cpu) / seconds * 100
    questions = ((await _transactions(url)) - asked) / seconds
    account = await asyncio.to_thread(worker.drain)
    found = [
        _within(f"{name}: idle worker, CPU", share, 0.5, " %"),
        _within(f"{name}: idle worker, memory", account.memory / 1e6, 60, " MB"),
    ]
    if url.startswith("postgres"):
        found.append(_within(f"{name}: idle worker, queries", questions, 1.0, "/s"))
    return found


async def recovery(name: str, fresh: Fresh) -> list[Ratio]:
    """kill -9 of a worker with a lease of 5 s: until the last of its tasks runs again."""
    url = await fresh()
    async with producer(url) as app:
        doomed = await asyncio.to_thread(Process, url, 50, "5s")
        tasks = await app.dispatch_many([hold.call(60.0) for _ in range(50)])
        while len(await app.active_leases()) < 50:
            await asyncio.sleep(0.05)
        heir = await asyncio.to_thread(Process, url, 100, "5s")
        killed = time.time()
        doomed.kill()
        again = [await task.result(timeout=60) for task in tasks]
        await asyncio.to_thread(heir.drain)
    assert all(fence > 1 for fence, _ in again)
    span = max(began for _, began in again) - killed
    return [_within(f"{name}: kill -9 at a 5 s lease, all granted again", span, 6.5, " s")]


def first_task() -> Ratio:
    code = (
        "import time; began = time.perf_counter()\n"
        "import asyncio, holdfast, tempfile\n"
        "@holdfast.durable(name='first')\n"
        "async def first() -> int: return 1\n"
        "async def main(place):\n"
        "    store = f'sqlite:///{place}/first.db'\n"
        "    async with holdfast.Holdfast.bootstrap(store, serve=True) as app:\n"
        "        assert await (await app.dispatch(first)).result() == 1\n"
        "        print(time.perf_counter() - began)\n"
        "with tempfile.TemporaryDirectory() as place: asyncio.run(main(place))\n"
    )
    run = [sys.executable, "-c", code]
    took = [
        float(subprocess.run(run, check=True, capture_output=True, text=True).stdout)
        for _ in range(5)
    ]
    return _within("from import holdfast to the first result, SQLite", min(took) * 1e3, 500)


def _median(what: str, pairs: list[tuple[float, float]], least: float) -> Ratio:
    return Ratio(
        what=what,
        ours=statistics.median(own for own, _ in pairs),
        reference=statistics.median(limit for _, limit in pairs),
        ratio=statistics.median(own / limit for own, limit in pairs),
        least=least,
    )


def _within(what: str, ours: float, most: float, unit: str = " ms") -> Ratio:
    return Ratio(what=what, ours=ours, reference=most, ratio=ours / most, most=1.0, unit=unit)


def _cpu_of(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


async def _transactions(url: str) -> float:
    if not url.startswith("postgres"):
        return 0.0
    conn = await asyncpg.connect(url)
    sql = "select xact_commit from pg_stat_database where datname = current_database()"
    await asyncio.sleep(1.5)  # until the backends have told their numbers
    count = await conn.fetchval(sql)
    await conn.close()
    return float(count)


async def _execute(url: str, *statements: str) -> None:
    conn = await asyncpg.connect(url)
    for statement in statements:
        await conn.execute(statement)
    await conn.close()


def said(ratios: list[Ratio]) -> list[Ratio]:
    """On the way: the whole run takes minutes."""
    for ratio in ratios:
        print(line(ratio), flush=True)
    return ratios


async def on_postgres(url: str, still: str) -> list[Ratio]:
    """`still`: a database of its own, where the server has nothing to clean up after the others and
    all transactions are the idle worker's."""

    async def fresh() -> str:
        await _execute(url, "drop schema if exists holdfast cascade")
        return url

    async def floor() -> float:
        return float(await floor_postgres.main(url, 1, TASKS))

    async def untouched() -> str:
        return still

    name = "PostgreSQL"
    return [
        *said(await throughput(name, fresh, floor, 0.6)),
        *said(await backlog(name, fresh)),
        *said(await occupation(name, fresh)),
        *said(await latency(name, fresh, 3.5)),
        *said(await recovery(name, fresh)),
        *said(await idleness(name, untouched)),
    ]


async def on_sqlite(folder: Path) -> list[Ratio]:
    number = 0

    def named(options: str) -> Fresh:
        async def fresh() -> str:
            nonlocal number
            number += 1
            return f"sqlite:///{folder}/{number}.db{options}"

        return fresh

    async def floor() -> float:
        return float(await asyncio.to_thread(floor_sqlite.main, str(folder / "floor.db"), TASKS))

    name = "SQLite (FULL)"
    return [
        *said(await throughput(name, named(""), floor, 0.4)),
        *said(await backlog(name, named(""))),
        *said(await occupation(name, named(""))),
        *said(await latency("SQLite (NORMAL)", named("?synchronous=normal"), 2.0)),
        *said(await recovery(name, named(""))),
        *said(await idleness(name, named(""))),
    ]


async def run(server: Postgres, folder: Path) -> list[Ratio]:
    with fresh_database(server) as url, fresh_database(server) as still:
        return [*await on_postgres(url, still), *await on_sqlite(folder), first_task()]


def main() -> int:
    with Postgres.current() as server, tempfile.TemporaryDirectory() as folder:
        ratios = uvloop.run(run(server, Path(folder)))
    return 0 if report(ratios) else 1


if __name__ == "__main__":
    sys.exit(main())
