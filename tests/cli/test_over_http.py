"""Commands over an API: keys, errors and their codes. That the answers are the same is shown by the
tests of each command."""

import asyncio
import json
import signal
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from holdfast import Holdfast
from holdfast.desk.papers import AuditQuery, OperationWish, TaskSelection
from holdfast.desk.remote import RemoteDesk
from holdfast.errors import UnknownKey, UnknownOperation
from holdfast.ids import new_id
from tests.cli.scene import Scene, played, url_of
from tests.cli.shell import Running, Shell, until

KEY = "bootstrap-key-0123456789abcdef"
HEAVY = {"apsw", "asyncpg", "rich", "uvloop", "fastapi", "holdfast.app", "holdfast.stores"}


def served(shell: Shell, *args: str, **environ: str) -> Running:
    api = shell.start("api", "--port", "0", "--log-level", "warning", *args, **environ)
    shell.environ["HOLDFAST_API"] = api.line("api is ready: ").split(" ")[3].rstrip(",")
    return api


def test_a_task_is_put_and_waited_for(shell: Shell):
    shell.says("migrate", "up")
    served(shell, "--app", "shop")
    shell.worker("--poll-min", "0.05")
    options = ("--wait", "--timeout", "60", "--tags", "a,b", "--delay", "0.01", "--key", "k")
    assert shell.says("enqueue", "add", "1", "2", *options) == "3"
    assert "belongs to task" in shell.fails(5, "enqueue", "add", "9", "--key", "k")
    assert "known are" in shell.fails(3, "enqueue", "nothing")
    assert "out of cheese" in shell.fails(
        8, "enqueue", "boom", "--wait", "--max-tries", "1", "--timeout", "60"
    )
    task = json.loads(shell.says("enqueue", "hold", '"x"', "-o", "json"))["id"]
    assert "has not ended" in shell.fails(7, "tasks", "wait", task, "--timeout", "0.2")
    shell.let_go("x")
    assert shell.says("tasks", "wait", task, "--timeout", "60") == '"x"'


def test_a_key_opens_and_no_key_does_not(shell: Shell):
    played(shell)
    served(shell, HOLDFAST_API_KEY=KEY)
    assert "refuses" in shell.fails(6, "tasks", "ls")
    assert "refuses" in shell.fails(6, "tasks", "ls", HOLDFAST_TOKEN="hf_of_nobody")
    assert shell.run("tasks", "ls", HOLDFAST_TOKEN=KEY).returncode == 0
    (shell.folder / "key").write_text(f"{KEY}\n")
    assert "PAID" not in shell.says("tasks", "ls", "--token-file", "key")
    done = shell.run("queues", "ls", HOLDFAST_TOKEN_FILE=str(shell.folder / "key"))
    assert done.returncode == 0
    for wrong in ("no-such-file", "."):
        assert "cannot be read" in shell.fails(2, "tasks", "ls", "--token-file", wrong)


def test_the_key_is_never_printed(shell: Shell):
    played(shell)
    served(shell, HOLDFAST_API_KEY=KEY)
    for args in (["tasks", "ls"], ["doctor"], ["config", "show"], ["stats"], ["flows", "ls"]):
        done = shell.run(*args, HOLDFAST_TOKEN=KEY)
        assert KEY not in done.stdout + done.stderr, args
    done = shell.run("tasks", "ls", HOLDFAST_TOKEN=KEY, HOLDFAST_API="http://127.0.0.1:1")
    assert done.returncode == 4
    assert KEY not in done.stderr


def test_keys_are_made_and_taken_back_over_http(shell: Shell):
    played(shell)
    served(shell, HOLDFAST_API_KEY=KEY)
    (shell.folder / "admin").write_text(KEY)
    admin = ("--token-file", "admin")
    made = json.loads(shell.says("token", "create", "x", "--role", "viewer", "-o", "json", *admin))
    assert shell.run("tasks", "ls", HOLDFAST_TOKEN=made["key"]).returncode == 0
    said = shell.run("token", "ls", HOLDFAST_TOKEN=made["key"])
    assert said.returncode == 6
    assert made["key"] not in said.stderr
    assert shell.says("token", "revoke", made["record"]["id"], *admin) == made["record"]["id"]
    until(lambda: shell.run("tasks", "ls", HOLDFAST_TOKEN=made["key"]).returncode == 6, "revoked")
    assert "no key has the id" in shell.fails(3, "token", "revoke", "nobody", *admin)


