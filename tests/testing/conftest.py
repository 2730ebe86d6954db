"""The app of the plugin, as its fixture gives it."""

from collections.abc import Iterator

import pytest

from holdfast.testing import AppUnderTest


@pytest.fixture
def app() -> Iterator[AppUnderTest]:
    app = AppUnderTest()
    try:
        yield app
        app.check_crashes()
    finally:
        app.end()
