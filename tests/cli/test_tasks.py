"""`holdfast tasks`: see, wait for, cancel and retry."""

import csv
import io
import json
import shlex
import signal
import subprocess
import sys

import pytest

from tests.cli.scene import Scene, played
from tests.cli.shell import Shell, until

NOBODY = "01890000-0000-7000-8000-000000000000"

LISTED = """\
id|type|status|queue|tries|worker|created|due|ended
LATER|shop:charge|pending|mail|0/-||TIME|TIME|
NEXT|shop:charge|pending|mail|0/-||TIME|TIME|
HELD|shop:charge|running|default|1/-|web:1|TIME||
WAITS|shop:order|waiting|default|0/-||TIME||
LOST|shop:report|done|default|2/3||TIME||TIME
BROKEN|shop:refund|failed|default|1/1||TIME||TIME
PAID|shop:charge|done|default|1/-||TIME||TIME"""

SHOWN = """\
task|LOST
type|shop:report
status|done
queue|default
tries|2 of 3
created|TIME
ended|TIME
last error|its worker stopped renewing the lease

timeline  SPAN"""


def test_tasks_are_listed_newest_first(scene: Scene):
    assert scene.masked("tasks", "ls") == LISTED


def test_lists_are_filtered_and_paged(scene: Scene):
    def ids(*args: str) -> list[str]:
        lines = scene.says("tasks", "ls", "-o", "jsonl", *args).splitlines()
        return [json.loads(line)["id"] for line in lines]

    assert ids("--status", "failed") == [scene["broken"]]
    assert ids("--queue", "mail", "--tag", "vip") == [scene["next"]]
    assert ids("--tenant", "acme") == [scene["later"]]
    assert ids("--type", "shop:order") == [scene["waits"]]
    assert ids("--user-id", "ann") == ids("--user-id", "ann", "--status", "failed")
    assert ids("--user-id", "ann") == [scene["broken"]]
    assert ids("--user-id", "ann", "--status", "done") == []
    assert "user_id" in scene.shell.fails(2, "tasks", "ls", "--user-id", "")
    page = json.loads(scene.says("tasks", "ls", "--limit", "4", "-o", "json"))
    assert page["has_more"] is True
    first = [task["id"] for task in page["data"]]
    assert [*first, *ids("--cursor", page["next_cursor"])] == ids()
    told = scene.shell.run("tasks", "ls", "--limit", "4").stderr
    assert shlex.split(told)[-1] == page["next_cursor"]  # to be pasted as it is


def test_a_list_is_a_spreadsheet_too(scene: Scene):
    rows = list(csv.DictReader(io.StringIO(scene.says("tasks", "ls", "-o", "csv"))))
    assert rows[-1]["id"] == scene["paid"]
    assert json.loads(rows[1]["tags"]) == ["vip"]
    assert rows[2]["locked_by"] == "web:1"
    assert [row["user_id"] for row in rows] == ["", "", "", "", "", "ann", ""]


def test_the_history_of_a_task_is_told_as_a_timeline(scene: Scene):
    told = scene.masked("tasks", "show", scene["lost"])
    assert told.startswith(SHOWN)
    assert "░" in told
    assert "lost by recovery  gone:2  fence 1" in told
    assert "done  web:1  fence 2" in told
    assert told.splitlines()[-1] == " late settle by the holder of fence 1 refused at CLOCK"


def test_a_task_says_for_whom_it_runs(scene: Scene):
    assert "user|ann" in scene.masked("tasks", "show", scene["broken"])
    assert json.loads(scene.says("tasks", "show", scene["broken"], "-o", "json"))["task"][
        "user_id"
    ] == ("ann")


def test_the_timeline_has_plain_signs_where_no_others_can_be_written(scene: Scene):
    done = scene.shell.run("tasks", "show", scene["lost"], PYTHONIOENCODING="ascii")
    assert done.returncode == 0, done.stderr
    assert done.stdout.isascii()
    assert "#1" in done.stdout


def test_what_holds_a_task_back_is_told(scene: Scene):
    assert "why: it waits: signal approved" in scene.says("tasks", "show", scene["waits"])
    shown = json.loads(scene.says("tasks", "show", scene["next"], "-o", "json"))
    assert shown["task"]["status"] == "pending"
    assert shown["why"]


def test_what_failed_is_retried_and_what_is_done_is_not(scene: Scene):
    assert scene.says("tasks", "retry", scene["broken"]) == scene["broken"]
    (row,) = scene.shell.rows(f"select status from tasks where id = '{scene['broken']}'")
    assert row["status"] == "pending"
    assert "not changed" in scene.shell.fails(5, "tasks", "retry", scene["paid"])


def test_a_task_is_cancelled_at_once_or_asked_to_stop(scene: Scene):
    assert scene.says("tasks", "cancel", scene["next"]) == scene["next"]
    (row,) = scene.shell.rows(f"select status from tasks where id = '{scene['next']}'")
    assert row["status"] == "cancelled"
    done = scene.shell.run("tasks", "cancel", scene["held"])
    assert "its worker is told" in done.stderr
    assert "has ended" in scene.shell.fails(5, "tasks", "cancel", scene["paid"])


def test_the_result_of_a_task_is_waited_for(scene: Scene):
    assert scene.says("tasks", "wait", scene["paid"]) == '"paid"'
    said = scene.shell.fails(8, "tasks", "wait", scene["broken"])
    assert r"Boom: =it \x1b[31mbroke" in said
    assert f"holdfast tasks retry {scene['broken']}" in said
    said = scene.shell.fails(7, "tasks", "wait", scene["next"], "--timeout", "0.1")
    assert "it is pending" in said
    found = json.loads(scene.says("tasks", "wait", scene["paid"], "-o", "json"))
    assert (found["status"], found["result"]) == ("done", "paid")


