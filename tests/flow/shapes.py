"""Functions of random shape: small trees, run as they stand or as durable functions."""

import asyncio
import random
from typing import Any, Protocol

from holdfast import Holdfast, current
from holdfast.errors import TaskFailed

__all__ = ["Direct", "Durable", "Shape", "grow", "walk"]

Shape = tuple[Any, ...]
LEAVES = ("step", "child", "shared", "sleep", "fail", "plain", "send")
NAMED = ("race", "values", "over", "beside")
KINDS = ("all", "loop", "if", "gather", "group", "caught", "nested", "time", *NAMED)


def grow(chance: random.Random, depth: int = 3) -> Shape:
    """Each leaf has a name of its own."""
    names = iter(range(10_000))

    def one(left: int) -> Shape:
        if left == 0 or chance.random() < 0.2:
            return (chance.choice(LEAVES), next(names))
        kind = chance.choice(KINDS)
        if kind == "nested":
            return (kind, one(left - 1))
        parts = [one(left - 1) for _ in range(chance.randint(2, 3))]
        return (kind, next(names), *parts) if kind in NAMED else (kind, *parts)

    return ("all", one(depth), one(depth - 1))


class World(Protocol):
    async def step(self, name: int) -> int: ...
    async def child(self, name: int) -> int: ...
    async def children(self, name: int) -> list[int]: ...
    async def shared(self, name: int) -> list[int]: ...
    async def send(self, name: int) -> None: ...
    async def never(self, name: int) -> None: ...
    async def nested(self, shape: Shape) -> Any: ...
    async def sleep(self) -> None: ...
    async def fail(self, name: int) -> None: ...
    async def won(self, name: int, winner: int) -> None: ...
    async def told(self, name: str, value: str) -> None: ...
    def value(self) -> str: ...


async def walk(world: World, shape: Shape) -> Any:
    kind, *parts = shape
    match kind:
        case "step":
            return await world.step(parts[0])
        case "child":
            return await world.child(parts[0])
        case "shared":
            return await world.shared(parts[0] % 3)
        case "send":
            return await world.send(parts[0])
        case "sleep":
            return await world.sleep()
        case "fail":
            return await _caught(world.fail(parts[0]))
        case "plain":  # of the function's own: nobody records it
            return await asyncio.sleep(0.001 * (parts[0] % 7))
        case "nested":
            return await world.nested(parts[0])
        case "loop":
            return [await walk(world, parts[0] if n == 0 else parts[-1]) for n in range(2)]
        case "if":
            first = await walk(world, parts[0])
            return [first, await walk(world, parts[-1] if len(str(first)) % 2 else parts[1])]
        case "gather":
            return await asyncio.gather(*(walk(world, part) for part in parts))
        case "group":
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(walk(world, part)) for part in parts]
            return [task.result() for task in tasks]
        case "caught":
            return [await _caught(_then_raise(world, part)) for part in parts]
        case "race":
            return await _race(world, *parts)
        case "values":
            return await _values(world, *parts)
        case "over":
            return await _over(world, *parts)
        case "beside":
            return await _beside(world, *parts)
        case "time":
            async with asyncio.timeout(600):
                return [await asyncio.wait_for(walk(world, part), 600) for part in parts]
        case _:
            return [await walk(world, part) for part in parts]


def _is_plain(shape: Any) -> bool:
    """Whether something in it ends by itself: it may do so in the very moment of an answer."""
    return isinstance(shape, tuple | list) and ("plain" in shape or any(map(_is_plain, shape)))


async def _race(world: World, name: int, *parts: Shape) -> str:
    """Who wins is anybody's guess, but the same one in every replay: it is told to a step, which
    would be asked for with other arguments if it were not."""
    racing = [asyncio.create_task(walk(world, part)) for part in parts]
    try:
        done, _ = await asyncio.wait(racing, return_when=asyncio.FIRST_COMPLETED)
        winner = min(racing.index(one) for one in done)
    finally:
        for one in racing:
            one.cancel()
        await asyncio.gather(*racing, return_exceptions=True)
    if not any(map(_is_plain, parts)):
        await world.won(name, winner)
    return f"race {name}"


