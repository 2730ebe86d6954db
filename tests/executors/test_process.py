"""Processes of their own: warm, killable, and allowed to crash."""

import asyncio
import fcntl
import json
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import pytest_asyncio
import uvloop

from holdfast.errors import HoldfastError, InvalidInput, ProcessDied
from holdfast.executors import rlimits
from holdfast.executors.outcomes import FunctionRaised, outcome_of
from holdfast.executors.process import ProcessExecutor
from holdfast.registry import Registry
from holdfast.tasks.lifecycle import Errored
from holdfast.tasks.retry import RetryPolicy
from tests.executors import functions
from tests.executors.acts import MemoryKeeper, attempt, soon, within

ROOT = Path(__file__).parents[2]
linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells who started whom")

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def executor():
    made = ProcessExecutor()
    yield made
    await made.close()


async def call(executor, function, *args, **kwargs):
    return json.loads(await within(executor.run(function, attempt(function, *args, **kwargs))))


async def test_a_process_is_used_again_and_is_not_this_one(executor):
    first = await call(executor, functions.pid)
    assert first != os.getpid()
    assert await call(executor, functions.pid) == first


async def test_one_that_took_its_calls_ends():
    executor = ProcessExecutor(max_calls=1)
    first = await call(executor, functions.pid)
    assert await call(executor, functions.pid) != first
    await soon(lambda: is_gone(first))
    await executor.close()


async def test_no_more_are_kept_than_asked_for():
    executor = ProcessExecutor(max_idle=1)
    pids = await asyncio.gather(*(call(executor, functions.pid) for _ in range(2)))
    await soon(lambda: sum(map(is_gone, pids)) == 1)
    await executor.close()
    assert all(map(is_gone, pids))


async def test_one_that_rested_long_enough_ends():
    executor = ProcessExecutor(idle_seconds=0.01)
    pid = await call(executor, functions.pid)
    await soon(lambda: is_gone(pid))
    await executor.close()


async def test_one_that_died_while_idle_fails_nobody(executor):
    pid = await call(executor, functions.pid)
    os.kill(pid, signal.SIGKILL)  # the event loop has not seen it yet
    assert await call(executor, functions.pid) != pid


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("exit", "exited with code 3"),
        ("exit well", "exited with code 0"),
        ("segfault", "killed by SIGSEGV"),
        ("kill", "killed by SIGKILL"),
        ("orphan", "exited with code 4"),
    ],
)
async def test_a_death_fails_its_own_call_only_and_says_how(executor, how, said):
    with pytest.raises(ProcessDied, match=said):
        await call(executor, functions.die, how)
    assert await call(executor, functions.pid)


async def test_what_a_dead_process_left_behind_dies_too(executor, tmp_path):
    report = tmp_path / "pid"
    with pytest.raises(ProcessDied, match="exited with code 3"):
        await call(executor, functions.die_and_leave, str(report))
    await soon(lambda: is_dead(int(report.read_text())))


async def test_what_one_that_died_while_idle_left_behind_dies_too(executor):
    pid, left = await call(executor, functions.leave_a_process)
    assert not is_dead(left)
    os.kill(pid, signal.SIGKILL)
    await soon(lambda: is_dead(left))


@pytest.mark.parametrize("retry_for", [(), (TimeoutError,)])
async def test_a_death_is_tried_again_whatever_errors_are(executor, retry_for):
    context = attempt(functions.die, "exit")
    with pytest.raises(ProcessDied) as raised:
        await within(executor.run(functions.die, context))
    policy = RetryPolicy(retry_for=retry_for)
    function = Registry().durable(name="die", retry_policy=policy)(functions.die.function)
    outcome = outcome_of(raised.value, function, context)
    assert isinstance(outcome, Errored)
    assert outcome.retryable


async def test_a_cancelled_call_is_gone_with_its_children_when_run_has_raised(executor, tmp_path):
    report = tmp_path / "pids"
    run = asyncio.create_task(executor.run(functions.hang, attempt(functions.hang, str(report))))
    await soon(report.exists)
    child, grandchild = map(int, report.read_text().split())
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await within(run)
    assert is_gone(child)
    await soon(lambda: is_dead(grandchild))


@linux
async def test_children_in_groups_and_sessions_of_their_own_are_killed_too(executor, tmp_path):
    report = tmp_path / "pids"
    function = functions.hang_with_a_wide_family
    run = asyncio.create_task(executor.run(function, attempt(function, str(report))))
    await soon(report.exists)
    child, *family = map(int, report.read_text().split())
    with start("-c", "input()", stdin=subprocess.PIPE) as stranger:
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await within(run)
        assert is_gone(child)
        assert all(map(is_dead, family))
        stranger.communicate("still here")
    assert stranger.returncode == 0


