"""What a function in memory reads of what has come for it, and what before it leaves."""

import asyncio
from typing import Any

import pytest

from holdfast import Holdfast
from holdfast.answers import News
from holdfast.errors import StoreUnreachable
from holdfast.flow import business
from holdfast.flow.arrivals import Arrivals
from tests.work.bench import Bench, until


class Looks:
    """The looks of all functions; `down`: nobody answers."""

    def __init__(self, store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self._news = store.news
        self.answered: list[News] = []
        self.down = False
        self.after = self._nothing
        monkeypatch.setattr(store, "news", self._look)

    async def _look(self, *args: Any, **more: Any) -> News:
        if self.down:
            raise StoreUnreachable("nobody is there")
        news: News = await self._news(*args, **more)
        self.answered.append(news)
        await self.after()
        return news

    async def _nothing(self) -> None: ...

    def has_seen_a_wake(self) -> bool:
        return any(news.wakes for news in self.answered)


async def test_nobody_leaves_without_a_look_at_what_is_asked_for_now(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The wake of a signal that nobody asked for yet was seen, and is forgotten with the next
    entry; should the store be away when it is asked for, nothing else would wake the function."""
    looks = Looks(await bench.store(), monkeypatch)

    @bench.app.durable(name="listen")
    async def listen() -> list[int]:
        first = await Holdfast.wait_for_signal("a", type=int)
        looks.down = True
        return [first, await Holdfast.wait_for_signal("b", type=int)]

    async with bench.worker():
        task = await bench.app.dispatch(listen)
        await until(lambda: looks.answered)
        await bench.app.send_signal(task, "b", 2)
        await until(looks.has_seen_a_wake)
        await bench.app.send_signal(task, "a", 1)
        await until(lambda: looks.down)
        await asyncio.sleep(1.5)  # longer than it lingers
        looks.down = False
        assert await task.result(timeout=30) == [1, 2]


async def test_nobody_leaves_whose_code_has_asked_during_the_last_look(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = Looks(await bench.store(), monkeypatch)
    leaving, asked = asyncio.Event(), asyncio.Event()
    leave = Arrivals._leave

    async def leave_slowly(self: Arrivals, due_at: float) -> Any:
        looks.after = ask
        return await leave(self, due_at)

    async def ask() -> None:
        leaving.set()
        await asked.wait()
        await asyncio.sleep(0.01)

    monkeypatch.setattr(Arrivals, "_leave", leave_slowly)
    monkeypatch.setattr(business, "_LONG", 0.0)  # what it waits for may be its own

    async def second() -> int:
        await leaving.wait()
        asked.set()
        return await Holdfast.wait_for_signal("b", type=int)

    @bench.app.durable(name="listen")
    async def listen() -> int:
        other = asyncio.create_task(Holdfast.wait_for_signal("a", type=int))
        found = await second()
        other.cancel()
        return found

    async with bench.worker():
        task = await bench.app.dispatch(listen)
        await until(lambda: looks.answered)
        await bench.app.send_signal(task, "b", 2)
        assert await task.result(timeout=30) == 2


async def test_signals_of_several_names_are_read_once(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = Looks(await bench.store(), monkeypatch)

    @bench.app.durable(name="listen")
    async def listen() -> list[int]:
        return [await Holdfast.wait_for_signal("ab"[i % 2], type=int) for i in range(40)]

    task = await bench.app.dispatch(listen)
    for i in range(40):
        await bench.app.send_signal(task, "ab"[i % 2], i)
    async with bench.worker():
        assert await task.result(timeout=60) == list(range(40))
    assert sum(len(news.signals) for news in looks.answered) < 100
