"""A child in a chain begins before the disk has it: what a crash of the database forgets is asked
for once more, as the same child, and nothing is written behind the gap."""

import asyncio
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import pytest

from holdfast import Holdfast, RetryPolicy, TaskHandle, current
from holdfast.errors import StoreError
from holdfast.flow.recording import Recording
from holdfast.stores.sql import SqlStore
from tests.flow.acts import SOON
from tests.powercut import Disk, disk
from tests.servers import Postgres, fresh_database
from tests.storm.ledger import peek
from tests.work.bench import Bench, until

__all__ = ["disk"]

_RARELY = 300.0  # seconds between what a worker writes by itself, which waits for the disk


class Runs:
    """How often the child ran, as whom, and what its effects were known by."""

    def __init__(self) -> None:
        self.known: list[tuple[UUID, str]] = []
        self.began, self.goes_on = asyncio.Event(), asyncio.Event()

    async def note(self) -> int:
        self.known.append((current().task_id, current().effect_key("charge")))
        self.began.set()
        await self.goes_on.wait()
        return 7


def _family(app: Holdfast, runs: Runs, way: str = "alone", **options: Any) -> Any:
    @app.durable(name="mail", queue="elsewhere")
    async def mail() -> None: ...

    tries = RetryPolicy(max_attempts=1 if way == "one try" else 3, initial_delay=0.01)

    @app.durable(name="child", fenced=way == "fenced", retry_policy=tries)
    async def child(token: str = "") -> int:
        return await runs.note()

    @app.durable(name="parent", **options)
    async def parent() -> int:
        match way:
            case "after a dispatch":
                await app.dispatch(mail)
            case "after a dispatch with a key":
                await app.dispatch(mail.options(idempotency_key=str(current().task_id)))
            case "with a library":
                _library()
        if way != "as the first":
            await Holdfast.step("before", _nothing)
        if way == "with a dispatch":
            await app.dispatch(mail)
        if way == "beside another":
            return (await asyncio.gather(child(), Holdfast.sleep(0.05)))[0]
        return await child(str(current().uuid()) if way == "with a value" else "")

    return parent


_background: list[asyncio.Task[bool]] = []


def _library() -> None:
    """Makes a task of its own with its first use in a process."""
    if not _background:
        _background.append(asyncio.create_task(asyncio.Event().wait()))


async def _nothing() -> None: ...


async def _warmed_up(bench: Bench, parent: Any, runs: Runs) -> None:
    """Then the worker knows what it serves."""
    await bench.start(heartbeat_interval=_RARELY, recovery_interval=_RARELY, queues=["default"])
    await _end(await bench.app.dispatch(parent), runs)


async def _begin(bench: Bench, parent: Any, runs: Runs) -> TaskHandle[int]:
    """Until the child runs."""
    runs.known.clear()
    runs.began.clear()
    runs.goes_on.clear()
    task: TaskHandle[int] = await bench.app.dispatch(parent)
    await runs.began.wait()
    return task


async def _end(task: TaskHandle[int], runs: Runs) -> None:
    runs.goes_on.set()
    assert await task.result(timeout=30) == 7


async def _forgotten(
    bench: Bench, parent: Any, runs: Runs, strike: Callable[[], str]
) -> TaskHandle[int]:
    """One whose child runs and was forgotten by a strike, which answers where to look. Whatever a
    worker writes by itself in between waits for the disk, and all before it: then another try."""
    for _ in range(10):
        task = await _begin(bench, parent, runs)
        before = _children(bench.place)
        if _children(strike()) < before:
            return task
        await _end(task, runs)
    raise AssertionError("it was always on the disk")


def _children(place: str) -> int:
    sql = "select count(*) from {s}task t join {s}lane l on l.id = t.lane where l.type = 'child'"
    return int(peek(place, sql)[0][0])


@pytest.mark.parametrize(
    "way", ["fenced", "with a value", "with a dispatch", "beside another", "as the first"]
)
async def test_a_child_that_might_be_asked_for_otherwise_waits_for_the_disk(
    sqlite_url: str, disk: Disk, way: str
) -> None:
    runs = Runs()
    async with Bench(sqlite_url) as bench:
        parent = _family(bench.app, runs, way)
        await _warmed_up(bench, parent, runs)
        task = await _begin(bench, parent, runs)
        assert _children(str(disk.cut_power(Path(bench.place)))) == _children(bench.place)
        await _end(task, runs)


