"""Durable functions in two flavours, found by other processes under the name of this module."""

import asyncio
import logging
import os
import signal
import subprocess
import sys
import threading
from datetime import date, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

from holdfast import errors
from holdfast.context import current
from holdfast.errors import LeaseLost, NonRetryable, Snooze, TaskCancelled
from holdfast.registry import durable
from holdfast.tasks.retry import RetryPolicy
from tests.executors.evil import raise_evil

MARKER = "HOLDFAST_TEST_MARKER"


@durable
def sync_tomorrow(day: date, *more: Decimal, days: int = 1) -> dict[str, Any]:
    assert isinstance(day, date)
    assert all(isinstance(each, Decimal) for each in more)
    return {"day": day + timedelta(days=days), "sum": sum(more)}


@durable
async def async_tomorrow(day: date, *more: Decimal, days: int = 1) -> dict[str, Any]:
    await asyncio.sleep(0)
    return sync_tomorrow.function(day, *more, days=days)


@durable
def sync_about() -> dict[str, Any]:
    here = current()
    return {
        "task": here.task_id,
        "fence": here.fence,
        "attempt": here.attempt,
        "queue": here.queue,
        "tenant": here.tenant,
        "type": here.type,
        "worker": here.worker_id,
        "max_tries": here.max_tries,
        "key": here.effect_key("smtp"),
        "thread": threading.current_thread().name,
        "pid": os.getpid(),
    }


@durable
async def async_about() -> dict[str, Any]:
    await asyncio.sleep(0)
    return sync_about.function()


@durable
def sync_evil(name: str) -> None:
    raise_evil(name)


@durable
async def async_evil(name: str) -> None:
    raise_evil(name)


@durable
def sync_odd_result(name: str) -> Any:
    return {
        "object": object(),
        "nan": float("nan"),
        "surrogate": "\ud800",
        "huge": "x" * 2_000_000,
        "deep": eval("[" * 90 + "[" * 60 + "]" * 60 + "]" * 90),
        "generator": (n for n in range(3)),
    }[name]


@durable
async def async_odd_result(name: str) -> Any:
    return sync_odd_result.function(name)


@durable
def sync_reporting() -> Any:
    here = current()
    here.progress(25, "began")
    here.progress(50.5, save={"row": 500})
    return here.saved_sync(dict[str, int])


@durable
async def async_reporting() -> Any:
    here = current()
    await here.progress(25, "began")
    await asyncio.gather(here.progress(50.5, save={"row": 500}))
    return await here.saved(dict[str, int])


@durable
def sync_refused() -> str:
    try:
        current().progress(1)
    except LeaseLost as error:
        return f"lost: {error.verb} of {error.task}"
    except errors.HoldfastError as error:
        return f"{type(error).__name__}: {error}"
    return "written"


@durable
async def async_refused() -> str:
    try:
        await current().progress(1)
    except LeaseLost as error:
        return f"lost: {error.verb} of {error.task}"
    except errors.HoldfastError as error:
        return f"{type(error).__name__}: {error}"
    return "written"


@durable
def sync_until_cancelled() -> None:
    here = current()
    here.progress(1)
    wait = threading.Event()
    while not wait.wait(0.005):
        here.check_cancelled()


@durable
async def async_until_cancelled() -> None:
    here = current()
    await here.progress(1)
    while True:
        await asyncio.sleep(0.005)
        here.check_cancelled()


@durable
def sync_check() -> None:
    current().check_cancelled()


@durable
async def async_check() -> None:
    current().check_cancelled()


POLICY = RetryPolicy(retry_for=(TimeoutError,))
MEANT: dict[str, Any] = {
    "timeout": TimeoutError,
    "value": ValueError,
    "never": lambda: NonRetryable("no use"),
    "snooze": lambda: Snooze("30s"),
    "bad snooze": lambda: Snooze("soon"),
    "endless snooze": lambda: Snooze(1e10),
    "cancelled": lambda: TaskCancelled("another"),
    "cancelled error": asyncio.CancelledError,
    "group with timeout": lambda: ExceptionGroup("g", [ValueError(), TimeoutError()]),
    "group without": lambda: ExceptionGroup("g", [ValueError(), KeyError()]),
    "group of never": lambda: ExceptionGroup("g", [NonRetryable("no use")]),
    "group of snooze": lambda: ExceptionGroup("g", [Snooze(5)]),
}


@durable(retry_policy=POLICY)
def sync_meaning(name: str) -> None:
    raise MEANT[name]()


@durable(retry_policy=POLICY)
async def async_meaning(name: str) -> None:
    raise MEANT[name]()


@durable(isolation="process")
def pid() -> int:
    return os.getpid()


@durable(isolation="process")
def die(how: str) -> None:
    match how:
        case "exit":
            os._exit(3)
        case "exit well":
            os._exit(0)
        case "segfault":
            os.kill(os.getpid(), signal.SIGSEGV)
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "orphan":  # a copy of this process keeps the line open
            if os.fork() == 0:
                signal.pause()
            os._exit(4)