def test_what_an_attempt_wrote_into_the_log_is_shown(either: Shell):
    either.worker("--poll-min", "0.05")
    task = either.says("enqueue", "--app", "shop", "speak", '"aloud\\u001b[31m"')
    either.says("tasks", "wait", task, "--timeout", "60")
    until(lambda: "says" in either.says("tasks", "logs", task), "the line is kept")
    _, line = either.says("tasks", "logs", task).splitlines()
    assert line.split("\t")[2:] == ["WARNING", "shop", r"says aloud\x1b[31m"]
    (found,) = json.loads(either.says("tasks", "logs", task, "-o", "json"))
    assert found["message"] == "says aloud\x1b[31m"


def test_what_has_happened_is_told_in_order(scene: Scene):
    lines = scene.says("tasks", "tail", "--no-follow", "-o", "jsonl").splitlines()
    events = [json.loads(line) for line in lines]
    assert [event["type"] for event in events] == [
        "task.done", "task.failed", "task.lost", "task.done", "write.refused", "task.waiting",
    ]  # fmt: skip
    after = str(events[2]["seq"])
    only = scene.says("tasks", "tail", "--no-follow", "--after", after, "--only", "write.refused")
    assert scene.mask(only).split("|")[2:4] == ["write.refused", "LOST"]


def test_a_reader_that_goes_away_is_no_error(shell: Shell):
    played(shell)
    for args in (["tasks", "tail", "--no-follow"], ["tasks", "ls"], ["tasks", "ls", "-o", "csv"]):
        command = shlex.join([sys.executable, "-m", "holdfast", *args])
        done = subprocess.run(
            f"{command} | true", shell=True, cwd=shell.folder, env=shell.environ,
            capture_output=True, text=True, check=False, timeout=100,
        )  # fmt: skip
        assert "Traceback" not in done.stderr, args
        assert "Exception ignored" not in done.stderr, args


def test_what_happens_is_told_as_it_happens(either: Shell):
    task = either.says("enqueue", "--app", "shop", "add", "1")
    following = either.start("tasks", "tail", "-o", "jsonl", "--only", "task.done")
    until(lambda: "following what happens after event 0" in following.said, "it follows")
    worker = either.worker("--poll-min", "0.05")
    assert json.loads(following.line("task.done"))["task_id"] == task
    worker.send(signal.SIGTERM)
    following.send(signal.SIGINT)
    assert following.end() == 130


@pytest.mark.parametrize("verb", ["show", "logs", "retry", "cancel", "wait"])
def test_ids_that_nobody_knows_are_told_apart_from_those_that_are_none(scene: Scene, verb: str):
    assert "no such task" in scene.shell.fails(3, "tasks", verb, NOBODY)
    assert "is not the id of a task" in scene.shell.fails(2, "tasks", verb, "7")


def test_looking_makes_no_store_and_moves_no_schema(shell: Shell):
    assert "there is no store" in shell.fails(4, "tasks", "ls")
    assert "there is no store" in shell.fails(4, "queues", "pause", "mail")
    assert not shell.has("holdfast.db")


def test_looking_at_an_empty_database_sets_nothing_up(fresh_database, postgres_current, shell):
    url = fresh_database(postgres_current)
    assert "migrate up" in shell.fails(1, "tasks", "ls", "--store", url)
    assert "migrate up" in shell.fails(1, "sql", "select 1", "--store", url)


def test_a_place_is_a_store_or_an_api(shell: Shell):
    said = shell.fails(2, "tasks", "ls", "--store", "sqlite:///x.db", "--api", "http://x")
    assert "not both" in said


def test_what_has_not_begun_is_changed(scene: Scene):
    told = scene.masked(
        "tasks", "edit", scene["later"],
        "--priority", "5", "--queue", "vip", "--tags", "b,a", "--delay", "2h", "--expires", "3h",
        "--max-tries", "7",
    )  # fmt: skip
    for line in ("queue|vip", "priority|5", "tags|a,b", "tries|0 of 7", "due|TIME", "expires|TIME"):
        assert line in told.splitlines()
    edited = ("tasks", "edit", scene["later"], "--tags", "", "--no-expiry", "-o", "json")
    task = json.loads(scene.says(*edited))
    assert (task["tags"], task["expires_at"], task["priority"]) == ([], None, 5)
    assert "is running" in scene.shell.fails(5, "tasks", "edit", scene["held"], "--priority", "1")
    assert "is done" in scene.shell.fails(5, "tasks", "edit", scene["paid"], "--delay", "0")
    assert "no such task" in scene.shell.fails(3, "tasks", "edit", NOBODY, "--priority", "1")
    for wrong in ([], ["--expires", "1h", "--no-expiry"], ["--max-tries", "0"], ["--queue", "a b"]):
        assert scene.shell.fails(2, "tasks", "edit", scene["later"], *wrong)


def test_the_events_of_one_task_are_followed(scene: Scene):
    told = scene.says("tasks", "tail", "--task", scene["lost"], "--no-follow", "-o", "jsonl")
    events = [json.loads(line) for line in told.splitlines()]
    assert [event["type"] for event in events] == ["task.lost", "task.done", "write.refused"]
    assert {event["task_id"] for event in events} == {scene["lost"]}
    rest = ("--after", str(events[0]["seq"]), "--only", "task.done")
    assert len(scene.says("tasks", "tail", "--task", scene["lost"], "--no-follow", *rest)) > 0
    assert "no such task" in scene.shell.fails(3, "tasks", "tail", "--task", NOBODY)
