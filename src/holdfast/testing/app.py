"""An app for one test: its store is in memory, its clock stands still, and it works when told."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from math import ceil
from typing import Any

from holdfast.app import Holdfast
from holdfast.app.home import Home
from holdfast.clock import ManualClock, SystemClock
from holdfast.errors import InvalidInput
from holdfast.function import Function
from holdfast.tasks.durations import Duration, duration
from holdfast.tasks.names import check_key
from holdfast.tasks.task import Task, TaskStatus
from holdfast.testing.crashing import Crash
from holdfast.testing.draining import Draining
from holdfast.testing.enqueued import Enqueued

__all__ = ["AppUnderTest"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class AppUnderTest(Holdfast):
    """What the fixture `holdfast` gives: a `Holdfast` with the verbs of a test."""

    def __init__(self) -> None:
        super().__init__("sqlite://:memory:")
        self.clock = ManualClock(wall=SystemClock().wall())
        self._enqueued = Enqueued()
        self.home = Home(
            "sqlite://:memory:",
            redis=None,
            clock=self.clock,
            auto_migrate=True,
            told=self._enqueued.enqueued,
        )
        self._crashes: list[Crash] = []
        self._used: list[tuple[Holdfast, Home]] = []
        self._draining = Draining(self, self._enqueued, self._crashes)

    def use(self, app: Holdfast) -> None:
        """From here to the test's end this app of yours lives in the test's store: what it
        dispatches comes here, and its functions run here."""
        if not isinstance(app, Holdfast) or app is self:
            raise InvalidInput(f"use() takes a Holdfast of yours, not {app!r:.80}")
        if all(app is not used for used, _ in self._used):
            self._used.append((app, app.home))
            app.home = self.home

    @property
    def known(self) -> dict[tuple[str, str], Function[..., Any, Any]]:
        """All functions that can run here."""
        known = dict(self.functions.all())
        for app, _ in self._used:
            known |= app.functions.all()
        return known

    # ── time and work ────────────────────────────────────────────────────────────────────────

    @property
    def now(self) -> datetime:
        """What the test's clock shows. `current().now()` tells the same."""
        return _EPOCH + timedelta(microseconds=self.clock.wall())

    async def advance(self, time: Duration) -> None:
        """Let time pass at once: what falls due meanwhile runs with the next `drain`."""
        self.clock.advance(duration("advance", time).total_seconds())

    async def drain(self, *, max_concurrency: int = 1) -> int:
        """Run all that is due, until nothing is. Answers how many attempts ended; functions that
        were put down to wait are not counted. One at a time, unless told otherwise."""
        ended, _ = await self._draining.drain(max_concurrency)
        return ended

    async def run_for(self, time: Duration, *, max_concurrency: int = 1) -> int:
        """Let so much time pass, and run everything at its time. Answers as `drain` does."""
        left = duration("run_for", time).total_seconds()
        ended, due = await self._draining.drain(max_concurrency)
        while due is not None and due < left:
            step = min(ceil(due * 100 + 1e-6) / 100, left)  # code took its time to begin a timer
            self.clock.advance(step)
            left -= step
            more, due = await self._draining.drain(max_concurrency)
            ended += more
        self.clock.advance(max(left, 0.0))
        more, _ = await self._draining.drain(max_concurrency)
        return ended + more

    def crash_at(
        self,
        function: Function[..., Any, Any],
        *,
        after: str | None = None,
        during: str | None = None,
        keep_lease: bool = False,
    ) -> Crash:
        """The next worker that comes to this step of the function dies there: `after` it was
        recorded, or `during` it, when its code has run and its result is not recorded yet.

        As with a killed process nothing more of the function runs, not even `finally`. Another
        worker goes on at once; with `keep_lease` when the lease has lapsed (`advance("5m")`).
        A crash that never comes fails the test.
        """
        if not isinstance(function, Function) or (after is None) == (during is None):
            raise InvalidInput("write crash_at(function, after='step') or during='step'")
        step = check_key("step name", during if after is None else after)  # type: ignore[arg-type]
        crash = Crash(function, step, during is not None, keep_lease)
        self._crashes.append(crash)
        return crash

    def check_crashes(self) -> None:
        """Raises where a crash was asked for that never came."""
        missing = [str(crash) for crash in self._crashes if not crash.happened]
        if missing:
            raise AssertionError("\n".join(f"{one} never came" for one in missing))

    # ── what is enqueued ─────────────────────────────────────────────────────────────────────

    def assert_enqueued(
        self,
        function: Function[..., Any, Any],
        *,
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        queue: str | None = None,
        count: int | None = None,
    ) -> list[Task]:
        """Such tasks wait to be run: at least one, or exactly `count`. Answers them."""
        if not isinstance(function, Function):
            raise InvalidInput(
                f"assert_enqueued takes a durable function, got {type(function).__name__}"
            )
        if count is not None and (type(count) is not int or count < 0):
            raise InvalidInput(f"count must be a whole number from 0 on, got {count!r:.80}")
        pending = self.run_sync(self._pending())
        return self._enqueued.check(
            pending, function, args=args, kwargs=kwargs, queue=queue, count=count
        )

    async def _pending(self) -> list[Task]:
        page = await self.list_tasks(status=TaskStatus.PENDING, limit=500)
        found = page.tasks
        while page.next:
            page = await self.list_tasks(status=TaskStatus.PENDING, limit=500, cursor=page.next)
            found = found + page.tasks
        return found

    # ── the end ──────────────────────────────────────────────────────────────────────────────

    def end(self) -> None:
        """Give the apps of yours back, and forget everything."""
        for app, home in self._used:
            app.home = home
        self._used.clear()
        self._portal.run(self.home.client())
        self._portal.close(self.home.close())
        for crash in self._crashes:
            crash.bury()
