"""Real processes for the storms: started together, heard out, never waited for without end."""

import asyncio
import multiprocessing
import queue
import time
import traceback
from collections.abc import Callable, Sequence
from typing import Any

from holdfast.stores.sql import SqlStore

# Never forked from here, where a database may be open: SQLite's locks would be shared. They come
# from a server process that has nothing open and has already imported what they need.
SPAWN = multiprocessing.get_context("forkserver")
SPAWN.set_forkserver_preload(
    [
        "holdfast.stores.postgres.driver",
        "holdfast.stores.sqlite.driver",
        "tests.storm.hand",
        "tests.storm.ledger",
    ]
)


def open_store(place: str, connections: int = 2) -> SqlStore:
    """The store at a PostgreSQL URL or in an SQLite file."""
    if place.startswith("postgresql:"):
        from holdfast.stores.postgres.driver import PostgresDriver

        return SqlStore(PostgresDriver(place, connections=connections))
    from holdfast.stores.sqlite.driver import SqliteDriver

    return SqlStore(SqliteDriver(place))


def race(work: Callable[..., Any], each: Sequence[tuple[Any, ...]], *, within: float) -> list[Any]:
    """Run the coroutine function `work` in one process per tuple of arguments, all at once;
    answers what each returned. The first error of any of them is raised here."""
    answers = SPAWN.Queue()
    start = SPAWN.Barrier(len(each))
    children = [
        SPAWN.Process(target=_child, args=(work, args, start, answers), daemon=True)
        for args in each
    ]
    for child in children:
        child.start()
    try:
        return _collect(answers, len(each), time.monotonic() + within)
    finally:
        for child in children:
            child.join(20)
            if child.is_alive():
                child.kill()
                child.join(20)
            child.close()
        answers.close()


def _collect(answers: Any, count: int, deadline: float) -> list[Any]:
    found: list[Any] = []
    while len(found) < count:
        try:
            answer, error = answers.get(timeout=max(deadline - time.monotonic(), 0.01))
        except queue.Empty:
            raise TimeoutError(f"only {len(found)} of {count} processes came to an end") from None
        if error is not None:
            raise AssertionError(f"a process failed:\n{error}")
        found.append(answer)
    return found


def _child(work: Callable[..., Any], args: tuple[Any, ...], start: Any, answers: Any) -> None:
    try:
        start.wait(100)
        answers.put((asyncio.run(work(*args)), None))
    except BaseException:
        answers.put((None, traceback.format_exc()))
