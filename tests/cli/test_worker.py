"""`holdfast worker`: it starts, works, drains, and says why when it cannot."""

import json
import re
import signal

import pytest

from holdfast import Holdfast
from holdfast.cli import serving
from tests.cli.shell import Shell, until

STATE = "select status, try_count, locked_by from tasks order by id"


def test_a_worker_does_what_was_enqueued_and_drains_at_sigterm(either: Shell):
    worker = either.worker("--worker-id", "w")
    assert either.says("enqueue", "add", "2", "3", "--app", "shop", "--wait") == "5"
    worker.send(signal.SIGTERM)
    assert worker.end() == 0


def test_python_m_holdfast_worker_is_the_same(shell: Shell):
    worker = shell.start("--app", "shop:app", "--queues", "b,a", module="holdfast.worker")
    line = worker.line("is ready")
    assert re.fullmatch(
        r"worker \S+:\d+ is ready: queues a, b, 10 slots, store sqlite:///holdfast.db\n", line
    )
    worker.send(signal.SIGTERM)
    assert worker.end() == 0


def test_draining_finishes_what_runs_and_leaves_the_rest_untried(either: Shell):
    worker = either.worker("--concurrency", "1")
    for name in ("one", "two"):
        either.says("enqueue", "shop:hold", f'"{name}"')
    either.began("one")
    worker.send(signal.SIGTERM)
    until(lambda: "draining" in worker.said, "draining is logged")
    either.let_go("one")
    assert worker.end() == 0
    first, second = either.rows(STATE)
    assert first["status"] == "done"
    assert (second["status"], second["try_count"]) == ("pending", 0)
    assert not either.has("two.began")


@pytest.mark.parametrize("function", ["hold", "hold_in_a_thread"])
def test_what_outlasts_the_drain_is_handed_back_and_pays_no_attempt(either: Shell, function: str):
    worker = either.worker("--drain-timeout", "0.2s")
    either.says("enqueue", f"shop:{function}", '"long"')
    either.began("long")
    worker.send(signal.SIGINT)
    assert worker.end() == 0
    (task,) = either.rows(STATE)
    assert (task["status"], task["try_count"], task["locked_by"]) == ("pending", 0, None)


def test_functions_that_go_on_whatever_comes_do_not_hold_up_the_exit(shell: Shell):
    worker = shell.worker("--drain-timeout", "0.2s")
    for function in ("defy", "defy_and_ask", "defy_through_another"):
        shell.says("enqueue", f"shop:{function}", f'"{function}"')
        shell.began(function)
    worker.send(signal.SIGTERM)
    assert worker.end() == 0
    assert worker.said.count("Does it catch asyncio.CancelledError") == 3
    assert worker.said.count("left behind, since it goes on although it was cancelled") == 4
    assert "Traceback" not in worker.said
    assert (
        shell.rows("select locked_by, try_count from tasks")
        == [{"locked_by": None, "try_count": 0}] * 3
    )


@pytest.mark.parametrize("function", ["hold", "block"])
def test_a_second_sigint_leaves_at_once_whatever_runs(shell: Shell, function: str):
    worker = shell.worker()
    shell.says("enqueue", f"shop:{function}", '"x"')
    shell.began("x")

    def left() -> bool:  # two at the same moment count as one
        worker.send(signal.SIGINT)
        return worker.process.poll() is not None

    until(left, "the worker leaves")
    assert worker.end() == 130
    assert "left at once" in worker.said
    assert shell.rows(STATE)[0]["status"] == "running"


@pytest.mark.parametrize("redis", [False, True])
def test_an_idle_worker_hears_of_a_task_long_before_it_would_look(
    shell: Shell, redis: bool, request: pytest.FixtureRequest
):
    url = ["--redis-url", request.getfixturevalue("valkey").url] if redis else []
    worker = shell.worker("--poll-min", "5m", "--poll-max", "5m", *url)
    if url:
        shell.environ["REDIS_URL"] = url[1]
    assert shell.says("enqueue", "add", "1", "--app", "shop", "--wait", "--timeout", "60s") == "1"
    worker.send(signal.SIGTERM)
    assert worker.end() == 0


