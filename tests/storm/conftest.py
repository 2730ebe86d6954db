"""Where the storms rage: an empty PostgreSQL database, an SQLite file."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.servers import AnyPostgres

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Many processes take their time on a machine that has few of them to spare."""
    for item in items:
        if item.path.parent == HERE and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(400))


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