def test_the_rest_of_the_desk_is_the_same_over_http(shell: Shell):
    """What no command asks for (yet)."""
    scene = played(shell)
    served(shell)
    remote, local = asyncio.run(both(shell, scene))
    assert remote == local


async def both(shell: Shell, scene: Scene) -> tuple[list[Any], list[Any]]:
    found = []
    async with Holdfast(url_of(shell)) as app:
        for desk in (RemoteDesk(shell.environ["HOLDFAST_API"]), await app.desk()):
            found.append(await answers(desk, scene))
    return found[0], found[1]


async def answers(desk: Any, scene: Scene) -> list[Any]:
    wish = OperationWish(action="replay", filter=TaskSelection(status="failed"), dry_run=True)
    planned = await desk.start_operation(wish)
    now = datetime.now(UTC).replace(second=0, microsecond=0) + timedelta(minutes=1)
    audit = await desk.audits(AuditQuery(limit=5))
    with pytest.raises(UnknownOperation):
        await desk.operation(new_id())
    with pytest.raises(UnknownKey):
        await desk.key("nobody")
    return [
        (planned.matched, planned.sample, planned.state),
        await desk.operations(),
        (await desk.series(now - timedelta(hours=1), now)).bounds,
        audit.next_before,
        (await desk.logs(scene.tasks["paid"])).data,
        [one for one in await desk.task_types() if one.type.startswith("shop:")],  # no other test's
        await desk.dead_letter_groups(),
        await desk.recoveries(),
        (await desk.flow(scene.tasks["waits"])).task,
    ]


def test_the_doctor_visits_an_api(shell: Shell):
    played(shell)
    served(shell)
    found = {one["code"]: one["status"] for one in json.loads(shell.says("doctor", "-o", "json"))}
    assert found["HF101"] == found["HF103"] == found["HF105"] == "ok"
    assert found["HF102"] == found["HF201"] == "skipped"


def test_an_api_that_is_not_there_is_told(shell: Shell):
    for args in (["tasks", "ls"], ["queues", "pause", "x"], ["enqueue", "t"], ["top", "--once"]):
        said = shell.fails(4, *args, "--api", "http://127.0.0.1:1")
        assert "the API at http://127.0.0.1:1 does not answer" in said
    found = json.loads(shell.run("doctor", "-o", "json", "--api", "http://127.0.0.1:1").stdout)
    assert found[0]["status"] == "fail"
    assert "such as http" in shell.fails(2, "tasks", "ls", "--api", "localhost")
    assert "holds no key" in shell.fails(2, "tasks", "ls", "--api", "http://a:b@localhost")


def test_a_key_that_others_could_read_is_warned_of(shell: Shell):
    for url, is_told in (("http://nobody.invalid", True), ("https://nobody.invalid", False)):
        done = shell.run("tasks", "ls", "--api", url, HOLDFAST_TOKEN=KEY)
        assert done.returncode == 4
        assert ("in the clear" in done.stderr) is is_told
        assert KEY not in done.stderr


def test_a_wait_over_an_api_ends_with_ctrl_c(shell: Shell):
    scene = played(shell)
    served(shell)
    waiting = shell.start("tasks", "wait", scene["next"], "--timeout", "1h")
    threads = Path(f"/proc/{waiting.process.pid}/task")
    until(lambda: len(list(threads.iterdir())) > 1, "it has asked, and waits")
    following = shell.start("tasks", "tail", "--after", "0")
    following.line("task.done")
    for running in (waiting, following):
        running.send(signal.SIGINT)
        assert running.end() == 130


@pytest.mark.parametrize("command", [["--help"], ["tasks", "ls", "--help"], ["tasks", "ls"]])
def test_commands_over_an_api_bring_nothing_heavy(command: list[str], tmp_path: Path):
    program = (
        "import sys\nfrom holdfast.cli import main\n"
        f"try:\n    main({command!r})\nexcept SystemExit:\n    pass\n"
        "print(*sys.modules, file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=tmp_path,
        env={"HOLDFAST_API": "http://127.0.0.1:1", "PYTHONPATH": ":".join(sys.path)},
    )  # fmt: skip
    assert HEAVY.isdisjoint(done.stderr.split()), HEAVY & set(done.stderr.split())
