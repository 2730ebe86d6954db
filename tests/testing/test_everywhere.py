"""A function with one of everything, crashed before and after each of its writes."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from holdfast import Holdfast, TaskFailed, current
from holdfast.answers import Step
from holdfast.function import Function
from holdfast.testing import AppUnderTest, Crash

ledger: list[str] = []


def effect(name: str) -> str:
    ledger.append(name)
    return name


def refuse(name: str) -> None:
    ledger.append(name)
    raise ValueError(name)


@Holdfast.durable
async def child(n: int) -> int:
    await Holdfast.step("child", effect, f"child {n}")
    if n == 9:
        raise KeyError("nine")
    return n


async def branch(name: str, n: int) -> list[Any]:
    first = await Holdfast.step(name, effect, name)
    await Holdfast.step(f"{name} next", effect, f"{name} next")
    taken = current().uuid()
    await Holdfast.sleep("10m")
    again = await Holdfast.step(f"{name} again", effect, f"{name} again")
    return [first, again, await child(n), taken.version]


async def caught(work: Any) -> str:
    try:
        await work
    except TaskFailed as failed:
        return failed.type
    except TimeoutError:
        return "too late"
    return "well"


@Holdfast.durable
async def one_of_everything() -> list[Any]:
    found: list[Any] = [await Holdfast.step("first", effect, "first")]
    found += await asyncio.gather(branch("left", 1), branch("right", 2), child(3))
    found += await child.map([4, 5, 6], at_most=2)
    found += [await caught(child(9)), await caught(Holdfast.step("refuse", refuse, "refuse"))]
    found.append(await caught(asyncio.wait_for(Holdfast.sleep("1h"), 60)))
    naps = {asyncio.create_task(Holdfast.sleep(nap)) for nap in ("20m", "1h")}
    done, late = await asyncio.wait(naps, return_when=asyncio.FIRST_COMPLETED)
    for nap in late:
        nap.cancel()
    found += [len(done), await Holdfast.wait_for_signal("sent before")]
    found.append(await caught(Holdfast.wait_for_signal("never sent", timeout="1h")))
    async with asyncio.TaskGroup() as group:
        both = [group.create_task(child(7)), group.create_task(child(8))]
    return [*found, *(one.result() for one in both)]


RESULT = [
    "first", ["left", "left again", 1, 4], ["right", "right again", 2, 4], 3, 4, 5, 6,
    "KeyError", "ValueError", "too late", 1, "hello", "too late", 7, 8,
]  # fmt: skip
EFFECTS = Counter(
    ["first", "refuse"]
    + [f"{name}{what}" for name in ("left", "right") for what in ("", " next", " again")]
    + [f"child {n}" for n in range(1, 10)]
)


class Nth(Crash):
    """At the n-th write of a function, whatever it writes."""

    def __init__(self, name: str, n: int, *, during: bool) -> None:
        super().__init__(globals()[name], f"write {n}", during, keep_lease=False)
        self._left = n
        self._recorded_then = not during
        self.under_way: list[str] = []
        self.recorded: set[str] = set()
        self.before: list[str] = []

    def comes_with(self, function: Function[..., Any, Any], steps: Sequence[Step]) -> bool:
        if self.happened or function.name != self.function:
            return False
        self._left -= 1
        self.under_way = [step.name for step in steps if step.kind == "step"]
        self.before = ledger.copy()
        if self._left >= 0 or self._recorded_then:
            self.recorded.update(self.under_way)
        return self._left < 0


async def run(crash: Crash | None = None) -> Any:
    ledger.clear()
    app = AppUnderTest()
    try:
        if crash:
            app._crashes.append(crash)
        task = await app.dispatch(one_of_everything)
        await app.send_signal(task, "sent before", "hello")
        await app.run_for("1d")
        return await task.result(timeout=30)
    finally:
        app.end()


async def test_without_a_crash():
    assert await run() == RESULT
    assert Counter(ledger) == EFFECTS


@pytest.mark.parametrize("during", [True, False], ids=["before", "after"])
@pytest.mark.parametrize("name", ["one_of_everything", "child"])
async def test_with_a_crash_at_each_write(name: str, during: bool):
    for n in range(1000):
        crash = Nth(name, n, during=during)
        assert await run(crash) == RESULT, (n, crash.under_way)
        if not crash.happened:
            break
        again = Counter(ledger) - EFFECTS
        assert EFFECTS - Counter(ledger) == Counter(), (n, crash.under_way)
        # Of two branches one may be in a step while the other's is written.
        beside = 1 if name == "one_of_everything" else 0
        assert sum(again.values()) <= beside + (len(crash.under_way) if during else 0), (n, again)
        assert not {f"step {what}" for what in again} & crash.recorded, (n, again)
        for name_of in ("left", "right"):  # once the next step has begun, this one is recorded
            if f"{name_of} next" in crash.before:
                assert again[name_of] == 0, (n, again)
    assert n > 5
