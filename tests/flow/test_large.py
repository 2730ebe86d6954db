"""Very many children, and very large ones."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from holdfast import TaskFailed
from holdfast.answers import Ending
from holdfast.flow import arrivals, standing
from holdfast.flow.arrivals import Arrivals
from holdfast.flow.asks import Ask, Join
from holdfast.stores import prepared
from tests.flow.acts import ONCE, number_of
from tests.work.bench import Bench


async def test_children_too_large_for_one_call_fail_clearly_and_go_in_parts(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They closed the connection to PostgreSQL, and were asked for again without end."""
    monkeypatch.setattr(prepared, "_MOST_BYTES", 5000)

    @bench.app.durable(name="measure")
    async def measure(text: str) -> int:
        return len(text)

    @bench.app.durable(name="all", retry_policy=ONCE)
    async def all_of(at_most: int | None) -> int:
        return sum(await measure.map(["x" * 1000] * 10, at_most=at_most))

    async with bench.worker():
        with pytest.raises(TaskFailed, match=r"at most 5,000 bytes .* send them in parts"):
            await (await bench.app.dispatch(all_of, None)).result(timeout=60)
        assert number_of(bench, "measure") == 0
        assert await (await bench.app.dispatch(all_of, 4)).result(timeout=60) == 10_000


async def test_failures_of_very_many_children_are_recorded_in_parts(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrivals, "_LARGEST_BATCH", 50_000)

    @bench.app.durable(name="fail", retry_policy=ONCE)
    async def fail(i: int) -> int:
        raise ValueError("\u20ac" * 3000)

    @bench.app.durable(name="all")
    async def all_of() -> int:
        return len(await fail.map(range(30), return_exceptions=True))

    async with bench.worker():
        task = await bench.app.dispatch(all_of)
        assert await task.result(timeout=60) == 30
    steps = (await (await bench.store()).journal(task.id)).steps
    assert max(len(step.value or b"") for step in steps) < 50_000


async def test_what_many_branches_ask_for_is_asked_in_one_statement(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long they take of their own to come to it."""
    monkeypatch.setattr(standing, "_SPIN", 60.0)  # no machine is so slow that this is a circle
    store = await bench.store()
    record, asked = store.record, list[int]()

    async def watched(*args: Any, children: Any = (), **more: Any) -> Any:
        asked.extend([len(children)] if children else [])
        return await record(*args, children=children, **more)

    monkeypatch.setattr(store, "record", watched)

    @bench.app.durable(name="double")
    async def double(i: int) -> int:
        return 2 * i

    async def branch(i: int) -> int:
        for _ in range(20 * i):
            await asyncio.sleep(0)
        return await double(i)

    @bench.app.durable(name="all")
    async def all_of() -> int:
        return sum(await asyncio.gather(*(branch(i) for i in range(10))))

    async with bench.worker():
        assert await (await bench.app.dispatch(all_of)).result(timeout=60) == 90
    assert asked == [10]


async def test_very_many_children_are_looked_at_together_and_recorded_in_parts(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten thousand took 22 s where 1.4 are enough; fifty thousand fitted into no journal."""
    monkeypatch.setattr(arrivals, "_LARGEST_BATCH", 2000)
    looks, joins = 0, 0
    come, is_over = arrivals.Arrivals._come, arrivals._is_over

    def look(self: Arrivals) -> dict[Ask, Ending]:
        nonlocal looks
        looks += 1
        return come(self)

    def judge(join: Join, come: Mapping[Ask, Ending]) -> bool:
        nonlocal joins
        joins += 1
        return is_over(join, come)

    monkeypatch.setattr(arrivals.Arrivals, "_come", look)
    monkeypatch.setattr(arrivals, "_is_over", judge)

    @bench.app.durable(name="double")
    async def double(i: int) -> int:
        return 2 * i

    @bench.app.durable(name="all")
    async def all_of() -> int:
        return sum(await double.map(range(200)))

    async with bench.worker():
        task = await bench.app.dispatch(all_of)
        assert await task.result(timeout=60) == 39_800
    assert 0 < joins <= looks
    steps = (await (await bench.store()).journal(task.id)).steps
    came = [len(step.value or b"") for step in steps if step.kind == "came"]
    assert len(came) >= 10
    assert max(came) < 2000