@linux
async def test_nothing_escapes_by_forking_and_ending(executor, tmp_path):
    report = tmp_path / "pids"
    function = functions.hang_and_run_away
    run = asyncio.create_task(executor.run(function, attempt(function, str(report))))
    await soon(report.exists)
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await within(run)
    assert is_free(tmp_path / "pids.lock")


@linux
async def test_what_one_that_retires_left_in_a_session_of_its_own_dies_too():
    executor = ProcessExecutor(max_calls=1)
    pid, left = await call(executor, functions.leave_a_session)
    await soon(lambda: is_gone(pid))
    await soon(lambda: is_dead(left))
    await executor.close()


async def test_a_call_that_is_cancelled_twice_is_still_waited_for(executor, tmp_path):
    report = tmp_path / "pids"
    run = asyncio.create_task(executor.run(functions.hang, attempt(functions.hang, str(report))))
    await soon(report.exists)
    run.cancel()
    asyncio.get_running_loop().call_soon(run.cancel)
    with pytest.raises(asyncio.CancelledError):
        await within(run)
    assert is_gone(int(report.read_text().split()[0]))


async def test_a_call_that_was_just_begun_can_be_cancelled(executor):
    run = asyncio.create_task(executor.run(functions.pid, attempt(functions.pid)))
    await asyncio.sleep(0)
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await within(run)
    assert await call(executor, functions.pid)


async def test_closing_kills_what_runs(tmp_path):
    executor = ProcessExecutor()
    report = tmp_path / "pids"
    run = asyncio.create_task(executor.run(functions.hang, attempt(functions.hang, str(report))))
    await soon(report.exists)
    await executor.close()
    with pytest.raises(ProcessDied):
        await within(run)
    assert is_gone(int(report.read_text().split()[0]))
    with pytest.raises(HoldfastError, match="closed"):
        await executor.run(functions.pid, attempt(functions.pid))


@pytest.mark.parametrize("function", ["hang", "hold_interpreter"])
async def test_nobody_outlives_a_worker_that_was_killed(function, tmp_path):
    report = tmp_path / "pids"
    script = tmp_path / "program.py"
    script.write_text(f"""
import asyncio
from holdfast.executors.process import ProcessExecutor
from tests.executors import functions
from tests.executors.acts import attempt

async def main():
    function = functions.{function}
    await ProcessExecutor().run(function, attempt(function, {str(report)!r}))

asyncio.run(main())
""")
    with start(script) as worker:
        await soon(report.exists)
        worker.kill()
    pids = list(map(int, report.read_text().split()))
    await soon(lambda: all(map(is_dead, pids)))


@pytest.mark.parametrize("text", [b"\xff" * 8, b"\x00\x00\x00\x03abc", b"\x00\x00\x00\x01\x80"])
async def test_a_process_that_writes_nonsense_is_killed_and_reported(executor, text):
    with pytest.raises(ProcessDied, match="something else than answers"):
        await call(executor, functions.babble, text)
    assert await call(executor, functions.pid)


async def test_a_memory_limit_is_kept_and_not_by_others(executor):
    plain = await call(executor, functions.pid)
    pid = await call(executor, functions.greedy, 1_000_000)
    assert await call(executor, functions.greedy, 1_000_000) == pid != plain
    with pytest.raises(FunctionRaised, match="MemoryError"):
        await call(executor, functions.greedy, 2**30)
    assert is_gone(pid)  # who knows what it could not do for want of memory
    assert await call(executor, functions.pid) == plain


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "not enough memory within its memory_limit of 536,870,912 bytes: raise "
             "memory_limit=, or use less"),
        ("no room", "no room: not enough memory within its memory_limit of 536,870,912 bytes: "
                    "raise memory_limit=, or use less"),
    ],
)  # fmt: skip
async def test_a_want_of_memory_names_the_limit_and_the_way_out(executor, text, said):
    with pytest.raises(FunctionRaised) as raised:
        await call(executor, functions.wanting, text)
    assert raised.value.raised.failure.type == "MemoryError"
    assert raised.value.raised.failure.message == said


async def test_a_want_of_memory_without_a_limit_says_what_it_said(executor):
    with pytest.raises(FunctionRaised) as raised:
        await call(executor, functions.wanting_without_a_limit)
    assert raised.value.raised.failure.message == "MemoryError()"