WAYS = ["alone", "after a dispatch", "after a dispatch with a key", "with a library"]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("life", ["lost", "resumed"])
async def test_after_a_power_cut_the_child_that_was_forgotten_is_asked_for_as_the_same(
    sqlite_url: str, disk: Disk, way: str, life: str
) -> None:
    runs = Runs()
    copies: list[str] = []

    def cut() -> str:
        copies.append(str(disk.cut_power(Path(bench.place))))
        return copies[-1]

    if way == "with a library":
        _library()
    async with Bench(sqlite_url) as bench:
        parent = _family(bench.app, runs, way)
        await _warmed_up(bench, parent, runs)
        task = await _forgotten(bench, parent, runs, cut)
        await _end(task, runs)
    while _background:
        _background.pop().cancel()
    async with Bench(f"sqlite:///{copies[-1]}") as after:
        _family(after.app, runs, way)
        store = await after.store()
        after.lapse(task.id)
        await store.recover()
        if life == "resumed":
            await after.app.cancel(task.id)
            await store.retry([task.id])
        await after.start(queues=["default"])
        assert (await after.app.wait_for(task.id, timeout=30)).result == b"7"
    while _background:
        _background.pop().cancel()
    first, second = runs.known
    assert first == second, "its effects would happen twice"


async def test_a_power_cut_is_forgiven_to_who_got_on_and_has_one_try(
    sqlite_url: str, disk: Disk
) -> None:
    runs, once = Runs(), RetryPolicy(max_attempts=1)
    async with Bench(sqlite_url) as bench:
        parent = _family(bench.app, runs, "as the first", retry_policy=once)
        await _warmed_up(bench, parent, runs)
        task = await _begin(bench, parent, runs)
        copy = disk.cut_power(Path(bench.place))
        await _end(task, runs)
    async with Bench(f"sqlite:///{copy}") as after:
        _family(after.app, runs, "as the first", retry_policy=once)
        after.lapse(task.id)
        after.lapse(runs.known[0][0])
        await after.start()
        assert (await after.app.wait_for(task.id, timeout=30)).result == b"7"


class Forgetful:
    """A server that writes to the disk only where somebody waits for it."""

    def __init__(self, server: Postgres, url: str) -> None:
        self.server, self.url = server, url

    def crash(self) -> str:
        self.server.crash()
        self.server.restart()
        return self.url

    def refuse(self, refuses: bool) -> None:
        """Whether it takes nothing, as a standby does, or a full disk."""
        with psycopg.connect(self.url, autocommit=True) as conn:
            conn.execute("set transaction_read_only = off")
            setting = "on" if refuses else "off"
            conn.execute(f"alter system set default_transaction_read_only = {setting}")
            conn.execute("select pg_reload_conf()")


@pytest.fixture
def forgetful() -> Iterator[Forgetful]:
    with Postgres.current(wal_writer_delay="10s") as server, fresh_database(server) as url:
        yield Forgetful(server, url)


def _is_down(url: str, task: TaskHandle[Any]) -> bool:
    """Whether it is in nobody's memory; its worker may not have found the server again yet."""
    return peek(url, f"select 1 from {{s}}later where id = '{task.id}'") == [(1,)]


@pytest.mark.parametrize("way", ["alone", "one try"])
@pytest.mark.parametrize("goes_on", ["ends", "runs on"])
async def test_a_worker_that_outlives_the_server_writes_nothing_behind_the_gap(
    forgetful: Forgetful, goes_on: str, way: str
) -> None:
    runs = Runs()
    async with Bench(forgetful.url) as bench:
        parent = _family(bench.app, runs, way)
        await _warmed_up(bench, parent, runs)
        task = await _forgotten(bench, parent, runs, forgetful.crash)
        before = _children(forgetful.url)
        if goes_on == "ends":  # its end is refused: there is no such task; it runs again
            runs.goes_on.set()
        await until(lambda: _is_down(forgetful.url, task) or len(runs.known) > 1)
        assert _children(forgetful.url) > before, "it waits for nobody"
        await _end(task, runs)
        assert len(set(runs.known)) == 1


