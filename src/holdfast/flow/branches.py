"""The asyncio tasks of a durable function: each is a branch, known again by where it was made.

On the event loop of a worker, tasks that a durable function makes are watched, and the timers of
`asyncio.timeout` and `asyncio.wait_for` in it are handed to its flow. All else passes untouched.
"""

import asyncio
import sys
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from contextvars import Context as Variables
from contextvars import copy_context
from types import FrameType
from typing import Any, Protocol, cast
from weakref import WeakKeyDictionary

from holdfast.context import Context, here, running
from holdfast.executors.watched import Watched
from holdfast.flow.awaits import Own, branches, own_of
from holdfast.flow.entries import Key, Past

__all__ = ["Branch", "Family", "watching"]

_TIMED = ("as_completed.<locals>._on_timeout", "_AsCompletedIterator._handle_timeout")
_release_waiter = getattr(asyncio.tasks, "_release_waiter", None)  # of wait, wait_for


_STORES = ("holdfast.stores", "holdfast.notifiers")
_TASKS = "asyncio.tasks"
_MAKERS = ("as_completed", "_AsCompletedIterator.__init__")  # take what they are given from a set


class Branch:
    """One asyncio task of a function; "" is the function itself. `path` is the same in every run:
    the n-th task of that coroutine's name which the branch above has made."""

    def __init__(self, path: str = "", above: "Branch | None" = None, born: int = 0) -> None:
        """`born`: how many failures had reached the function by then."""
        self.path, self.above, self.born = path, above, born
        self.watched: Watched | None = None
        self.task: asyncio.Task[Any] | None = None
        self.asks = 0
        self.passed = 0  # awaits of its own, since the last ask
        self._made: dict[str, int] = {}
        self._numbers: dict[int, int] = {}  # of coroutines that no task was made of yet
        self._asked: dict[tuple[str, str], int] = {}

    def grow(self, coroutine: Coroutine[Any, Any, Any], born: int) -> "Branch":
        name = _name(coroutine)
        number = self._numbers.pop(id(coroutine), None)
        if number is None:
            number = self._next(name)
        return Branch(f"{self.path}/{name}[{number}]", self, born)

    def expect(self, coroutines: Sequence[Any]) -> None:
        """Tasks will be made of these in no order: they are numbered in the order given."""
        for each in coroutines:
            if isinstance(each, Coroutine) and id(each) not in self._numbers:
                self._numbers[id(each)] = self._next(_name(each))

    def expects(self, coroutine: Coroutine[Any, Any, Any]) -> bool:
        return id(coroutine) in self._numbers

    def _next(self, name: str) -> int:
        number = self._made[name] = self._made.get(name, -1) + 1
        return number

    @property
    def has_asked(self) -> bool:
        return bool(self._asked or self._made)

    def key(self, name: str, digest: str) -> Key:
        """Of the next such ask in this branch."""
        self.asks, self.passed = self.asks + 1, 0
        number = self._asked[name, digest] = self._asked.get((name, digest), -1) + 1
        return Key(self.path, name, digest, number)


class _Watcher:
    """Notes where a branch leaves an await of its own behind: no answer decides when it does."""

    def __init__(self, family: "Family", branch: Branch, watched: Watched) -> None:
        self._family, self._branch, self._watched = family, branch, watched
        self._past: Past | None = None
        self._own: Own = "no"  # what it awaits
        self._outer: _Watcher | None = None  # in whose step it takes one, where tasks are eager

    def held(self) -> "asyncio.Future[None] | None":
        family = self._family
        if family.holds is None:
            family.begin()
        if family.holds is None or not family.holds(self._branch):
            return None
        return family.gate(self._branch)

    def moves(self) -> None:
        family, branch = self._family, self._branch
        family.moves += 1
        self._outer, family.moving = family.moving, self
        if self._own != "no":
            self._past = Past(branch.path, branch.asks, branch.passed + 1)

    def rests(self) -> None:
        """A function of one branch is not looked at: nothing races there. Nor is what goes from one
        sleep to the next: a heartbeat would take as long again in a replay."""
        family, before = self._family, self._own
        if family.alive or before != "no":
            self._own = now = own_of(self._watched) if family.alive else "no"
            # Perhaps another branch gives it: that comes in its order.
            self._watched.may_be_held = now == "surely"
            if now == "no" or (before == "surely" and now == "perhaps"):
                self.acts()
        if family.moving is self:  # what is given up from now on is given up by somebody else
            family.moving = self._outer

    def ends(self) -> None:
        self._family.end(self._branch)
        self.acts()
        if self._family.moving is self:
            self._family.moving = self._outer

    def acts(self) -> None:
        """What it does has come of the await of its own that it has left behind."""
        past, self._past = self._past, None
        if past is None:
            return
        if self._branch.asks == past.asks:
            self._branch.passed += 1
        self._family.passed.append(past)
        self._family.tell()


