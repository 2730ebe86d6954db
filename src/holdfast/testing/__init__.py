"""The pytest plugin: the fixture `holdfast`, an app in memory whose clock the test moves.

Imported whenever pytest starts, so nothing comes along before a test asks for the fixture.
"""

from collections.abc import Iterator
from importlib import import_module
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from holdfast.testing.app import AppUnderTest
    from holdfast.testing.crashing import Crash

__all__ = ["AppUnderTest", "Crash"]

_HOMES = {"AppUnderTest": "holdfast.testing.app", "Crash": "holdfast.testing.crashing"}


@pytest.fixture
def holdfast_app() -> Any:
    """Override this to return your own app: while a test runs it lives in the test's store."""
    return None


@pytest.fixture
def holdfast(holdfast_app: Any) -> "Iterator[AppUnderTest]":
    """An app on a store in memory, and ways to let its work happen: `drain`, `advance`,
    `crash_at`, `assert_enqueued`."""
    from holdfast.testing.app import AppUnderTest

    app = AppUnderTest()
    if holdfast_app is not None:
        app.use(holdfast_app)
    try:
        yield app
        app.check_crashes()
    finally:
        app.end()


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'holdfast.testing' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
