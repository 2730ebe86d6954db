"""`holdfast enqueue`: a task from the shell."""

import json
import signal
from uuid import UUID

import pytest

from tests.cli.shell import Shell


def test_without_an_app_any_type_is_accepted_and_its_id_printed(either: Shell):
    task = either.says(
        *("enqueue", "other:thing", "1", '{"a": [2]}', "--kwargs", '{"b": null}'),
        *(
            "--queue",
            "vip",
            "--priority",
            "7",
            "--delay",
            "1h",
            "--tags",
            "y,x",
            "--requires",
            "gpu",
        ),
        *("--tenant", "acme", "--max-tries", "2", "--expires", "2h", "--key", "k"),
        *("--user-id", "ann"),
    )
    assert str(UUID(task)) == task
    (row,) = either.rows(
        "select id, type, status, queue, priority, tenant_id, user_id, max_tries, "
        "run_at > now() as later "
        "from tasks"
    )
    assert row.pop("later")
    assert row == {
        "id": task, "type": "other:thing", "status": "pending", "queue": "vip", "priority": 7,
        "tenant_id": "acme", "user_id": "ann", "max_tries": 2,
    }  # fmt: skip


def test_a_key_makes_one_task_and_another_payload_is_a_conflict(shell: Shell):
    first = shell.says("enqueue", "t", "1", "--key", "k")
    assert shell.says("enqueue", "t", "1", "--key", "k") == first
    assert "use a new key" in shell.fails(5, "enqueue", "t", "2", "--key", "k")


def test_a_time_without_a_zone_is_local_time(shell: Shell):
    shell.environ["TZ"] = "Etc/GMT-3"
    shell.says("enqueue", "t", "--run-at", "2031-02-03T04:05")
    assert shell.rows("select run_at from tasks")[0]["run_at"].startswith("2031-02-03 01:05")


@pytest.mark.parametrize(
    ("code", "args", "said"),
    [
        (2, ["shop:add", "abc"], "'\"abc\"'"),
        (2, ["shop:add", "--kwargs", "[1]"], "JSON object"),
        (2, ["shop:add", "1", "--run-at", "noon"], "2030-12-31T08:00"),
        (2, ["shop:add", "1", "--delay", "1h", "--run-at", "2030-12-31T08:00"], "instead of a"),
        (2, ["t", "--delay", "1h", "--expires", "1m"], "give a longer expires"),
        (2, ["add", "1", "--app", "shop", "--delay", "1h", "--expires", "1m"], "longer expires"),
        (2, ["add", "1", "2", "3", "--app", "shop"], "add(a: int, b: int = 0) -> int"),
        (2, ["add", '"1"', "--app", "shop"], "add(a: int, b: int = 0) -> int"),
        (2, ["no type", "1"], "type"),
        (2, ["t", "--user-id", ""], "user_id must be a text of 1 to 200"),
        (2, ["add", "1", "--app", "shop", "--user-id", "a\nb"], "control character"),
        (3, ["subtract", "1", "--app", "shop"], "known are: shop:add"),
        (4, ["t", "--store", "postgresql://me:secret@127.0.0.1:1/x"], "Check that the server runs"),
        (4, ["t", "--store", "sqlite:///no/such/folder/x.db"], "make it first"),
        (2, ["t", "--store", "mysql://x"], "postgresql://"),
        (10, ["t", "--app", "nix"], "no module 'nix'"),
    ],
)
def test_what_cannot_be_enqueued_says_why(shell: Shell, code, args, said):
    text = shell.fails(code, "enqueue", *args)
    assert said in text
    assert "secret" not in text


def test_a_version_is_named_where_there_are_several(shell: Shell):
    with (shell.folder / "shop.py").open("a") as file:
        file.write(
            """
@app.durable(name="shop:greet", version="1")
async def greet(name: str) -> str:
    return f"hello {name}"


def also() -> None:
    @app.durable(name="shop:greet", version="2")
    async def greet(name: str) -> str:
        return f"good day {name}"

    @app.durable(name="mail:add")
    async def add() -> None: ...


import os

if os.environ.get("ALSO"):
    also()
"""
        )
    call = ("enqueue", "greet", '"you"', "--wait")
    app = ("--app", "shop")
    with_one = shell.worker()
    assert shell.says(*call, *app) == '"hello you"'
    told = shell.fails(2, "enqueue", "shop:greet", '"you"')
    assert "the workers know shop:greet@1, and none without a version; say which" in told
    told = shell.fails(2, "enqueue", "shop:greet@1", '"you"')
    assert "write shop:greet --version 1" in told
    for name in ("greet", "shop:greet"):
        told = shell.fails(3, "enqueue", f"{name}@1", '"you"', *app)
        assert f"a version is said apart: {name}, and --version 1" in told
    known = shell.run("enqueue", "shop:greet", '"you"', "--version", "1", "--wait")
    assert known.stdout == '"hello you"\n'
    with_one.send(signal.SIGTERM)
    with_one.end()
    shell.environ["ALSO"] = "1"
    shell.worker()
    told = shell.fails(3, *call, *app)
    assert "'greet' could be any of shop:greet@1, shop:greet@2; say which" in told
    assert shell.says(*call, *app, "--version", "2") == '"good day you"'
    told = shell.fails(3, "enqueue", "add", "1", *app)
    assert "'add' could be any of mail:add, shop:add; say which, by its full name" in told
    assert shell.says("enqueue", "shop:add", "1", "--wait", *app) == "1"


def test_where_nobody_knows_the_function_an_at_in_its_name_is_asked_about(shell: Shell):
    done = shell.run("enqueue", "other:thing@2")
    assert done.returncode == 0
    assert "a version is said apart: --version 2" in done.stderr
    assert "version" not in shell.run("enqueue", "other:thing", "--version", "2").stderr


def test_waiting_ends_with_the_result_the_failure_or_the_time(either: Shell):
    either.environ["HOLDFAST_APP"] = "shop"
    worker = either.worker()
    done = either.run("enqueue", "add", "20", "--kwargs", '{"b": 22}', "--wait")
    assert (done.returncode, done.stdout) == (0, "42\n")
    assert done.stderr.startswith("task ")
    shown = json.loads(either.says("enqueue", "add", "1", "--wait", "-o", "json"))
    assert shown == {"id": shown["id"], "status": "done", "result": 1, "error": None}
    failed = either.fails(8, "enqueue", "boom", "--max-tries", "1", "--wait")
    assert "ValueError: out of cheese" in failed
    late = either.fails(7, "enqueue", "hold", '"x"', "--wait", "--timeout", "0.3s")
    assert "goes on without us" in late
    worker.send(signal.SIGKILL)