class Family:
    """All branches of one attempt. They are watched from their beginning, since the function may
    ask for something only later; `stir` is called when one has ended, or left an await of its own
    behind: those are in `passed`. `paths`: the branches that go on, and the function itself.
    `holds`: whether a branch must not leave an await of its own behind yet; such branches stand at
    `gates`."""

    def __init__(self) -> None:
        self.main = Branch()
        self.alive: set[Branch] = set()
        self.paths: dict[str, Branch] = {"": self.main}
        self.passed: list[Past] = []
        self.stir: Callable[[], None] | None = None
        self.holds: Callable[[Branch], bool] | None = None
        self.gates: list[tuple[str, asyncio.Future[None]]] = []
        self.attempt: Context | None = None
        self.moving: _Watcher | None = None  # that takes a step
        self.faults = 0  # how many failures reached the function so far
        self.moves = 0  # of all branches together

    @classmethod
    def of(cls, attempt: Context) -> "Family":
        if attempt.family is None:
            attempt.family = cls()
            attempt.family.attempt = attempt
        found: Family = attempt.family
        return found

    def branch_out(self, coroutine: Coroutine[Any, Any, Any]) -> Branch:
        above: Branch = here.get() or self.main
        if not above.expects(coroutine) and (given := _given_with()):
            above.expect(given)
        branch = above.grow(coroutine, self.faults)
        branch.watched = Watched(coroutine)
        branch.watched.watcher = _Watcher(self, branch, branch.watched)
        self.alive.add(branch)
        self.paths[branch.path] = branch
        return branch

    def lead(self, watched: Watched) -> None:
        """This is the function's own coroutine, which may wait already."""
        self.main.watched = watched
        watched.watcher = watcher = _Watcher(self, self.main, watched)
        watcher.rests()

    def begin(self) -> None:
        """A replay, which has asked for nothing yet: what is recorded goes first all the same."""
        attempt, self.attempt = self.attempt, None
        if attempt is not None and attempt.may_ask and attempt.keeper.has_asked:
            attempt.flow  # noqa: B018

    def end(self, branch: Branch) -> None:
        self.alive.discard(branch)
        self.paths.pop(branch.path, None)
        self.tell()

    def tell(self) -> None:
        if self.stir:
            self.stir()

    def gate(self, branch: Branch) -> "asyncio.Future[None]":
        """What this branch has to wait for."""
        gate = asyncio.get_running_loop().create_future()
        self.gates.append((branch.path, gate))
        self.tell()
        return gate

    def let_go(self, only: str | None = None) -> bool:
        """Whoever is held asks again whether it must be; or this branch alone, since all others
        would be held again. Whether there are any."""
        gates, self.gates = self.gates, []
        for path, gate in gates:
            if gate.done():
                continue
            if only is not None and path != only:
                self.gates.append((path, gate))
            else:
                gate.set_result(None)
        return len(self.gates) < len(gates)


def _name(coroutine: Coroutine[Any, Any, Any]) -> str:
    name: str = getattr(coroutine, "__qualname__", type(coroutine).__name__)
    return name


def _given_with() -> Sequence[Any] | None:
    """What `asyncio.as_completed` was given, where it makes a task: in the order of the caller."""
    frame: FrameType | None = sys._getframe(2)
    for _ in range(8):  # through its own calls, and ours
        if frame is None:
            return None
        if frame.f_code.co_qualname in _MAKERS and frame.f_globals.get("__name__") == _TASKS:
            given = frame.f_locals.get("fs", frame.f_locals.get("aws"))
            return given if isinstance(given, list | tuple) else None
        frame = frame.f_back
    return None


class Timing(Protocol):
    """A flow, seen by timers."""

    def timer(
        self,
        where: str,
        seconds: float,
        call: Callable[..., Any],
        args: tuple[Any, ...],
        variables: Variables,
    ) -> asyncio.TimerHandle: ...


def _attempt(attempt: Context | None) -> Context | None:
    """The attempt of the code that runs, if it may ask for something; not for what the store does
    on its behalf."""
    return None if attempt is None or not attempt.may_ask or _in_store() else attempt