def test_the_seeds_environment_is_heard(shell: Shell):
    shell.environ |= {
        "HOLDFAST_APP": "shop",
        "DATABASE_URL": "sqlite:///of-the-url.db",
        "WORKER_ID": "worker-1",
        "MAX_CONCURRENT_JOBS": "3",
        "WORKER_LEASE_DURATION_SECONDS": "70",
        "WORKER_RECOVERY_INTERVAL_SECONDS": "30",
        "WORKER_POLL_MIN_INTERVAL_SECONDS": "0.1",
        "WORKER_POLL_MAX_INTERVAL_SECONDS": "0.2",
        "WORKER_MAX_RETRIES": "1",
    }
    worker = shell.start("worker")
    assert worker.line("is ready") == (
        "worker worker-1 is ready: queues all, 3 slots, store sqlite:///of-the-url.db\n"
    )
    assert "ValueError: out of cheese" in shell.fails(8, "enqueue", "boom", "--wait")
    shell.says("enqueue", "hold", '"x"')
    shell.began("x")
    ended, held = shell.rows(
        "select try_count, locked_by, 86400 * (julianday(lease_timeout) - julianday(started_at)) "
        "as lease from tasks order by id"
    )
    assert ended["try_count"] == 1
    assert held["locked_by"] == "worker-1"
    assert 69 < held["lease"] < 71
    worker.send(signal.SIGKILL)


def test_a_type_of_worker_has_its_queue_and_one_slot_unless_told_otherwise(shell: Shell):
    worker = shell.start("worker", "--app", "shop", WORKER_TYPE="intake", GROUP_ID="g")
    assert "queues intake, 1 slot, " in worker.line("is ready")
    worker.send(signal.SIGTERM)
    worker = shell.start(
        *("worker", "--app", "shop", "--queues", "triage"), WORKER_TYPE="intake", CONCURRENCY="4"
    )
    assert "queues triage, 4 slots" in worker.line("is ready")
    worker.send(signal.SIGTERM)


def test_a_flag_goes_before_the_environment_and_before_the_code(shell: Shell):
    (shell.folder / "fixed.py").write_text(
        "from holdfast import Holdfast\nmine = Holdfast('sqlite:///code.db')\n"
    )
    worker = shell.start(
        *("worker", "--app", "fixed", "--store", "sqlite:///flag.db", "--concurrency", "2"),
        HOLDFAST_STORE="sqlite:///environment.db",
        CONCURRENCY="3",
    )
    line = worker.line("is ready")
    assert "2 slots, store sqlite:///flag.db" in line
    worker.send(signal.SIGTERM)
    assert worker.end() == 0
    assert not shell.has("code.db")
    assert not shell.has("environment.db")


def test_the_log_as_json_is_json_in_every_line(shell: Shell):
    worker = shell.start("worker", "--app", "shop:app", "--log-json", "--log-level", "debug")
    until(lambda: " is ready: queues all, " in worker.said, "it is ready")
    worker.send(signal.SIGTERM)
    assert worker.end() == 0
    records = [json.loads(line) for line in worker.said.splitlines()]
    assert any("has stopped" in record["message"] for record in records)
    worker._reader.join(60)
    assert worker._lines.empty(), "nor is anything said beside it"


@pytest.mark.parametrize(
    ("flags", "environ", "said"),
    [
        ([], {}, "--app pkg.module:app"),
        (["--app", "shop", "--lease", "soon"], {}, "30s"),
        (["--app", "shop", "--queues", "a b"], {}, "--queues"),
        (["--app", "shop", "--lease", "5s", "--heartbeat", "5s"], {}, "a third"),
        (["--app", "shop"], {"CONCURRENCY": "many", "HOLDFAST_LEASE": "x"}, "HOLDFAST_LEASE"),
    ],
)
def test_a_worker_that_is_asked_for_wrongly_says_how_to_ask(shell: Shell, flags, environ, said):
    assert said in shell.fails(2, "worker", *flags, **environ)


