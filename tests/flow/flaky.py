"""Steps and children that fail some times before they succeed, in functions of random shape."""

import asyncio
import random
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID

from holdfast import Holdfast, TaskFailed, current
from tests.flow.acts import ONCE

__all__ = ["Ledger", "Shape", "grow", "items", "register", "walk", "wanted"]

Shape = tuple[Any, ...]
ALWAYS = 10_000
_SEVERAL = ("row", "gather", "ours", "group", "nested group", "wait", "exceptions", "errors")
_KINDS = (*_SEVERAL, "timeout", "caught", "map", "some")
_PACES = ("quick", "slow", "thread")


class Ledger:
    """What happened outside: each call ends in one of three ways."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.failures: Counter[str] = Counter()
        self.cancels: Counter[str] = Counter()
        self.successes: Counter[str] = Counter()
        self.tasks: defaultdict[str, set[UUID]] = defaultdict(set)
        self.check_alive: Callable[[], None] = lambda: None

    def begin(self, name: str) -> None:
        self.check_alive()
        self.calls[name] += 1

    def end(self, name: str, fails: int) -> str:
        self.check_alive()
        if self.failures[name] < fails:
            self.failures[name] += 1
            raise ConnectionError(f"{name} is down for a moment")
        self.successes[name] += 1
        return name

    async def act(self, name: str, fails: int, pace: str) -> str:
        self.begin(name)
        try:
            if pace == "slow":
                await asyncio.sleep(0.005)
        except asyncio.CancelledError:
            self.cancels[name] += 1
            raise
        return self.end(name, fails)

    def act_in_thread(self, name: str, fails: int) -> str:
        self.begin(name)
        time.sleep(0.005)
        return self.end(name, fails)


def register(app: Holdfast, ledger: Ledger, policy: Any) -> Any:
    """The function that walks a shape; its children have one try each."""

    @app.durable(name="child", retry_policy=ONCE)
    async def child(name: str, fails: int, pace: str) -> str:
        ledger.tasks[name].add(current().task_id)
        return await ledger.act(name, fails, "slow" if pace == "slow" else "quick")

    @app.durable(name="root", retry_policy=policy)
    async def root(shape: Any) -> Any:
        return await walk(ledger, child, shape)

    return root


def grow(chance: random.Random, depth: int = 2) -> Shape:
    """A leaf: ("step" or "child", its name, how often it fails, how it goes)."""
    number = iter(range(10_000))

    def leaf(kind: str) -> Shape:
        fails = chance.choice((0, 0, 1, 2))
        return (kind, f"{kind[0]}{next(number)}", fails, chance.choice(_PACES))

    def one(left: int) -> Shape:
        if left == 0 or chance.random() < 0.15:
            return leaf(chance.choice(("step", "step", "child")))
        kind = chance.choice(_KINDS)
        if kind in ("map", "some"):
            return (kind, *(leaf("child") for _ in range(chance.randint(2, 4))))
        if kind == "caught":
            return (kind, ("step", f"bad{next(number)}", ALWAYS, "quick"), leaf("step"))
        return (kind, *(one(left - 1) for _ in range(chance.randint(2, 3))))

    return ("row", one(depth), one(depth))


def items(shape: Shape) -> list[Shape]:
    if shape[0] in ("step", "child"):
        return [shape]
    return [item for part in shape[1:] for item in items(part)]


def wanted(shape: Shape) -> Any:
    """What it gives without us, once nothing fails that may succeed."""
    if shape[0] in ("step", "child"):
        return shape[1]
    if shape[0] == "caught":
        return wanted(shape[2])
    return [wanted(part) for part in shape[1:]]


async def walk(ledger: Ledger, child: Any, shape: Shape) -> Any:
    def go(part: Shape) -> Awaitable[Any]:
        return walk(ledger, child, part)

    kind, *parts = shape
    match kind:
        case "step":
            name, fails, pace = parts
            if pace == "thread":
                return await Holdfast.step(name, ledger.act_in_thread, name, fails)
            return await Holdfast.step(name, ledger.act, name, fails, pace)
        case "child":
            return await child(*parts)
        case "row":
            return [await go(part) for part in parts]
        case "gather":
            return list(await asyncio.gather(*map(go, parts)))
        case "ours":
            return await Holdfast.gather(*map(go, parts))
        case "group":
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(walk(ledger, child, part)) for part in parts]
            return [task.result() for task in tasks]
        case "nested group":
            async with asyncio.TaskGroup() as outer, asyncio.TaskGroup() as inner:
                tasks = [
                    (outer, inner)[i % 2].create_task(walk(ledger, child, part))
                    for i, part in enumerate(parts)
                ]
            return [task.result() for task in tasks]
        case "wait":
            waited = [asyncio.create_task(walk(ledger, child, part)) for part in parts]
            await asyncio.wait(waited)
            return [task.result() for task in reversed(waited)][::-1]
        case "exceptions":
            found = await asyncio.gather(*map(go, parts), return_exceptions=True)
            for error in found:
                if isinstance(error, BaseException):
                    raise error
            return found
        case "errors":
            found = await asyncio.gather(*map(go, parts), return_exceptions=True)
            if errors := [one for one in found if isinstance(one, Exception)]:
                raise ExceptionGroup("some failed", errors)
            return found
        case "timeout":
            async with asyncio.timeout(600):
                return [await asyncio.wait_for(go(part), 600) for part in parts]
        case "caught":
            try:
                return await go(parts[0])
            except TaskFailed:
                return await go(parts[1])
        case "map":
            return await child.starmap([part[1:] for part in parts])
        case "some":
            return await child.starmap([part[1:] for part in parts], at_most=2)
        case _:
            raise AssertionError(kind)
