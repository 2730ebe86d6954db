"""Importing holdfast is cheap: nothing heavy comes along."""

import subprocess
import sys

import pytest

HEAVY = {"asyncpg", "confluent_kafka", "fastapi", "opentelemetry", "redis", "rich", "uvicorn"}
PROBE = """
import sys
import time
before = time.perf_counter()
import {module}
print(time.perf_counter() - before, *sys.modules)
"""


def probe(module: str) -> tuple[float, set[str]]:
    """Seconds, and what is loaded afterwards, in a fresh interpreter."""
    seconds, *modules = subprocess.run(
        [sys.executable, "-c", PROBE.format(module=module)],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.split()
    return float(seconds), set(modules)


def test_all_public_names_are_found_and_only_they():
    import holdfast

    assert sorted(holdfast.__all__) == sorted({*holdfast._HOMES, "__version__"})
    assert all(hasattr(holdfast, name) for name in holdfast.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        holdfast.nothing  # noqa: B018


def test_importing_holdfast_is_quick_and_brings_nothing_heavy():
    runs = [probe("holdfast; holdfast.Holdfast, holdfast.durable") for _ in range(5)]
    assert all(HEAVY.isdisjoint(modules) for _, modules in runs)
    # 0.15 s is promised; the best of five on a busy machine may take a few times as long.
    assert min(seconds for seconds, _ in runs) < 0.6


@pytest.mark.parametrize(
    "module", ["holdfast.store", "holdfast.tasks.lifecycle", "holdfast.errors"]
)
def test_the_model_and_the_promises_bring_no_driver(module):
    _, modules = probe(module)
    assert modules.isdisjoint(HEAVY | {"apsw", "asyncio", "sqlite3"})
