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
