"""The examples of docs/howto/workers.md, run as they stand."""

import ast
import asyncio
import inspect
import logging
import re
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

import holdfast
from holdfast import Holdfast, config

PAGE = (Path(__file__).parents[2] / "docs/howto/workers.md").read_text()
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    root, factory = logging.getLogger(), logging.getLogRecordFactory()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.setLogRecordFactory(factory)


@pytest.fixture(params=["sqlite", "postgres"])
def url(request, tmp_path, fresh_database):
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/holdfast.db"
    return fresh_database(request.getfixturevalue("postgres_current"))


async def test_every_example_runs(url, tmp_path, monkeypatch):
    """An example has run when it ends; one that serves, when its worker is ready."""
    monkeypatch.chdir(tmp_path)
    for example in EXAMPLES:
        monkeypatch.setenv("HOLDFAST_STORE", url)
        async with Holdfast() as app:
            names = {
                **{name: getattr(holdfast, name) for name in holdfast.__all__},
                "app": app, "asyncio": asyncio, "logging": logging, "timedelta": timedelta,
            }  # fmt: skip
            running = asyncio.create_task(run(example, names))
            async with asyncio.timeout(60):
                while not running.done() and not app.worker_status_overview()["ready"]:
                    await asyncio.sleep(0.01)
            if "wait_until_stopped" in example or "worker.stop()" in example:
                await running
            running.cancel()
            (ended,) = await asyncio.gather(running, return_exceptions=True)
            assert ended is None or isinstance(ended, asyncio.CancelledError), (example, ended)


async def run(example: str, names: dict[str, object]) -> None:
    code = compile(example, "workers.md", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    if inspect.isawaitable(answer := eval(code, names)):
        await answer
    if inspect.iscoroutinefunction(main := names.get("main")):
        serving = asyncio.create_task(main())
        await asyncio.wait({serving}, timeout=0.2)
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)


def test_the_table_names_every_variable_that_a_worker_reads():
    rows = re.findall(r"^\| (`HOLDFAST_[^|]*\|[^|]*)\|", PAGE, re.MULTILINE)
    named = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    read = {name for _, names in config._READINGS.values() for name in names}
    assert read - named <= {
        "HOLDFAST_API",
        "HOLDFAST_API_KEY",
        "HOLDFAST_APP",
        "HOLDFAST_AUTO_MIGRATE",
        "HOLDFAST_ENCRYPTION_KEYS",
        "HOLDFAST_SIGNING_KEY",
        "HOLDFAST_TOKEN",
    }
    assert named <= read


def test_the_table_of_metrics_names_what_is_exported():
    from prometheus_client import generate_latest

    from holdfast.observers.prometheus import PrometheusObserver

    text = generate_latest(PrometheusObserver().registry).decode()
    named = set(
        re.findall(r"`((?:holdfast|tasks|worker|active)_\w+)`", PAGE.partition("## Metrics")[2])
    )
    exported = {
        name if kind != "counter" or name.endswith("_total") else f"{name}_total"
        for name, kind in re.findall(r"^# TYPE (\S+) (\w+)", text, re.MULTILINE)
    }
    assert exported == {name for name in named if not name.startswith("worker_id")}
