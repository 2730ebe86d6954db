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


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.long), "api"])
def scene(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Scene]:
    """A store in which things have happened, asked itself or through an API."""
    with shell_in(tmp_path) as found:
        if request.param == "postgres":
            fresh = request.getfixturevalue("fresh_database")
            found.environ["HOLDFAST_STORE"] = fresh(request.getfixturevalue("postgres_current"))
        scene = played(found)
        if request.param == "api":
            api = found.start("api", "--port", "0", "--log-level", "warning")
            ready = api.line("api is ready: ")
            found.environ["HOLDFAST_API"] = ready.split(" ")[3].rstrip(",")
        yield scene