async def _over(world: World, name: int, *parts: Shape) -> list[Any]:
    """The time is over, of what nobody ever answers."""
    try:
        async with asyncio.timeout(0.02):
            await asyncio.gather(world.never(name), world.never(-name))
    except TimeoutError:
        return ["over", *[await walk(world, part) for part in parts]]
    raise AssertionError("it was answered")


async def _beside(world: World, name: int, part: Shape, *parts: Shape) -> list[Any]:
    """Whether something beside a join came before it did is the same in every replay."""
    beside = asyncio.create_task(walk(world, part))
    joined = await world.children(name)
    if not _is_plain(part):
        await world.won(name, int(beside.done()))
    return [joined, await beside, *[await walk(world, part) for part in parts]]


async def _values(world: World, name: int, *parts: Shape) -> list[Any]:
    """Values that are taken side by side stay with those who took them."""

    async def one(number: int, part: Shape) -> Any:
        taken = world.value()
        found = await walk(world, part)
        await world.told(f"{name}.{number}", taken)
        return found

    return await asyncio.gather(*(one(number, part) for number, part in enumerate(parts)))


async def _then_raise(world: World, shape: Shape) -> Any:
    raise LookupError(str(await walk(world, shape)))


async def _caught(work: Any) -> str:
    try:
        return str(await work)
    except (TaskFailed, LookupError, ValueError) as error:
        return getattr(error, "message", str(error))


class Direct:
    """As it stands."""

    async def step(self, name: int) -> int:
        return name + 1

    async def child(self, name: int) -> int:
        return name * 2

    async def children(self, name: int) -> list[int]:
        return [name * 2, name * 2 + 2]

    async def shared(self, name: int) -> list[int]:
        return [name, name]

    async def send(self, name: int) -> None: ...

    async def never(self, name: int) -> None:
        await asyncio.Event().wait()

    async def nested(self, shape: Shape) -> Any:
        return await walk(self, shape)

    async def sleep(self) -> None: ...

    async def fail(self, name: int) -> None:
        raise ValueError(f"{name} failed")

    async def won(self, name: int, winner: int) -> None: ...

    async def told(self, name: str, value: str) -> None: ...

    def value(self) -> str:
        return ""


class Durable:
    """The same, recorded. `effect`, `child`, `flow`, `bad`, `never`, `shared` and `send`: what a
    test has registered."""

    def __init__(
        self, effect: Any, child: Any, flow: Any, bad: Any, never: Any, shared: Any, send: Any
    ) -> None:
        self._effect, self._child, self._flow, self._bad = effect, child, flow, bad
        self._never, self._shared, self._send = never, shared, send

    async def step(self, name: int) -> int:
        return int(await Holdfast.step(f"s{name}", self._effect, name))

    async def child(self, name: int) -> int:
        return int(await self._child(name))

    async def children(self, name: int) -> list[int]:
        return list(await self._child.map([name, name + 1]))

    async def shared(self, name: int) -> list[int]:
        """One task, for all who ask."""
        return list(await self._shared.map([name, name]))

    async def send(self, name: int) -> None:
        """It is nobody's, and done once; on the ground of a value that is not known yet."""
        current().random()
        await self._send(name)

    async def never(self, name: int) -> None:
        await self._never(name)

    async def nested(self, shape: Shape) -> Any:
        return await self._flow(shape)

    async def sleep(self) -> None:
        await Holdfast.sleep(0.01)

    async def fail(self, name: int) -> None:
        await self._bad(name)

    async def won(self, name: int, winner: int) -> None:
        await Holdfast.step(f"won {name}", int, winner)

    async def told(self, name: str, value: str) -> None:
        await Holdfast.step(f"told {name}", str, value)

    def value(self) -> str:
        return str(current().uuid())