@durable(isolation="process")
def hang(report: str) -> None:
    """With a child of its own, whose id it writes down; it ignores what can be ignored."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    child = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
    write(report, f"{os.getpid()} {child.pid}")
    child.wait()


@durable(isolation="process")
def hang_with_a_wide_family(report: str) -> None:
    """A child in its own group, one in its own session with a child in another, and an orphan."""
    pause = "import signal; signal.alarm(60); signal.pause()"  # should nobody kill it
    nested = (
        "import subprocess as s, sys, signal; print(s.Popen([sys.executable, '-c', sys.argv[1]], "
        "start_new_session=True).pid, flush=True); "
    )
    group = subprocess.Popen([sys.executable, "-c", pause], process_group=0)
    session, inner = _with_a_child(nested + "signal.alarm(60); signal.pause()", pause)
    parted, orphan = _with_a_child(nested, pause)
    parted.wait()
    write(report, " ".join(map(str, [os.getpid(), group.pid, session.pid, inner, orphan])))
    signal.pause()


def _with_a_child(code: str, argument: str) -> "tuple[subprocess.Popen[str], int]":
    command = [sys.executable, "-c", code, argument]
    child = subprocess.Popen(command, start_new_session=True, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    return child, int(child.stdout.readline())


@durable(isolation="process")
def hang_and_run_away(report: str) -> None:
    """A process that hands on a lock to a copy of itself, in a new session, and ends; for ever."""
    code = f"""
import fcntl, os, time
held = os.open({report + ".lock"!r}, os.O_RDWR | os.O_CREAT)
fcntl.flock(held, fcntl.LOCK_SH)
open({report!r}, "w").close()
end = time.monotonic() + 20  # should nobody catch it
while time.monotonic() < end:
    if os.fork():
        os._exit(0)
    os.setsid()
    time.sleep(0.001)
"""
    subprocess.Popen([sys.executable, "-c", code], start_new_session=True).wait()
    signal.pause()


@durable(isolation="process")
def hold_interpreter(report: str) -> None:
    """In C code that never lets a Python thread run: end of file is of no use there."""
    import re

    write(report, str(os.getpid()))
    re.match(r"(a?){60}a{60}" + r"(a*)*b", "a" * 60)


@durable(isolation="process")
def babble(text: bytes) -> None:
    """Write on every socket of this process."""
    for number in range(3, 64):
        try:
            if os.readlink(f"/proc/self/fd/{number}").startswith("socket:"):
                os.write(number, text)
        except OSError:
            continue
    signal.pause()


@durable(isolation="process")
def die_and_leave(report: str) -> None:
    """A copy of this process, which holds open whatever it held."""
    copy = os.fork()
    if copy == 0:
        signal.pause()
    write(report, str(copy))
    os._exit(3)


@durable(isolation="process")
def leave_a_process() -> list[int]:
    code = "import signal; signal.pause()"
    left = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.DEVNULL)
    left.returncode = 0  # or it would be missed at the end
    return [os.getpid(), left.pid]


@durable(isolation="process")
def leave_a_session() -> list[int]:
    code = "import signal; signal.alarm(60); signal.pause()"
    left = subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
    left.returncode = 0
    return [os.getpid(), left.pid]


@durable(isolation="process", memory_limit=512 * 1024 * 1024)
def greedy(size: int) -> int:
    assert len(bytearray(size)) == size
    return os.getpid()


@durable(isolation="process", memory_limit=512 * 1024 * 1024)
def wanting(text: str) -> None:
    if text:
        raise MemoryError(text)
    bytearray(2**30)


@durable(isolation="process")
def wanting_without_a_limit() -> None:
    raise MemoryError


@durable(isolation="process", cpu_limit=0.1)
def busy(rounds: int) -> int:
    return sum(1 for _ in range(rounds))


@durable(isolation="process")
def moved(to: str) -> str:
    before = os.getcwd()
    os.chdir(to)
    return before


@durable(isolation="process")
def forked() -> int:
    """Both processes return."""
    return os.fork()


@durable(isolation="process")
def leave_a_thread() -> None:
    here = current()
    later.append(lambda: here.progress(99))


@durable(isolation="process")
def use_what_was_left() -> str:
    try:
        later.pop()()
    except LeaseLost:
        return "lost"
    return "written"


@durable(isolation="process")
async def in_transaction() -> None:
    async with current().transaction():
        pass


@durable(isolation="process")
def printed(text: str) -> None:
    print(text)


later: list[Any] = []


def write(path: str, text: str) -> None:
    """All of it, or nothing that anyone could read."""
    beside = Path(f"{path}.new")
    beside.write_text(text)
    beside.rename(path)


def closure() -> Any:
    @durable(isolation="process")
    def inner() -> None: ...

    return inner


def hidden() -> None: ...


found_elsewhere = durable(name="elsewhere", isolation="process")(hidden)


@durable
def log(text: str, times: int = 1) -> None:
    mine = logging.getLogger("tests.child")
    mine.debug("too much")
    for _ in range(times):
        mine.info("%s", text)
    try:
        raise ValueError("no")
    except ValueError:
        current().logger.exception("it broke")


@durable
def log_extra(key: str, size: int = 0) -> None:
    extra = {"order": 7, "url": f"https://x/?key={key}", "password": "x", "pid": {1, 2}}
    logging.getLogger("tests.child").info("sent", extra=extra | {"much": "x" * size})


@durable
def log_badly(password: str) -> None:
    logging.getLogger("tests.child").error("login %d", password)


@durable
def log_and_crash() -> None:
    logging.getLogger("tests.child").error("last words")
    os._exit(3)


@durable
def log_in_a_fork() -> int:
    child = os.fork()
    if child == 0:
        logging.getLogger("tests.child").error("from the fork")
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
