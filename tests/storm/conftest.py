"""Where the storms rage: an empty PostgreSQL database, an SQLite file."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.servers import AnyPostgres


@pytest.fixture
def postgres_place(
    postgres_current: AnyPostgres, fresh_database: Callable[[AnyPostgres], str]
) -> str:
    return fresh_database(postgres_current)


@pytest.fixture
def sqlite_place(tmp_path: Path) -> str:
    return str(tmp_path / "holdfast.db")


@pytest.fixture(params=["postgres", "sqlite"])
def place(request: pytest.FixtureRequest) -> str:
    """Each database in turn."""
    return str(request.getfixturevalue(f"{request.param}_place"))
