"""Fixtures for all tests: the real servers, and databases on them."""

import ast
import asyncio
import contextlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import pytest

from holdfast import Holdfast
from tests import servers
from tests.servers import AnyPostgres, GivenPostgres, MissingPart, PgBouncer, Postgres, Valkey

T = TypeVar("T")
NOT_RUN = "NOT RUN: "
pytest_plugins = ["pytester"]


def _live_in_memory(place: Path = Path("/dev/shm"), room: int = 4 << 30) -> None:
    """All files of the tests, where there is room: a disk that stands still for seconds, under two
    servers and hundreds of databases, would be judged instead of the code. Unless TMPDIR is set."""
    with contextlib.suppress(OSError):
        if "TMPDIR" not in os.environ and shutil.disk_usage(place).free > room:
            home = place / f"holdfast-tests-{os.getuid()}"
            home.mkdir(mode=0o711, exist_ok=True)
            os.environ["TMPDIR"] = tempfile.tempdir = str(home)


_live_in_memory()
_parse = ast.parse


def _parse_again(*args: Any, **kwargs: Any) -> Any:
    """Python 3.11 may fail where two threads parse at once (gh-106905), as tracebacks do."""
    for _ in range(5):
        with contextlib.suppress(SystemError):
            return _parse(*args, **kwargs)
    return _parse(*args, **kwargs)


ast.parse = _parse_again


def need(find: Callable[[], T]) -> T:
    """What `find` finds; where a part is missing the test is skipped, loudly, or fails in CI."""
    try:
        return find()
    except MissingPart as missing:
        reason = str(missing)
    if os.environ.get("HOLDFAST_REQUIRE_ALL") == "1" or os.environ.get("CI") == "true":
        pytest.fail(reason, pytrace=False)
    pytest.skip(NOT_RUN + reason)


@pytest.fixture(scope="session")
def postgres_current() -> Iterator[Postgres | GivenPostgres]:
    """PostgreSQL, current major (or the server in HOLDFAST_TEST_POSTGRES)."""
    with need(servers.current_postgres) as server:
        yield server


@pytest.fixture(scope="session")
def postgres_15() -> Iterator[Postgres]:
    """PostgreSQL 15, the oldest major that is supported."""
    with need(Postgres.debian) as server:
        yield server


@pytest.fixture(scope="session")
def pgbouncer(postgres_current: Postgres | GivenPostgres) -> Iterator[PgBouncer]:
    """pgbouncer in transaction mode, in front of `postgres_current`."""
    with need(lambda: PgBouncer(postgres_current)) as server:
        yield server


@pytest.fixture(scope="session")
def valkey() -> Iterator[Valkey]:
    """Valkey, which speaks as Redis does."""
    with need(Valkey) as server:
        yield server


@pytest.fixture
def fresh_database() -> Iterator[Callable[[AnyPostgres], str]]:
    """`fresh_database(server)` is the URL of an empty database, dropped after the test."""
    with contextlib.ExitStack() as databases:
        yield lambda server: databases.enter_context(servers.fresh_database(server))


@pytest.fixture(scope="session")
def _with_schema(postgres_current: AnyPostgres) -> Iterator[str]:
    async def migrate() -> None:
        async with Holdfast(url) as app:
            await app.home.client()

    with servers.fresh_database(postgres_current) as url:
        with ThreadPoolExecutor() as thread:  # which has no event loop yet
            thread.submit(lambda: asyncio.run(migrate())).result()
        yield urlsplit(url).path.removeprefix("/")


@pytest.fixture
def store_database(postgres_current: AnyPostgres, _with_schema: str) -> Iterator[str]:
    """The URL of a store without tasks: its schema is copied, which is quicker than to make it."""
    with servers.fresh_database(postgres_current, _with_schema) as url:
        yield url


@pytest.fixture(scope="session")
def spin() -> Path:
    """The spin model checker; it needs a C compiler beside it."""
    need(lambda: servers.program("cc", package="gcc libc6-dev"))
    return need(lambda: servers.program("spin"))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say what was missing. Read from the reports, which also come from other processes."""
    reasons: dict[str, int] = {}
    for report in terminalreporter.getreports("skipped"):
        if isinstance(report.longrepr, tuple) and NOT_RUN in report.longrepr[2]:
            reason = report.longrepr[2].partition(NOT_RUN)[2]
            reasons[reason] = reasons.get(reason, 0) + 1
    if reasons:
        terminalreporter.section("NOT RUN", red=True, bold=True)
        for reason, count in sorted(reasons.items()):
            terminalreporter.line(f"{NOT_RUN}{count} tests, because {reason}", red=True)
