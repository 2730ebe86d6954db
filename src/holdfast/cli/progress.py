"""A progress bar for work that takes longer than a moment."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from holdfast.clock import lap

__all__ = ["progress_bar"]

_AFTER = 1.0


@contextmanager
def progress_bar(total: int, what: str) -> Iterator[Callable[[int], None]]:
    """Call what it yields with how many more are done. Drawn on a terminal only, on stderr, and
    only once the work has taken a second."""
    began, done = lap(), 0
    bar: Any = None
    task: Any = None

    def advance(count: int) -> None:
        nonlocal bar, task, done
        done += count
        if not sys.stderr.isatty() or lap() - began < _AFTER:
            return
        if bar is None:
            from rich.console import Console
            from rich.progress import Progress

            bar = Progress(console=Console(stderr=True))
            task = bar.add_task(what, total=total)
            bar.start()
        bar.update(task, completed=done)

    try:
        yield advance
    finally:
        if bar is not None:
            bar.stop()
