"""A worker that others go before looks where they had their time. By a clock of its own: the event
loop's, which jumps to whatever is next."""

import asyncio
import random
from collections.abc import Coroutine
from typing import Any

import pytest

from holdfast.observer import Observer
from holdfast.work import looking
from holdfast.work.claiming import Found
from holdfast.work.looking import Looking
from holdfast.work.pace import Pace, Polling

GRACE = 0.05
MILLISECOND = 0.001
TASKS = 200
PERIODS = [0.005, 0.02, 0.05, 0.051, 0.052, 0.075, 0.1, 0.3]


class JumpingLoop(asyncio.SelectorEventLoop):
    """Where nothing is to do it is at once as late as its next timer."""

    _now = 0.0

    def time(self) -> float:
        return self._now

    def _run_once(self) -> None:
        timers: list[asyncio.TimerHandle] = self._scheduled  # type: ignore[attr-defined]
        going = [timer.when() for timer in timers if not timer.cancelled()]
        if going and not self._ready:  # type: ignore[attr-defined]
            self._now = max(self._now, min(going))
        super()._run_once()  # type: ignore[misc]


class Shop:
    """A store with one queue, and the slots of the worker that gives way, of which there are
    enough. A claim takes effect in the middle of its time."""

    patience = None

    def __init__(self, next_due: float | None = None) -> None:
        self.ready: list[float] = []  # since when
        self.waited: list[float] = []  # by those that came to this worker
        self.claims: list[float] = []
        self._next_due = next_due

    async def claim(self, now: int, ahead: int) -> Found:
        self.claims.append(asyncio.get_running_loop().time())
        await asyncio.sleep(MILLISECOND)
        taken: list[Any] = self.ready.copy()
        self.ready.clear()
        await asyncio.sleep(MILLISECOND)
        return Found(taken, self._next_due, again=False, was_all=True)

    def appetite(self) -> tuple[int, int]:
        return 10, 0

    def take(self, tasks: list[float]) -> None:
        now = asyncio.get_running_loop().time()
        self.waited += [now - since for since in tasks]

    def hand_back_stale(self) -> None: ...


def low(shop: Any, **polling: float) -> Looking:
    made = Looking(
        claiming=shop,
        slots=lambda: shop,
        pace=Pace(Polling(**polling)),
        observer=Observer(),
        answered=lambda: None,
        astray=lambda: None,
    )
    made.grace = GRACE
    return made


async def trickle(shop: Shop, worker: Looking, period: float, *, above: bool) -> None:
    """Tasks one by one; `above`: somebody of a higher priority takes each as soon as it hears of
    it. The hint comes a moment after the task."""
    loop, working = asyncio.get_running_loop(), asyncio.create_task(worker.run())

    def take(task: float) -> None:
        if task in shop.ready:
            shop.ready.remove(task)

    def come() -> None:
        shop.ready.append(loop.time())
        loop.call_later(MILLISECOND, worker.hint)
        if above:
            loop.call_later(3 * MILLISECOND, take, loop.time())

    for _ in range(TASKS):
        come()
        await asyncio.sleep(period)
    await asyncio.sleep(1)
    worker.stop()
    await working


@pytest.fixture(autouse=True)
def _the_same_chances(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(looking, "random", random.Random(7))


def run(main: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=JumpingLoop) as runner:
        runner.run(main)


@pytest.mark.parametrize("period", PERIODS)
def test_what_comes_one_by_one_goes_to_who_is_above_however_often_it_comes(period: float) -> None:
    shop = Shop()
    run(trickle(shop, low(shop), period, above=True))
    assert len(shop.waited) <= TASKS / 10


@pytest.mark.parametrize("period", PERIODS)
def test_what_nobody_above_is_free_for_does_not_wait_long(period: float) -> None:
    shop = Shop()
    run(trickle(shop, low(shop), period, above=False))
    assert len(shop.waited) == TASKS
    assert max(shop.waited) < 10 * GRACE


def test_what_is_due_for_all_at_one_time_is_left_to_those_above() -> None:
    shop = Shop(next_due=0.5)
    worker = low(shop, least=60.0, most=60.0)

    async def twice() -> None:
        working = asyncio.create_task(worker.run())
        await asyncio.sleep(0.9)
        worker.stop()
        await working

    run(twice())
    first, second = shop.claims[:2]
    assert second - first >= 0.5 + GRACE
