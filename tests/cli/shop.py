"""The app that these tests serve, as a user would write it. Copied beside each test's store."""

import asyncio
import logging
import time
from pathlib import Path

from holdfast import Holdfast

app = Holdfast()


def begin(name: str) -> None:
    Path(f"{name}.began").touch()


def may_end(name: str) -> bool:
    return Path(f"{name}.go").exists()


@app.durable
async def add(a: int, b: int = 0) -> int:
    return a + b


@app.durable
async def hold(name: str) -> str:
    """Runs until somebody lets go: a file says that it began, another one that it may end."""
    begin(name)
    while not may_end(name):
        await asyncio.sleep(0.01)
    return name


@app.durable
def hold_in_a_thread(name: str) -> None:
    begin(name)
    while not may_end(name):
        time.sleep(0.01)


@app.durable
async def block(name: str) -> None:
    """Blocks the event loop, as nobody should."""
    hold_in_a_thread.function(name)


@app.durable
def boom() -> None:
    raise ValueError("out of cheese")


@app.durable
def speak(word: str) -> None:
    logging.getLogger("shop").warning("says %s", word)


@app.durable
async def defy(name: str) -> None:
    """Ends for nobody."""
    begin(name)
    await _defy()


@app.durable
async def defy_and_ask(name: str) -> None:
    """Goes round in a circle as soon as what it asks for is refused."""
    begin(name)
    while True:
        try:
            await Holdfast.sleep(3600)
        except BaseException:  # as nobody should
            continue


@app.durable
async def defy_through_another(name: str) -> None:
    """Goes on when it is cancelled; the next time it leaves, but for what it begins then."""
    begin(name)
    try:
        await asyncio.sleep(3600)
    except asyncio.CancelledError:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            await asyncio.create_task(_defy())


async def _defy() -> None:
    while True:
        try:
            await asyncio.sleep(3600)
        except BaseException:  # as nobody should
            continue
