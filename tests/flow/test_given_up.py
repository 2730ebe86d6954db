"""Functions that are stopped, and go on: what they may still do, and what they take from others."""

import asyncio
from typing import Any

import pytest

from holdfast import Holdfast, TaskCancelled
from holdfast.flow import arrivals
from holdfast.work import slots
from tests.work.bench import Bench, until


async def test_an_answer_that_comes_to_a_function_that_was_given_up_takes_no_slot(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It only waited, and its answer waited for a free slot. It took the next one, for good."""
    monkeypatch.setattr(arrivals, "_LINGER", 60.0)
    monkeypatch.setattr(slots, "_STOPPING", 0.1)
    go, resumes, stop = asyncio.Event(), asyncio.Event(), asyncio.Event()
    real = slots.Slots.resume

    async def resume(self: Any, attempt: Any) -> None:
        resumes.set()
        await real(self, attempt)

    monkeypatch.setattr(slots.Slots, "resume", resume)

    @bench.app.durable(name="long")
    async def long() -> None:
        await go.wait()

    @bench.app.durable(name="quickly")
    async def quickly() -> str:
        return "others run"

    @bench.app.durable(name="stubborn")
    async def stubborn() -> None:
        try:
            await Holdfast.wait_for_signal("go")
        finally:
            await stop.wait()

    async with bench.worker(max_concurrency=1):
        task = await bench.app.dispatch(stubborn)
        await until(lambda: bench.leases() == 1)
        other = await bench.app.dispatch(long)
        await until(lambda: bench.leases() == 2)
        await bench.app.send_signal(task, "go")
        await resumes.wait()
        await task.cancel()
        with pytest.raises(TaskCancelled):
            await task.result(timeout=30)
        assert "goes on although somebody asked for it" in caplog.text
        go.set()
        await other.result(timeout=30)
        last = await bench.app.dispatch(quickly)
        assert await last.result(timeout=10) == "others run"
        stop.set()


@pytest.mark.parametrize("how", ["child", "sleep"])
async def test_who_is_cancelled_may_wait_for_what_undoes_its_work(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """It was to be put down for it, was not, and heard of nothing any more."""
    monkeypatch.setattr(arrivals, "_LINGER", 0.1)
    began, heard = asyncio.Event(), list[Any]()
    leaves: list[Any] = []
    real = arrivals.Arrivals._leave

    async def leave(self: Any, due_at: float) -> Any:
        leaves.append(await real(self, due_at))
        return leaves[-1]

    monkeypatch.setattr(arrivals.Arrivals, "_leave", leave)

    @bench.app.durable(name="child")
    async def child() -> None:
        await asyncio.sleep(0.5)

    async def undo() -> None:
        await (child() if how == "child" else Holdfast.sleep(0.5))

    @bench.app.durable(name="flow")
    async def flow() -> None:
        await Holdfast.step("one", int)
        began.set()
        try:
            await asyncio.sleep(3600)
        finally:
            try:
                await undo()
                heard.append("it is undone")
            except BaseException as error:
                heard.append(error)

    async with bench.worker():
        task = await bench.app.dispatch(flow)
        await began.wait()
        await task.cancel()
        with pytest.raises(TaskCancelled):
            await task.result(timeout=30)
        assert heard == ["it is undone"]
    assert len(leaves) <= 1  # it is not to be put down over and over
