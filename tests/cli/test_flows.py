"""`holdfast flows`: journals, replay checks, signals."""

import json
import signal

from tests.cli.shell import Shell, until

APP = """
import asyncio
from holdfast import Holdfast

app = Holdfast()


@app.durable
async def double(n: int) -> int:
    return 2 * n


@app.durable
async def order(n: int) -> int:
    a = await double(n)
    b = await Holdfast.step("add", lambda x: x + 1, a)
    c, d = await asyncio.gather(double(b), double(b + 1))
    return c + d + await Holdfast.wait_for_signal("approved", type=int)
"""

SYNC = """
from holdfast import Holdfast

app = Holdfast()


@app.durable
async def double(n: int) -> int:
    return 2 * n


@app.durable
def order(n: int) -> int:
    a = Holdfast.run(double(n))
    b = Holdfast.run(Holdfast.step("add", lambda x: x + 1, a))
    c, d = Holdfast.run(double.map([b, b + 1]))
    return c + d + Holdfast.run(Holdfast.wait_for_signal("approved", type=int))
"""

NOBODY = "01890000-0000-7000-8000-000000000000"
EDITS = {
    "renamed": ('"add"', '"plus"'),
    "removed": ("await double(n)", "2 * n"),
    "other arguments": ("double(b + 1)", "double(b + 2)"),
}
SYNC_EDITS = {
    "renamed": ('"add"', '"plus"'),
    "removed": ("Holdfast.run(double(n))", "2 * n"),
    "other arguments": ("[b, b + 1]", "[b, b + 2]"),
}


def write(shell: Shell, name: str, text: str) -> None:
    (shell.folder / name).write_text(text)


def served(shell: Shell, task: str, status: str) -> None:
    """A worker is at work until the task has come so far."""
    worker = shell.start("worker", "--app", "market", "--poll-min", "0.05")
    query = f"select 1 as n from tasks where id = '{task}' and status = '{status}'"
    until(lambda: bool(shell.rows(query)), f"{task} is {status}")
    worker.send(signal.SIGTERM)
    assert worker.end() == 0


def begun(shell: Shell, app: str = APP) -> str:
    write(shell, "market.py", app)
    task = shell.says("enqueue", "--app", "market", "order", "5")
    served(shell, task, "waiting")
    return task


def test_a_run_is_shown_exported_and_checked_against_changed_code(either: Shell):
    task = begun(either)
    shown = json.loads(either.says("flows", "show", task, "-o", "json"))
    assert [entry["kind"] for entry in shown["journal"]][:3] == ["child", "came", "step"]
    assert [child["status"] for child in shown["children"]] == ["done"] * 3
    lines = either.says("flows", "show", task).splitlines()
    child = shown["journal"][0]["value"]["task"]
    assert lines[:4] == [
        "position\tkind\tname\tdetail",
        f"0\tchild\tmarket:double\ttask {child}",
        "1\tcame\t\t0 done",
        "2\tstep\tstep add\tdone",
    ]
    write(either, "run.json", either.says("flows", "export", task))
    told = either.says("flows", "check", "run.json", "--app", "market")
    assert "fits run.json: it waits for signal approved" in told
    for name, (old, new) in EDITS.items():
        write(either, "market.py", APP.replace(old, new))
        told = either.fails(5, "flows", "check", "run.json", "--app", "market")
        assert "recorded, not asked" in told, name
    write(either, "market.py", APP + "    # and one more line\n")
    assert "fits" in either.says("flows", "check", "run.json", "--app", "market")


def test_a_run_of_a_sync_function_is_checked_too(shell: Shell):
    task = begun(shell, SYNC)
    write(shell, "run.json", shell.says("flows", "export", task))
    told = shell.says("flows", "check", "run.json", "--app", "market")
    assert "fits run.json: it waits for signal approved" in told
    for name, (old, new) in SYNC_EDITS.items():
        write(shell, "market.py", SYNC.replace(old, new))
        told = shell.fails(5, "flows", "check", "run.json", "--app", "market")
        assert "recorded, not asked" in told, name


def test_a_parked_function_is_shown_with_its_difference_line_by_line(either: Shell):
    task = begun(either)
    write(either, "market.py", APP.replace('"add"', r'"pl\x1b[31mus"'))
    either.says("flows", "signal", task, "approved", "100")
    reason = f"select 1 as n from tasks where id = '{task}' and reason like 'parked%'"
    worker = either.start("worker", "--app", "market", "--poll-min", "0.05")
    until(lambda: bool(either.rows(reason)), "parked")
    worker.send(signal.SIGTERM)
    assert worker.end() == 0
    lines = either.says("tasks", "show", task).splitlines()
    parked = "parked: the code does not ask for what is recorded of this run"
    assert f"status\twaiting ({parked})" in lines
    why = lines.index(f"why: it waits: {parked}")
    assert lines[why + 1].startswith("     - recorded, not asked: step add")
    assert r"     + asked, not recorded: step pl\x1b[31mus" in lines[why:]
    assert not any("\\x0a" in line or "\x1b" in line for line in lines)


def test_a_signal_from_the_shell_is_heard(either: Shell):
    task = begun(either)
    either.says("flows", "signal", task, "approved", "100")
    served(either, task, "done")
    assert "has ended" in either.fails(5, "flows", "signal", task, "approved", "1")


def test_bad_input_is_told(shell: Shell):
    write(shell, "market.py", APP)
    write(shell, "no.json", "{}")
    assert "is no run" in shell.fails(2, "flows", "check", "no.json", "--app", "market")
    assert "is not JSON" in shell.fails(2, "flows", "signal", NOBODY, "name", "{")
    assert "is not the id of a task" in shell.fails(2, "flows", "signal", "x", "name")
    shell.says("enqueue", "t")
    for verb in ("show", "graph", "export"):
        assert "no such task" in shell.fails(3, "flows", verb, NOBODY)
    assert "no such task" in shell.fails(3, "flows", "signal", NOBODY, "name")


def test_functions_that_wait_are_listed_and_drawn_with_their_children(either: Shell):
    task = begun(either)
    (line,) = either.says("flows", "ls").splitlines()[1:]
    assert line.startswith(f"{task}\tmarket:order\tdefault\twaits for signal approved")
    root, *children = either.says("flows", "graph", task).splitlines()
    assert root == f"… market:order  {task}  waiting (waits for signal approved)"
    assert [child[:19] for child in children] == ["├─ ✓ market:double "] * 2 + [
        "└─ ✓ market:double "
    ]
    graph = json.loads(either.says("flows", "graph", task, "-o", "json"))
    types = [node["task"]["type"] for node in graph["nodes"]]
    assert types == ["market:order"] + ["market:double"] * 3
    assert [edge["parent_id"] for edge in graph["edges"]] == [task] * 3
    assert [edge["child_id"] for edge in graph["edges"]] == [
        node["task"]["id"] for node in graph["nodes"][1:]
    ]


def test_a_long_run_is_shown_whole(shell: Shell):
    body = """
from holdfast import Holdfast

app = Holdfast()


@app.durable
async def order(amount: int) -> str:
    for i in range(1200):
        await Holdfast.step("add", max, i, 7)
    return await Holdfast.wait_for_signal("over")
"""
    task = begun(shell, body)
    shown = json.loads(shell.says("flows", "show", task, "-o", "json"))
    assert [entry["position"] for entry in shown["journal"]] == list(range(1201))
    assert shown["next_after"] is None
    assert len(shell.says("flows", "show", task).splitlines()) == 1202