def _in_store() -> bool:
    frame: FrameType | None = sys._getframe(2)
    while frame:
        if frame.f_globals.get("__name__", "").startswith(_STORES):
            return True
        frame = frame.f_back
    return False


class _Hooks:
    """On one loop, for as long as workers run on it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.users = 0
        self._loop = cast(Any, loop)  # to which attributes are given that it hides
        self._make: Any = loop.get_task_factory()
        self._call_at, self._call_later = loop.call_at, loop.call_later
        self._loop.set_task_factory(self._make_task)
        self._loop.call_at, self._loop.call_later = self._at, self._later

    def remove(self) -> None:
        if self._loop.get_task_factory() == self._make_task:
            self._loop.set_task_factory(self._make)
        for name, ours in (("call_at", self._at), ("call_later", self._later)):
            if vars(self._loop).get(name) == ours:
                delattr(self._loop, name)

    def _make_task(
        self,
        loop: asyncio.AbstractEventLoop,
        coroutine: Coroutine[Any, Any, Any],
        **options: Any,
    ) -> Any:
        variables: Variables | None = options.get("context")
        attempt = running.get() if variables is None else variables.get(running)
        if attempt is None or _is_ours(getattr(coroutine, "cr_frame", None)):
            return self._new_task(loop, coroutine, options)
        if _attempt(attempt) is None:
            return self._new_task(loop, coroutine, options)
        options["context"] = variables = copy_context() if variables is None else variables.copy()
        branch = variables.run(Family.of(attempt).branch_out, coroutine)
        variables.run(here.set, branch)
        branch.task = task = self._new_task(loop, cast(Watched, branch.watched), options)
        branches.add(task)
        return task

    def _new_task(
        self,
        loop: asyncio.AbstractEventLoop,
        coroutine: Coroutine[Any, Any, Any],
        options: dict[str, Any],
    ) -> Any:
        if self._make is not None:
            return self._make(loop, coroutine, **options)
        return asyncio.Task(coroutine, loop=loop, **options)

    def _at(
        self, when: float, call: Callable[..., Any], *args: Any, context: Any = None
    ) -> asyncio.TimerHandle:
        if running.get() is not None and _ends_a_wait(call) and (found := _whose()):
            flow, where = found
            seconds = when - self._loop.time()
            return flow.timer(where, seconds, call, args, context or copy_context())
        handle: asyncio.TimerHandle = self._call_at(when, call, *args, context=context)
        return handle

    def _later(
        self, delay: float, call: Callable[..., Any], *args: Any, context: Any = None
    ) -> asyncio.TimerHandle:
        if running.get() is not None and _ends_a_wait(call) and (found := _whose()):
            flow, where = found
            return flow.timer(where, delay, call, args, context or copy_context())
        handle: asyncio.TimerHandle = self._call_later(delay, call, *args, context=context)
        return handle


def _ends_a_wait(call: Callable[..., Any]) -> bool:
    """Whether this is the timer of `asyncio.timeout`, `wait_for`, `wait` or `as_completed`."""
    if isinstance(getattr(call, "__self__", None), asyncio.Timeout):
        return True
    if getattr(call, "__qualname__", "").startswith(_TIMED) and call.__module__ == _TASKS:
        return True
    return _release_waiter is not None and call is _release_waiter


def _whose() -> tuple[Timing, str] | None:
    """The flow that a timer belongs to, and the function of the code that made it."""
    attempt = _attempt(running.get())
    frame = sys._getframe(2)
    while frame.f_back and frame.f_globals.get("__name__", "").partition(".")[0] == "asyncio":
        frame = frame.f_back
    if attempt is None or _is_ours(frame):
        return None
    return cast(Timing, attempt.flow), frame.f_code.co_qualname


def _is_ours(frame: FrameType | None) -> bool:
    """Whether it is code of this package, which tasks of users may call: no branch of theirs."""
    name = frame.f_globals.get("__name__", "") if frame else ""
    return name.partition(".")[0] == "holdfast" and not name.startswith("holdfast.flow")


_hooks: WeakKeyDictionary[asyncio.AbstractEventLoop, _Hooks] = WeakKeyDictionary()


@contextmanager
def watching() -> Iterator[None]:
    """Durable functions may run on this event loop."""
    loop = asyncio.get_running_loop()
    hooks = _hooks.get(loop)
    if hooks is None:
        hooks = _hooks[loop] = _Hooks(loop)
    hooks.users += 1
    try:
        yield
    finally:
        hooks.users -= 1
        if not hooks.users:
            hooks.remove()
            del _hooks[loop]
