"""What a durable function waits for, and the ways in which waiting ends without an answer."""

import asyncio
from collections.abc import Callable, Generator
from contextvars import Context as Variables
from typing import TYPE_CHECKING, Any, Literal
from uuid import UUID

from holdfast.flow.entries import Key, One
from holdfast.tasks.task import Draft, Failure

if TYPE_CHECKING:
    from holdfast.flow.flow import Flow

__all__ = ["Ask", "Join", "Kind", "PutDown", "Timer"]

Kind = Literal["child", "sleep", "signal", "timer", "step"]


class PutDown(asyncio.CancelledError):
    """The function leaves memory: what it asks for now, it asks again when it goes on."""


class Ask(asyncio.Future[One]):
    """One ask, and in the end what it came to. Cancelled, it is given up."""

    def __init__(self, flow: "Flow", kind: Kind, key: Key) -> None:
        super().__init__(loop=flow.loop)
        self.flow, self.kind, self.key = flow, kind, key
        self.position: int | None = None  # in the journal, once it is recorded
        self.draft: Draft | None = None
        self.may_be_lost = False  # asked for again, its child is the same
        self.in_the_way = False  # its child may have to wait until our lease is gone
        self.task: UUID | None = None
        self.is_own = True  # its task is our child, whose end wakes us
        self.untold = False  # nobody tells of the end of its task, where that is not our child
        self.unsure = False  # whether its task is ours is not known yet
        self.again = False  # it was given up, or failed in a former life: it goes on
        self.reborn = False  # so in a new life, where also what failed runs again
        self.signal: str | None = None
        self.refuses: Callable[[bytes], Failure | None] | None = None  # what a signal may bring
        self.seconds: float | None = None
        self.due: float | None = None  # by the clock of the event loop
        self.act: Callable[[], None] | None = None  # what an expired timer does
        self.run: Callable[[Key], Any] | None = None  # the step itself
        self.variables: Variables | None = None  # of the code that asks for it
        self.running: asyncio.Task[Any] | None = None
        self.lasts = False  # it cannot be stopped: it has a thread
        self.join: Join | None = None
        self.coming = False  # what it came to is being written

    @property
    def is_open(self) -> bool:
        """Whether nothing has come that whoever awaits it will hear of."""
        return not self.done()

    def __await__(self) -> Generator[Any, None, One]:
        """Whoever awaits it may be cancelled in the very turn in which it comes."""
        try:
            return (yield from super().__await__())
        except asyncio.CancelledError:
            self.give_up()
            raise

    def set_result(self, result: One) -> None:
        super().set_result(result)
        if self.join:
            self.join.coming += 1

    def cancel(self, msg: Any = None) -> bool:
        if not super().cancel(msg):
            return False
        if self.join:
            self.join.coming += 1
        if self.running and not self.lasts:
            self.running.cancel()
        self.flow.give_up(self)
        return True

    def ask_anew(self) -> None:
        """For a task that is another than the last."""
        self.position, self.task, self.is_own = None, None, True

    def give_up(self) -> None:
        """Also where it has come: nobody hears of it any more."""
        if not self.cancel() and not self.cancelled():
            self.flow.miss(self)


class Join(asyncio.Future[None]):
    """Asks that are waited for together: until one has failed (or not even then), or all came."""

    def __init__(self, flow: "Flow", *, waits_for_all: bool) -> None:
        super().__init__(loop=flow.loop)
        self.waits_for_all = waits_for_all
        self.asks: list[Ask] = []
        self.coming = 0  # answers that it hears of in the next turn of the event loop
        self._left = 0

    @property
    def is_open(self) -> bool:
        return not self.done() and not self.coming

    def __await__(self) -> Generator[Any, None, None]:
        try:
            yield from super().__await__()
        except asyncio.CancelledError:
            if self.done() and not self.cancelled():
                self.give_up()
            raise

    def add(self, ask: Ask) -> None:
        ask.join = self
        self.asks.append(ask)
        self._left += 1
        ask.add_done_callback(self._one_came)

    def _one_came(self, ask: "asyncio.Future[One]") -> None:
        self.coming -= 1
        self._left -= 1
        if self.done():
            return
        failed = ask.cancelled() or ask.result().how != "done"
        if self._left == 0 or (failed and not self.waits_for_all):
            self.set_result(None)

    def cancel(self, msg: Any = None) -> bool:
        if not super().cancel(msg):
            return False
        self.give_up()
        return True

    def give_up(self) -> None:
        for ask in self.asks:
            ask.give_up()


class Timer(asyncio.TimerHandle):
    """What `asyncio.timeout` and `wait_for` get for their timer."""

    ask: Ask

    def cancel(self) -> None:
        if not self.cancelled():
            asyncio.Handle.cancel(self)  # the loop never had it: there is nothing to tell it
            self.ask.cancel()