async def test_a_cpu_limit_is_kept_for_each_call_and_named(executor):
    assert await call(executor, functions.busy, 1000) == 1000
    with pytest.raises(ProcessDied, match=r"SIGXCPU: it used up its cpu_limit of 0.1 s"):
        await call(executor, functions.busy, 10**12)


async def test_processor_time_is_counted_from_the_start_of_the_call(monkeypatch):
    set_to = []
    used = SimpleNamespace(ru_utime=5.0, ru_stime=2.0)
    monkeypatch.setattr(resource, "getrusage", lambda _: used)
    monkeypatch.setattr(resource, "setrlimit", lambda kind, both: set_to.append((kind, both[0])))
    rlimits.grant_cpu(0.1)
    assert set_to[-1] == (resource.RLIMIT_CPU, 8)
    rlimits.grant_cpu(None)
    assert set_to[-1] == (resource.RLIMIT_CPU, resource.getrlimit(resource.RLIMIT_CPU)[1])


async def test_the_next_call_stands_where_the_worker_stands(executor, tmp_path):
    assert await call(executor, functions.moved, str(tmp_path)) == os.getcwd()
    assert await call(executor, functions.moved, str(tmp_path)) == os.getcwd()


async def test_a_function_that_forks_answers_once(executor):
    copy = await call(executor, functions.forked)
    assert copy != 0
    await soon(lambda: is_dead(copy))
    assert await call(executor, functions.pid)


async def test_what_an_earlier_call_left_behind_reports_nothing(executor):
    await call(executor, functions.leave_a_thread)
    keeper = MemoryKeeper()
    assert await call(executor, functions.use_what_was_left, keeper=keeper) == "lost"
    assert keeper.reports == []


async def test_a_transaction_is_refused_with_the_way_out(executor):
    with pytest.raises(FunctionRaised, match="leave out isolation='process'"):
        await call(executor, functions.in_transaction)


async def test_what_a_function_prints_goes_where_the_worker_prints(tmp_path):
    script = tmp_path / "program.py"
    script.write_text(PROGRAM)
    ended = await asyncio.to_thread(run, script)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.split() == ["hello", "from", "program:greet", "__mp_main__", "killed"]


PROGRAM = """
import asyncio, os
from holdfast.executors.process import ProcessExecutor
from holdfast.registry import durable
from tests.executors.acts import attempt

@durable(isolation="process")
def greet(whom: str) -> int:
    print("hello", whom, greet.name, __name__)
    return os.getpid()

async def main():
    executor = ProcessExecutor()
    os.kill(int(await executor.run(greet, attempt(greet, "from"))), 9)
    await executor.close()
    print("killed")

if __name__ == "__main__":
    asyncio.run(main())
"""


async def test_a_program_started_as_a_module_is_found_too(tmp_path):
    package = tmp_path / "shop"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "orders.py").write_text(PROGRAM)
    ended = await asyncio.to_thread(run, "-m", "shop.orders", cwd=tmp_path)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.split() == ["hello", "from", "shop.orders:greet", "shop.orders", "killed"]


async def test_an_error_of_a_script_has_one_name_whoever_runs_it(tmp_path):
    script = tmp_path / "program.py"
    script.write_text(FAILING)
    ended = await asyncio.to_thread(run, script)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.split() == ["program.Broken"] * 3


async def test_an_error_of_a_program_started_as_a_module_has_one_name_too(tmp_path):
    (tmp_path / "shop.py").write_text(FAILING)
    ended = await asyncio.to_thread(run, "-m", "shop", cwd=tmp_path)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.split() == ["shop.Broken"] * 3


FAILING = """
import asyncio
from holdfast.executors.coroutine import CoroutineExecutor
from holdfast.executors.outcomes import outcome_of
from holdfast.executors.process import ProcessExecutor
from holdfast.executors.thread import ThreadExecutor
from holdfast.registry import durable
from tests.executors.acts import attempt

class Broken(Exception): ...

@durable
def fail() -> None:
    raise Broken

@durable
async def fail_async() -> None:
    raise Broken

async def told(executor, function):
    context = attempt(function)
    try:
        await executor.run(function, context)
    except Exception as error:
        print(outcome_of(error, function, context).failure.type)
    await executor.close()

async def main():
    await told(CoroutineExecutor(), fail_async)
    await told(ThreadExecutor(), fail)
    await told(ProcessExecutor(), fail)

if __name__ == "__main__":
    asyncio.run(main())
"""


