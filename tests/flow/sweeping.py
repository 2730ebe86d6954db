"""Workers that are killed with -9 before the n-th SQL statement that they write with, one n after
the other. In processes of their own, forked from one that has imported everything and runs nothing.

    python -m tests.flow.sweeping FOLDER FIRST STRIDE
"""

import asyncio
import json
import logging
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import apsw

from holdfast import Holdfast, RetryPolicy, current

__all__ = ["main"]

PATIENT = RetryPolicy(max_attempts=20, initial_delay=0.0, jitter=0.0)
WANT = ["a", 1, 2, 3, 4, "s1", "s2", "on", "timeout", "z"]
MOST = 2000


class Fuse:
    """Counts statements within transactions that write, once it is lit."""

    def __init__(self, fatal: int | None) -> None:
        self._left = fatal
        self.is_lit = False
        apsw.connection_hooks.append(self._watch)

    def _watch(self, connection: apsw.Connection) -> None:
        def before(cursor: apsw.Cursor, sql: str, bindings: Any) -> bool:
            is_begin = sql.lower().startswith("begin immediate")
            if self.is_lit and (is_begin or connection.in_transaction):
                self._burn()
            return True

        connection.exec_trace = before

    def _burn(self) -> None:
        if self._left is not None:
            self._left -= 1
            if self._left == 0:
                os.kill(os.getpid(), signal.SIGKILL)


def _build(url: str, ledger: Path) -> tuple[Holdfast, Any]:
    app = Holdfast(url)

    async def effect(name: str) -> str:
        with ledger.open("a") as file:
            file.write(f"{name} {current().fence}\n")
        return name

    @app.durable(name="child", retry_policy=PATIENT)
    async def child(i: int) -> int:
        return i

    @app.durable(name="never", retry_policy=PATIENT)
    async def never() -> None:
        await Holdfast.sleep("1d")

    @app.durable(name="flow", retry_policy=PATIENT)
    async def flow() -> list[Any]:
        found: list[Any] = [await Holdfast.step("a", effect, "a")]
        found += await asyncio.gather(child(1), child(2))
        found += await Holdfast.gather(child(3), child(4))
        found += await asyncio.gather(*(Holdfast.step(s, effect, s) for s in ("s1", "s2")))
        await Holdfast.sleep(0.01)
        found.append(await Holdfast.wait_for_signal("go"))
        try:
            await asyncio.wait_for(never(), 0.01)
        except TimeoutError:
            found.append("timeout")
        return [*found, await Holdfast.step("z", effect, "z")]

    return app, flow


async def _work(url: str, folder: Path, fuse: Fuse, task: UUID | None) -> None:
    """Begin a function, or go on with this one; its result is left in a file."""
    app, flow = _build(url, folder / "ledger")
    async with app:
        if task is None:
            handle = await app.dispatch(flow)
            await app.send_signal(handle, "go", "on")
            (folder / "task").write_text(str(handle.id))
            task = handle.id
        lifecycle = app.create_worker_lifecycle()
        serving = asyncio.create_task(
            app.serve(
                lifecycle=lifecycle,
                recovery_interval=0.1,
                poll_interval=0.01,
                poll_interval_max=0.05,
                cleanup_interval=3600,
                drain_timeout=0.0,
            )
        )
        await lifecycle.wait_until_ready()
        fuse.is_lit = True
        found = await app.wait_for(task, timeout=60)
        fuse.is_lit = False
        (folder / "result").write_bytes(found.result or b"null")
        lifecycle.request_drain()
        await serving


def _forked(work: Callable[[], None]) -> int:
    """In a process of its own: how it ended."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)


def _sweep(folder: Path, fatal: int) -> bool:
    """Whether a worker died there; checks that nothing was lost, or done twice."""
    folder.mkdir()
    place = folder / "holdfast.db"
    url = f"sqlite:///{place}"

    def begin() -> None:
        asyncio.run(_work(url, folder, Fuse(fatal), None))

    def go_on() -> None:
        connection = apsw.Connection(str(place))
        connection.execute("update lease set boot_end = 0")
        connection.close()
        task = UUID((folder / "task").read_text())
        asyncio.run(_work(url, folder, Fuse(None), task))

    died = _forked(begin)
    assert died in (0, -signal.SIGKILL), f"statement {fatal}: the worker ended with {died}"
    if died:
        assert _forked(go_on) == 0, f"statement {fatal}: the other worker failed"
    _check(folder, place, fatal)
    return died != 0


def _check(folder: Path, place: Path, fatal: int) -> None:
    found = json.loads((folder / "result").read_bytes())
    assert found == WANT, f"statement {fatal}: {found}"
    connection = apsw.Connection(str(place))
    rows = connection.execute("select name, fence from step where kind = 'step'")
    recorded = {name.removeprefix("step "): fence for name, fence in rows}
    connection.close()
    ran = [line.split() for line in (folder / "ledger").read_text().splitlines()]
    again = [one for one in ran if int(one[1]) > recorded[one[0]]]
    assert not again, f"statement {fatal}: recorded, and run again: {again}"
    assert {name for name, _ in ran} == {"a", "s1", "s2", "z"}


def main(folder: Path, first: int, stride: int) -> int:
    """How many died."""
    logging.disable(logging.CRITICAL)
    for deaths, fatal in enumerate(range(first, MOST, stride)):
        if not _sweep(folder / str(fatal), fatal):
            return deaths
    raise AssertionError(f"more than {MOST} statements")


if __name__ == "__main__":
    print(main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])))
