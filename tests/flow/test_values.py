"""`current().now()`, `.random()`, `.uuid()`: taken once, whatever is edited around them."""

import asyncio
import importlib
import linecache
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from holdfast import Holdfast, InvalidInput, current
from tests.flow.acts import SOON, reason_of, waits
from tests.work.bench import Bench, until


def _app(bench: Bench, take: Callable[[], Any]) -> Any:
    app = bench.new_app()

    @app.durable(name="root")
    async def root() -> Any:
        found = take()
        await Holdfast.wait_for_signal("go")
        return found

    return app, root


def old() -> list[UUID]:
    order = current().uuid()
    named = current().uuid("named")
    return [order, named]


def moved() -> list[UUID]:
    # It stands elsewhere, and so does the other.
    named = current().uuid("named")

    order = current().uuid()
    return [order, named]


def looped() -> list[UUID]:
    return [current().uuid() for _ in range(2)]


def added() -> list[UUID]:
    current().uuid()
    order = current().uuid()
    named = current().uuid("named")
    return [order, named]


def added_with_a_name() -> list[UUID]:
    current().uuid("new")
    current().now()
    order = current().uuid()
    named = current().uuid("named")
    return [order, named]


def renamed() -> list[UUID]:
    purchase = current().uuid()
    named = current().uuid("named")
    return [purchase, named]


async def _in_flight(bench: Bench, take: Callable[[], Any]) -> tuple[Any, list[str]]:
    taken: list[str] = []

    def note() -> Any:
        found = take()
        taken[:] = map(str, found)
        return found

    app, root = _app(bench, note)
    async with bench.worker(app):
        task = await app.dispatch(root)
        await waits(bench, task)
    return task, taken


@pytest.mark.parametrize(
    ("before", "after"),
    [(old, old), (old, moved), (old, added_with_a_name), (looped, looped)],
    ids=lambda one: one.__name__,
)
async def test_a_value_is_known_again(
    bench: Bench, no_linger: None, before: Callable[[], Any], after: Callable[[], Any]
) -> None:
    task, taken = await _in_flight(bench, before)
    app, _ = _app(bench, after)
    async with bench.worker(app):
        await app.send_signal(task, "go")
        assert await task.result(timeout=30) == taken


@pytest.mark.parametrize(("after", "line"), [(added, "current().uuid()"), (renamed, "purchase = ")])
async def test_where_it_cannot_be_told_which_is_which_the_run_is_parked(
    bench: Bench, no_linger: None, after: Callable[[], Any], line: str
) -> None:
    task, taken = await _in_flight(bench, old)
    app, _ = _app(bench, after)
    async with bench.worker(app):
        await app.send_signal(task, "go")

        async def parked() -> bool:
            return (await reason_of(bench, task)).startswith("parked")

        await until(parked)
    reason = await reason_of(bench, task)
    assert "- recorded, not asked: uuid in order = current().uuid()" in reason
    assert f"+ asked, not recorded: uuid in {line}" in reason
    app, _ = _app(bench, old)
    assert await app.retry(task)
    async with bench.worker(app):
        assert await task.result(timeout=30) == taken


async def test_a_sync_function_has_its_values_too(bench: Bench, no_linger: None) -> None:
    taken: list[UUID] = []

    @bench.app.durable(name="root")
    def root() -> int:
        taken.append(current().uuid())
        Holdfast.run(Holdfast.sleep(0.1))
        taken.append(current().uuid("two"))
        Holdfast.run(Holdfast.sleep(0.1))
        return len(taken)

    async with bench.worker():
        task = await bench.app.dispatch(root)
        await task.result(timeout=30)
    assert len(set(taken)) == 2 < len(taken)


async def test_a_bad_name_is_refused(bench: Bench) -> None:
    @bench.app.durable(name="root")
    async def root() -> str:
        try:
            current().uuid("no\0name")
        except InvalidInput as error:
            return str(error)
        return "taken"

    async with bench.worker():
        task = await bench.app.dispatch(root)
        assert "uuid name" in await task.result(timeout=30)
    await asyncio.sleep(0)


async def test_a_value_of_an_attempt_that_failed_is_no_edit(bench: Bench) -> None:
    """An error of the function's own is told to somebody; the next attempt goes another way."""
    attempts: list[int] = []

    @bench.app.durable(name="report")
    async def report(id: str) -> None: ...

    @bench.app.durable(name="root", retry_policy=SOON)
    async def root() -> str:
        attempts.append(1)
        if len(attempts) == 1:
            incident = current().uuid()
            await bench.app.dispatch(report, str(incident))
            raise OSError("connection refused")
        order = current().uuid()
        return await Holdfast.step("order", str, order)

    async with bench.worker():
        task = await bench.app.dispatch(root)
        assert len(await task.result(timeout=20)) == 36


async def test_a_deploy_may_replace_the_files_of_code_that_runs(
    bench: Bench, no_linger: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "shop_of_values.py"
    code = "from holdfast import Holdfast, current\n\ndef take():\n    a = current().uuid()\n"
    code += "    return a\n\n@Holdfast.durable(name='values:other')\ndef other(): ...\n"
    file.write_text(code)
    monkeypatch.syspath_prepend(str(tmp_path))
    shop = importlib.import_module("shop_of_values")
    app, root = _app(bench, shop.take)
    async with bench.worker(app):
        task = await app.dispatch(root)
        file.write_text("# two\n# more\n" + code)
        linecache.checkcache()
        await waits(bench, task)
        await app.send_signal(task, "go")
        assert len(await task.result(timeout=20)) == 36


async def test_a_value_that_does_not_fit_parks_also_a_function_that_asked_for_more(
    bench: Bench,
) -> None:
    """The attempt stops itself, in the middle of what it does."""
    attempts: list[int] = []

    @bench.app.durable(name="child")
    async def child() -> int:
        return 1

    @bench.app.durable(name="root", retry_policy=SOON)
    async def root() -> str:
        attempts.append(1)
        await asyncio.gather(child(), child())
        if len(attempts) == 1:
            await Holdfast.step("a", str, current().uuid())
            raise ValueError("once more")
        return str(current().uuid())  # on another line

    async with bench.worker():
        task = await bench.app.dispatch(root)

        async def is_parked() -> bool:
            return "parked" in await reason_of(bench, task)

        await until(is_parked)