async def test_a_program_without_a_guard_does_not_start_workers_in_its_children(tmp_path):
    script = tmp_path / "program.py"
    script.write_text(PROGRAM.replace('if __name__ == "__main__":', "if True:"))
    ended = await asyncio.to_thread(run, script)
    assert ended.returncode == 1
    assert "put that under `if __name__ == '__main__':`" in ended.stderr


async def test_a_program_without_a_guard_dispatches_nothing_again_in_its_children(tmp_path):
    script = tmp_path / "program.py"
    script.write_text(DISPATCHING)
    ended = await asyncio.to_thread(run, script, cwd=tmp_path)
    assert (ended.returncode, ended.stdout.split()) == (0, ["bill", "pack"]), ended.stderr
    assert "put that under `if __name__ == '__main__':`" in ended.stderr


DISPATCHING = """
import asyncio, sys
from holdfast import Holdfast

app = Holdfast("sqlite:///shop.db")

@app.durable(name="bill")
async def bill(order: int) -> None: ...

@app.durable(name="pack", isolation="process", max_tries=1)
def pack() -> None: ...

async def main():
    async with app, asyncio.TaskGroup() as group:
        await app.dispatch(bill, 1)
        task, life = await app.dispatch(pack), app.create_worker_lifecycle()
        group.create_task(app.serve(lifecycle=life))
        print((await app.wait_for(task, timeout=50)).failure.message, file=sys.stderr)
        print(*sorted(each.type for each in (await app.list_tasks()).tasks))
        life.request_drain()

asyncio.run(main())
"""


async def test_what_was_typed_at_a_prompt_is_refused():
    ended = await asyncio.to_thread(run, "-c", PROGRAM)
    assert "typed at a prompt" in ended.stderr


async def test_what_another_process_could_not_find_is_refused_here():
    executor = ProcessExecutor()
    assert executor.can_run(functions.pid)
    assert executor.can_run(functions.pid.options(queue="vip"))
    assert executor.can_run(functions.found_elsewhere)
    closure = functions.closure()
    assert not executor.can_run(closure)
    with pytest.raises(InvalidInput, match="is defined inside another function"):
        executor.check(closure)


async def test_a_function_that_was_replaced_is_refused():
    made = Registry().durable(functions.hidden)
    with pytest.raises(InvalidInput, match=r"is not what tests\.executors\.functions\.hidden"):
        ProcessExecutor().check(made)


async def test_nothing_is_left_open():
    def files() -> int:
        return len(os.listdir("/proc/self/fd"))

    before = files()
    executor = ProcessExecutor(max_idle=1)
    await asyncio.gather(*(call(executor, functions.pid) for _ in range(2)))
    for how in ("exit", "orphan"):
        with pytest.raises(ProcessDied):
            await call(executor, functions.die, how)
    await executor.close()
    assert files() == before


async def test_it_works_on_uvloop():
    async def main() -> None:
        executor = ProcessExecutor()
        assert await call(executor, functions.pid) != os.getpid()
        with pytest.raises(ProcessDied, match="SIGSEGV"):
            await call(executor, functions.die, "segfault")
        await executor.close()

    await asyncio.to_thread(uvloop.run, main())


async def test_it_works_where_the_kernel_gives_no_handle(monkeypatch):
    monkeypatch.delattr(os, "pidfd_open")
    executor = ProcessExecutor()
    pid = await call(executor, functions.pid)
    with pytest.raises(ProcessDied, match="exited with code 3"):
        await call(executor, functions.die, "exit")
    await executor.close()
    assert is_gone(pid)


def is_gone(pid: int) -> bool:
    """Dead, and reaped."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def is_dead(pid: int) -> bool:
    """Gone, or waiting for its foster parent to look."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def is_free(lock: Path) -> bool:
    """Whether nobody holds it any more."""
    with lock.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


def start(
    *args: object, cwd: Path | None = None, stdin: int | None = None
) -> "subprocess.Popen[str]":
    path = os.pathsep.join(map(str, [ROOT / "src", ROOT]))
    return subprocess.Popen(
        [sys.executable, *map(str, args)],
        env={**os.environ, "PYTHONPATH": path, "PYTHONUNBUFFERED": ""},
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=cwd,
    )


def run(*args: object, cwd: Path | None = None) -> "subprocess.CompletedProcess[str]":
    with start(*args, cwd=cwd) as process:
        out, err = process.communicate(timeout=60)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)
