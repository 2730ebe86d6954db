"""A shell in an empty folder, and stores for it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.scene import Scene, played
from tests.cli.shell import Shell, shell_in


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    """On the default store, a file in the working directory."""
    with shell_in(tmp_path) as found:
        yield found


@pytest.fixture(params=["sqlite", "postgres"])
def either(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shell]:
    """On each database in turn."""
    environ = {}
    if request.param == "postgres":
        fresh = request.getfixturevalue("fresh_database")
        environ["HOLDFAST_STORE"] = fresh(request.getfixturevalue("postgres_current"))
    with shell_in(tmp_path, **environ) as found:
        yield found


@pytest.fixture
def scene(either: Shell) -> Scene:
    """A store in which things have happened."""
    return played(either)
