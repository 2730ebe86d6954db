"""Durable functions that are in somebody's hand when he is killed. Copied beside each test's store;
`python saga.py NAME…` dispatches them."""

import asyncio
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from holdfast import Holdfast, current

app = Holdfast()


def note(what: str) -> str:
    """In a ledger outside of the store."""
    with Path("ledger").open("a") as ledger:
        ledger.write(what + "\n")
    return what


def write(file: str, text: str = "") -> None:
    Path(file).write_text(text)


def hold(name: str) -> None:
    """Until somebody lets go."""
    write(f"{name}.began")
    while not Path("go").exists():
        time.sleep(0.01)


async def wait(name: str) -> None:
    write(f"{name}.began")
    while not os.path.exists("go"):  # noqa: ASYNC240
        await asyncio.sleep(0.01)


@app.durable
async def recorded(name: str = "recorded") -> list[str]:
    first = await Holdfast.step("first", note, "recorded first")
    await wait(name)
    return [first, await Holdfast.step("second", note, "recorded second")]


@app.durable
async def in_a_step(name: str = "in_a_step") -> None:
    await Holdfast.step("hold", hold, name)
    await Holdfast.step("then", note, "then")


@app.durable
async def fresh(name: str = "fresh") -> None:
    """Nothing is recorded of it when its worker dies."""
    await wait(name)
    await Holdfast.step("only", note, "only")


@app.durable
async def sleeps(name: str = "sleeps") -> None:
    await wait(name)
    await Holdfast.sleep(1.2)
    await Holdfast.step("awake", note, "awake")


@app.durable
async def kid(name: str) -> str:
    return name


@app.durable
async def parent(name: str = "parent") -> list[str]:
    await wait(name)
    return [await kid(name), *await kid.map([f"{name} {n}" for n in (1, 2)])]


async def send(name: str) -> None:
    await app.dispatch(kid, name)


@app.durable
async def dispatches(name: str = "dispatches") -> None:
    await asyncio.gather(send("one"), send("another"))
    await wait(name)
    await app.dispatch(kid, "one behind")


@app.durable
async def takes_a_number(name: str = "takes_a_number") -> str:
    await wait(name)
    return str(current().uuid())


@app.durable
def blocking(name: str = "blocking") -> None:
    hold(name)
    Holdfast.run(Holdfast.step("blocked", note, "blocked"))


@app.durable
async def books(name: str = "books") -> None:
    await wait(name)
    async with current().transaction() as conn:
        await conn.execute("insert into book (name) values ($1)", name)


@app.durable
async def plain(name: str = "plain") -> None:
    await wait(name)
    write("plain", str(os.getpid()))


@app.durable
async def good(n: int) -> int:
    await asyncio.sleep(0.002)
    return n


@app.durable
async def good_flow(n: int) -> None:
    await Holdfast.step("one", note, f"good {n}")


@app.durable(max_tries=3)
async def poison() -> None:
    note("poison")
    os.kill(os.getpid(), signal.SIGKILL)


@app.durable(max_tries=3)
async def poison_flow() -> None:
    await Holdfast.step("harmless", note, "harmless")
    note("poison_flow")
    os.kill(os.getpid(), signal.SIGKILL)


async def main(names: list[str]) -> None:
    async with app:
        if names == ["poisoned"]:
            calls: list[Any] = [good.call(n) for n in range(1000)]
            calls[10:10] = [poison.call(), poison_flow.call()]
            calls[500:500] = [good_flow.call(n) for n in range(20)]
            await app.dispatch_many(calls)
            return
        for name in names:
            await app.dispatch(globals()[name])


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
