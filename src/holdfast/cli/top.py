"""`holdfast top`: workers, leases and queues, live."""

import asyncio
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import click

from holdfast.cli.asking import Asking, asks
from holdfast.cli.options import SPAN
from holdfast.cli.picture import Picture, frame
from holdfast.desk.desk import Desk
from holdfast.errors import StoreUnreachable

__all__ = ["top"]


@click.command()
@click.option("--every", type=SPAN, default="1s", show_default=True, help="Look so often.")
@click.option("--once", is_flag=True, help="Print one picture and end; so in a pipe.")
@asks
def top(at: Asking, every: timedelta, once: bool) -> None:
    """Workers, leases with the time left, queues and recoveries, live. q quits."""
    if not at.out.for_people:
        at.out.one(at.ask(Picture.of), lambda _: ())
        return
    if once or not at.out.is_terminal:
        from rich.console import Console

        width = None if at.out.is_terminal else 120
        Console(width=width).print(frame(at.ask(Picture.of)))
        return
    at.ask(lambda desk: _live(desk, every.total_seconds()))


async def _live(desk: Desk, every: float) -> None:
    from rich.live import Live

    quit_asked = asyncio.Event()
    picture = await Picture.of(desk)
    with _keys(quit_asked), Live(frame(picture), screen=True, auto_refresh=False) as live:
        while not quit_asked.is_set():
            trouble = None
            try:
                picture = await Picture.of(desk)
            except StoreUnreachable as error:  # keep showing what was; it may come back
                trouble = str(error)
            live.update(frame(picture, height=live.console.height, trouble=trouble), refresh=True)
            try:
                async with asyncio.timeout(every):
                    await quit_asked.wait()
            except TimeoutError:
                continue


@contextmanager
def _keys(quit_asked: asyncio.Event) -> Iterator[None]:
    """q, or Esc: without waiting for the end of a line."""
    try:
        import termios
        import tty
    except ImportError:  # Windows: Ctrl-C ends it
        yield
        return
    stdin = sys.stdin.fileno()
    if not sys.stdin.isatty():
        yield
        return
    loop, before = asyncio.get_running_loop(), termios.tcgetattr(stdin)

    def pressed() -> None:
        typed = os.read(stdin, 1024)
        if not typed or b"q" in typed.lower() or typed == b"\x1b":
            quit_asked.set()

    tty.setcbreak(stdin)
    loop.add_reader(stdin, pressed)
    try:
        yield
    finally:
        loop.remove_reader(stdin)
        termios.tcsetattr(stdin, termios.TCSADRAIN, before)