@pytest.mark.parametrize(
    ("code", "name", "said"),
    [
        ("import nothing_like_it\n", "broken", ["nothing_like_it", "broken.py, line 1"]),
        ("x = 1\ny = 1 / 0\n", "broken", ["ZeroDivisionError", "broken.py, line 2"]),
        ("x = (\n", "broken", ["SyntaxError", "broken.py, line 1"]),
        ("import sys\nsys.exit(3)\n", "broken", ["SystemExit: 3", "broken.py, line 2"]),
        ("x = 1\n", "broken:x", ["'x' in broken is a int", "app = Holdfast()"]),
        ("", "broken", ["no app is in broken"]),
        ("", "elsewhere.app", ["no module 'elsewhere.app'", "PYTHONPATH"]),
        ("", "broken.py", ["no module 'broken.py'"]),
        ("", "./broken", ["not the name of a module"]),
        (
            "from holdfast import Holdfast\na, b = Holdfast(), Holdfast()\n",
            "broken",
            ["several apps", "--app broken:a, --app broken:b"],
        ),
        ("from shop import app\n", "broken:ap", ["'ap' in broken is missing", "broken:app"]),
    ],
)
def test_an_app_that_does_not_import_is_named_with_its_error(shell: Shell, code, name, said):
    (shell.folder / "broken.py").write_text(code)
    text = shell.fails(10, "worker", "--app", name)
    assert [part for part in said if part not in text] == []


def test_a_store_that_does_not_answer_is_waited_for_a_moment(shell: Shell):
    url = "postgresql://me:secret@127.0.0.1:1/shop"
    text = shell.fails(4, "worker", "--app", "shop", "--store", url)
    assert "Check that the server runs" in text
    assert "secret" not in text


async def test_a_store_that_answers_slowly_is_not_taken_for_one_that_is_away(
    either: Shell, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(serving, "_PATIENCE", 0.0)
    monkeypatch.chdir(either.folder)
    app = Holdfast(either.environ.get("HOLDFAST_STORE", "sqlite:///slow.db"))
    await serving._open_patiently(app, app.create_worker_lifecycle())
    assert await app.queue_depth() == 0
    await app.close()


def test_a_store_in_a_folder_that_is_not_there_is_not_waited_for(shell: Shell):
    assert "make it first" in shell.fails(
        4, "worker", "--app", "shop", "--store", "sqlite:///no/such/folder/x.db"
    )


def test_a_worker_runs_without_uvloop(shell: Shell):
    (shell.folder / "uvloop.py").write_text("raise ImportError\n")
    worker = shell.worker()
    assert shell.says("enqueue", "add", "1", "--app", "shop", "--wait") == "1"
    worker.send(signal.SIGINT)
    assert worker.end() == 0


def test_the_log_tells_of_claims_and_names_the_task_of_each_line(shell: Shell):
    worker = shell.worker("--poll-min", "0.05", "--worker-id", "w")
    task = shell.says("enqueue", "speak", '"hello"', "--app", "shop")
    shell.says("tasks", "wait", task, "--timeout", "60")
    until(lambda: f"worker w claimed task {task} (shop:speak), try 1" in worker.said, "a claim")
    (line,) = [line for line in worker.said.splitlines() if "says hello" in line]
    assert re.fullmatch(rf"\d\d:\d\d:\d\d WARNING says hello \[task {task}\]", line)
    worker.send(signal.SIGTERM)


def test_the_first_sigint_of_a_worker_that_drains_already_does_not_leave_at_once(either: Shell):
    worker = either.worker("--worker-id", "w1")
    either.says("enqueue", "shop:hold", '"x"')
    either.began("x")
    either.says("workers", "drain", "w1")
    until(lambda: "draining" in worker.said, "draining is logged")
    worker.send(signal.SIGINT)
    either.let_go("x")
    assert worker.end() == 0
    assert either.rows(STATE)[0]["status"] == "done"
