"""Durable functions on workers in this process, on each database in turn."""

import pytest

from holdfast.flow import arrivals
from tests.work.conftest import (
    bench,
    nothing_is_forgotten,
    postgres_bench,
    postgres_url,
    sqlite_url,
    url,
)

__all__ = ["bench", "nothing_is_forgotten", "postgres_bench", "postgres_url", "sqlite_url", "url"]


@pytest.fixture
def no_linger(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever waits is put down at once, and picked up by a replay."""
    monkeypatch.setattr(arrivals, "_LINGER", 0.0)