async def test_who_fails_behind_the_gap_asks_for_the_same_again(forgetful: Forgetful) -> None:
    runs = Runs()
    async with Bench(forgetful.url) as bench:
        parent = _family(bench.app, runs, timeout=timedelta(seconds=3), retry_policy=SOON)
        await _warmed_up(bench, parent, runs)

        def crash() -> str:
            forgetful.server.crash()
            time.sleep(3.5)  # the event loop stands still: its time is over before anything else
            forgetful.server.restart()
            return forgetful.url

        await _forgotten(bench, parent, runs, crash)
        await until(lambda: len(runs.known) > 1)
        assert len(set(runs.known)) == 1
        runs.goes_on.set()


async def test_a_server_that_takes_nothing_for_a_while_ends_no_parent(
    forgetful: Forgetful, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = Runs()
    async with Bench(forgetful.url) as bench:
        parent = _family(bench.app, runs, retry_policy=RetryPolicy(max_attempts=1))
        await _warmed_up(bench, parent, runs)
        refused: list[str] = []

        def noting(verb: str) -> Any:
            real = getattr(SqlStore, verb)

            async def call(self: SqlStore, *args: Any, **options: Any) -> Any:
                try:
                    return await real(self, *args, **options)
                except StoreError:
                    refused.append(verb)
                    raise

            return call

        for verb in ("record", "settle"):
            monkeypatch.setattr(SqlStore, verb, noting(verb))
        for _ in range(10):
            task = await _begin(bench, parent, runs)
            forgetful.refuse(True)
            await until(lambda: refused)
            forgetful.refuse(False)
            await until(lambda task=task: _is_down(forgetful.url, task))
            await _end(task, runs)
            if "record" in refused:
                return
            refused.clear()  # the child was not taken here, and was on the disk
    raise AssertionError("it was always on the disk")


async def test_before_a_parent_is_put_down_its_child_is_on_the_disk(
    forgetful: Forgetful, monkeypatch: pytest.MonkeyPatch, no_linger: None
) -> None:
    runs, left = Runs(), []
    write_again = Recording._write_again

    async def among_crashes(self: Recording, last: Any) -> None:
        left.append(_children(forgetful.crash()))
        await write_again(self, last)
        left.append(_children(forgetful.crash()))

    monkeypatch.setattr(Recording, "_write_again", among_crashes)
    async with Bench(forgetful.url) as bench:
        parent = _family(bench.app, runs)
        await _warmed_up(bench, parent, runs)
        for _ in range(10):
            left.clear()
            task = await _begin(bench, parent, runs)
            await until(lambda task=task: _is_down(forgetful.url, task))
            assert _children(forgetful.url) == max(left, default=_children(forgetful.url))
            bench.lapse(runs.known[0][0])  # the worker may have lost it
            await bench.app.reset_expired_leases()
            await _end(task, runs)
            assert len(set(runs.known)) == 1
            if left and left[0] < left[1]:
                return
    raise AssertionError("it was always on the disk")


async def test_in_a_chain_nothing_is_written_twice(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    @bench.app.durable
    async def link(number: int) -> int:
        return number

    @bench.app.durable
    async def chain() -> int:
        return sum([await link(number) for number in range(5)])

    await bench.start(heartbeat_interval=_RARELY, recovery_interval=_RARELY)
    await (await bench.app.dispatch(chain)).result(timeout=30)
    store: Any = await bench.store()
    driver, written = type(store._driver), []
    call = driver.call

    async def and_note(self: Any, verb: str, /, **parameters: Any) -> Any:
        if verb.startswith("record"):
            written.append(verb)
        return await call(self, verb, **parameters)

    monkeypatch.setattr(driver, "call", and_note)
    assert await (await bench.app.dispatch(chain)).result(timeout=30) == 10
    assert len(written) < 10, "once for each, but for those that a busy worker does not take"
