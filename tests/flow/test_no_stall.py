"""Holding branches back in a replay must not keep the function from what another of them gives:
else it would stand still for a minute."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from holdfast import Holdfast
from tests.flow.acts import SOON
from tests.flow.slowly import counted_commits
from tests.work.bench import Bench

WITHIN = 30  # seconds, which is half of that minute


async def twice(bench: Bench, work: Callable[[], Awaitable[None]]) -> None:
    """A function that does this, fails, and is replayed."""
    attempts: list[int] = []

    @bench.app.durable(name="root", retry_policy=SOON)
    async def root() -> int:
        attempts.append(1)
        await work()
        if len(attempts) == 1:
            raise ValueError("once more")
        return len(attempts)

    async with bench.worker():
        task = await bench.app.dispatch(root)
        assert await task.result(timeout=WITHIN) == 2


class Background:
    """A branch that does this again and again, from one plain sleep to the next."""

    def __init__(self, every: float, do: Callable[[], object] = lambda: None) -> None:
        self._every, self._do = every, do

    async def _loop(self) -> None:
        while True:
            await asyncio.sleep(self._every)
            self._do()

    async def __aenter__(self) -> None:
        self._task = asyncio.create_task(self._loop())

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()


async def test_a_heartbeat_beside_a_timeout(bench: Bench) -> None:
    """What the timeout gives up is not given up by the branch that took the last step."""

    @bench.app.durable(name="child")
    async def child() -> None:
        await asyncio.sleep(5)

    async def work() -> None:
        async with Background(0.1):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.55):
                    await child()
            await Holdfast.step("kept", str, "x")

    await twice(bench, work)


async def test_a_flag_that_another_branch_sets(bench: Bench) -> None:
    async def work() -> None:
        tokens: list[int] = []
        async with Background(0.2, lambda: tokens.append(1)):
            for number in range(3):
                while not tokens:
                    await asyncio.sleep(0.01)
                tokens.pop()
                await Holdfast.step(f"token {number}", int, number)

    await twice(bench, work)


async def test_a_thread_that_another_branch_lets_go_on(bench: Bench) -> None:
    async def work() -> None:
        event = threading.Event()
        async with Background(0.3, event.set):
            await asyncio.to_thread(event.wait, 2 * WITHIN)
            await Holdfast.step("kept", str, "x")

    await twice(bench, work)


async def test_a_stream_that_another_branch_writes_to(bench: Bench) -> None:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            writer.write(line)
        writer.close()

    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]

    async def work() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        async with Background(0.2, lambda: writer.write(b"ping\n")):
            for number in range(3):
                await reader.readline()
                await Holdfast.step(f"pong {number}", int, number)
        writer.close()

    try:
        await twice(bench, work)
    finally:
        server.close()


@pytest.mark.parametrize("how", ["sleep", "thread", "lock"])
async def test_what_goes_on_by_itself_is_written_with_what_comes_of_it(
    bench: Bench, how: str
) -> None:
    """And takes no commit of its own."""
    lock = asyncio.Lock()

    async def plainly() -> None:
        match how:
            case "sleep":
                await asyncio.sleep(0.01)
            case "thread":
                await asyncio.to_thread(int)
            case _:
                async with lock:
                    await asyncio.sleep(0.01)

    @bench.app.durable(name="root")
    async def root() -> None:
        async def branch(name: str) -> None:
            for number in range(10):
                await plainly()
                await Holdfast.step(f"{name} {number}", int, number)

        await asyncio.gather(branch("a"), branch("b"))

    commits: list[Any] = await counted_commits(bench)
    async with bench.worker():
        await (await bench.app.dispatch(root)).result(timeout=WITHIN)
    assert len(commits) <= 22  # for twenty steps
