"""What is seen of the demo: bars on a terminal, plain lines in a pipe."""

from collections.abc import Sequence
from typing import Any, Protocol
from uuid import UUID

from rich.console import Console
from rich.live import Live
from rich.table import Table

from holdfast.clock import SystemClock
from holdfast.tasks.task import Task, TaskStatus

__all__ = ["DEAD", "Bars", "Lines", "Picture", "picture"]

_WIDTH = 24
DEAD = "worker-1"  # or soon will be


class Picture(Protocol):
    """Shows what was said, and how far the jobs are; `lost` were in a dead worker's hands."""

    def say(self, text: str) -> None: ...

    def show(self, jobs: Sequence[Task], lost: frozenset[UUID]) -> None: ...

    def __enter__(self) -> Any: ...

    def __exit__(self, *_: object) -> None: ...


def picture(console: Console) -> Picture:
    return Bars(console) if console.is_terminal else Lines(console)


class Bars:
    """A bar for each job, redrawn in place; what is said scrolls above them."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, refresh_per_second=12)

    def say(self, text: str) -> None:
        self._console.print(text)

    def show(self, jobs: Sequence[Task], lost: frozenset[UUID]) -> None:
        rows = Table(show_header=False, box=None, padding=(0, 1))
        for number, job in enumerate(jobs, 1):
            filled = round((job.progress or 0) / 100 * _WIDTH)
            style = {TaskStatus.DONE: "green", TaskStatus.RUNNING: "cyan"}.get(job.status, "dim")
            rows.add_row(
                f"job {number:>2}",
                f"[{style}]{'━' * filled}[/][dim]{'─' * (_WIDTH - filled)}[/]",
                f"[{style}]{job.status}[/]",
                job.locked_by or "",
                _fate(job) if job.id in lost else "",
            )
        self._live.update(rows)

    def __enter__(self) -> "Bars":
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()


class Lines:
    """A line for each thing that happened, with the seconds since the beginning."""

    def __init__(self, console: Console) -> None:
        self._console, self._clock = console, SystemClock()
        self._since = self._clock.boot()
        self._seen: dict[int, tuple[TaskStatus, str | None]] = {}

    def say(self, text: str) -> None:
        seconds = (self._clock.boot() - self._since) / 1e6
        self._console.print(f"{seconds:5.1f} s  {text}", soft_wrap=True, highlight=False)

    def show(self, jobs: Sequence[Task], lost: frozenset[UUID]) -> None:
        for number, job in enumerate(jobs, 1):
            now = (job.status, job.locked_by)
            before, self._seen[number] = self._seen.get(number), now
            if before == now:
                continue
            if job.status is TaskStatus.RUNNING:
                self.say(f"job {number:>2} runs on {job.locked_by}" + _where(job, lost))
            elif job.status is TaskStatus.DONE:
                self.say(f"job {number:>2} is done")

    def __enter__(self) -> "Lines":
        return self

    def __exit__(self, *_: object) -> None: ...


def _fate(job: Task) -> str:
    """Of a job that the dead worker held."""
    if job.locked_by == DEAD:
        return "[red]its worker is dead[/]"
    return "[yellow]taken over[/]" if job.status is not TaskStatus.PENDING else "[yellow]lost[/]"


def _where(job: Task, lost: frozenset[UUID]) -> str:
    if job.id not in lost or job.locked_by == DEAD:
        return ""
    return f": taken over from {DEAD}, at {job.progress or 0:.0f} %"
