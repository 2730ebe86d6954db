"""`holdfast queues`, `workers`, `leases`, `recover`, `stats`, `top`: the fleet from outside."""

import asyncio
import json
import re
import signal

import pytest

from holdfast.stores.opening import open_store
from holdfast.tasks.lane import Serving
from tests.cli.scene import SHORT, Scene, url_of
from tests.cli.shell import Shell
from tests.cli.terminal import lines_of, on_a_terminal
from tests.contract.acts import claim_one, put_one

QUEUES = """\
queue|state|claimable|running|scheduled|waiting|blocked|failed|oldest|expired
default|open|0|1|0|1|0|1||0
mail|open|1|0|1|0|0|0|SPAN|0"""

DRAWN = [
    "queue    state  claimable  running  scheduled  waiting  blocked  failed  oldest  expired",
    "default  open           0        1          0        1        0       1                0",
    "mail     open           1        0          1        0        0       0  SPAN  0",
]

WHY = """\
mail: 1 claimable, 0 running
  nothing holds it back
    holdfast tasks show ID says more"""

WORKERS = """\
worker|tenant|state|slots|queues|heartbeat|loop lag|claimed|recovered|version
gone:2||ready|0/4|all|TIME|SPAN|0|0|1.0
web:1||ready|1/8|default,mail|TIME|SPAN|4|0|1.0"""

LEASES = """\
task|type|queue|holder|fence|try|since|until|left
HELD|shop:charge|default|web:1|1|1|TIME|TIME|SPAN"""

STATS = """\
queue|pending|claimable|running|load|scheduled|waiting|failed|oldest|wanted
default|0|0|1|1|0|1|1||1
mail|2|1|0|1|1|0|0|SPAN|1
total|2|1|1|2|1|1|1|SPAN|2

workers|2 active, 0 draining, 0 stale
leases|1 active, 0 expired
recovered|1
server time|TIME"""

SLOW = Serving(queues=frozenset({"slow"}))


def in_order(text: str) -> str:
    """The heading, then the rows by name."""
    first, *rest = text.splitlines()
    return "\n".join([first, *sorted(rest)])


def lapsed(scene: Scene) -> str:
    """A task whose holder has stopped renewing."""

    async def lose() -> str:
        store = await open_store(url_of(scene.shell))
        try:
            task = await put_one(store, "shop:slow", queue="slow")
            await claim_one(store, worker=2, lease=SHORT, serving=SLOW)
            while not await store.leases(lapsed=True):
                await asyncio.sleep(0.01)
            return str(task)
        finally:
            await store.close()

    return asyncio.run(lose())


def test_queues_are_listed_with_their_counts(scene: Scene):
    assert in_order(scene.masked("queues", "ls")) == QUEUES
    shown = json.loads(scene.says("queues", "show", "mail", "-o", "json"))
    assert (shown["pending"], shown["claimable"], shown["scheduled"]) == (2, 1, 1)
    assert json.loads(scene.says("queues", "show", "nothing", "-o", "json"))["pending"] == 0


def test_a_paused_queue_says_so_until_it_is_resumed(scene: Scene):
    assert "state\tpaused" in scene.says("queues", "pause", "mail")
    assert "it is paused\n    holdfast queues resume mail" in scene.says("queues", "why", "mail")
    assert "state\topen" in scene.says("queues", "resume", "mail")
    assert scene.masked("queues", "why", "mail") == WHY


def test_workers_are_listed(scene: Scene):
    assert in_order(scene.masked("workers", "ls")) == WORKERS
    shown = scene.masked("workers", "show", "web:1")
    assert "slots|1 of 8 taken" in shown
    assert LEASES in shown
    found = json.loads(scene.says("workers", "show", "web:1", "-o", "json"))
    assert found["hostname"] == "web"
    assert "no worker is known as 'nobody'" in scene.shell.fails(3, "workers", "show", "nobody")
    assert scene.shell.fails(3, "workers", "drain", "nobody")


def test_a_worker_is_drained_from_outside(either: Shell):
    worker = either.worker("--worker-id", "mine")
    assert either.says("workers", "drain", "mine") == "mine"
    assert worker.end() == 0
    assert "mine" not in either.says("workers", "ls")
    assert "stopped" in either.says("workers", "ls", "--all")


def test_leases_are_listed_with_the_time_left(scene: Scene):
    assert scene.masked("leases", "ls") == LEASES
    assert len(scene.says("leases", "ls", "--expiring", "1s").splitlines()) == 1
    task = lapsed(scene)
    assert task in scene.says("leases", "ls", "--expiring", "1s")
    assert "EXPIRED" in scene.says("leases", "ls", "--expired", "--worker", "gone:2")
    looks = scene.says("leases", "watch", "--every", "0.01", "--times", "2").splitlines()
    assert [len(json.loads(look)) for look in looks] == [2, 2]


def test_where_there_are_more_leases_than_wanted_it_is_said(scene: Scene):
    lapsed(scene)
    whole = json.loads(scene.says("leases", "ls", "-o", "json"))
    few = scene.shell.run("leases", "ls", "-o", "json", "--limit", "1")
    assert [lease["task_id"] for lease in json.loads(few.stdout)] == [whole[0]["task_id"]]
    assert "there are more: --limit 10" in few.stderr
    assert "more" not in scene.shell.run("leases", "ls", "--limit", "2").stderr


def test_what_a_dead_worker_held_is_taken_back(scene: Scene):
    task = lapsed(scene)
    assert scene.says("recover", "--dry-run") == task
    assert len(json.loads(scene.says("leases", "ls", "-o", "json"))) == 2
    done = scene.shell.run("recover")
    assert done.stdout.strip() == task
    assert "1 taken back" in done.stderr
    run = json.loads(scene.says("recover", "-o", "json"))
    assert (run["recovered"], run["dry_run"]) == (0, False)


def test_the_numbers_of_the_fleet(scene: Scene):
    lines = scene.masked("stats").splitlines()
    assert lines[0] + "\n" + "\n".join(sorted(lines[1:3]) + lines[3:]) == STATS
    found = json.loads(scene.says("stats", "--queues", "idle", "-o", "json"))
    assert found["queues"]["idle"]["claimable"] == 0
    assert found["queues"]["mail"]["claimable"] == 1


def test_top_draws_one_picture_in_a_pipe(scene: Scene):
    text = scene.masked("top")
    assert "1 claimable, 1 running, 1 failed" in text
    for part in ("queues", "workers", "leases", "recoveries", "HELD", "web:1", "gone:2"):
        assert part in text
    found = json.loads(scene.says("top", "-o", "json"))
    assert [one["task_id"] for one in found["recoveries"]] == [scene["lost"]]


def test_top_lives_on_a_terminal_until_q(scene: Scene):
    code, seen = on_a_terminal(
        scene.shell, "top", "--every", "0.05", keys=b"q", after=scene["held"].encode()
    )
    assert code == 0, seen
    assert "web:1" in seen


def test_tables_are_drawn_on_a_terminal_and_times_are_told_as_people_do(scene: Scene):
    code, seen = on_a_terminal(scene.shell, "tasks", "ls")
    assert code == 0
    assert "\t" not in seen
    assert re.search(r"in (1h|5\dm)", seen)
    assert scene["paid"] in seen
    _, seen = on_a_terminal(scene.shell, "tasks", "ls", "--time", "iso")
    assert not re.search(r"in (1h|5\dm)", seen)


TITLES = "id type status queue tries worker created due ended"


def test_no_word_of_a_table_is_broken_on_a_narrow_terminal(scene: Scene):
    for columns in (40, 80):
        _, seen = on_a_terminal(scene.shell, "tasks", "ls", columns=columns)
        heading, first, *_ = lines_of(seen)
        assert heading.split() == [
            "id",
            "type",
            "status",
            "queue",
            "tries",
            "worker",
            "created",
            "due",
            "ended",
        ]
        assert first.split()[:4] == [scene["later"], "shop:charge", "pending", "mail"]
        _, seen = on_a_terminal(scene.shell, "doctor", columns=columns)
        assert "workers of queues" in seen


def test_top_leaves_out_what_a_narrow_terminal_has_no_room_for(scene: Scene):
    _, seen = on_a_terminal(scene.shell, "top", "--once", columns=40)
    lines = lines_of(seen)
    assert max(map(len, lines)) <= 40
    assert lines[lines.index("queues") + 1].split() == ["queue", "state", "claimable", "running"]
    assert lines[lines.index("leases") + 1].split() == ["left", "holder", "type"]
    assert "shop:charge" in seen


def test_a_table_on_a_terminal(scene: Scene):
    _, seen = on_a_terminal(scene.shell, "queues", "ls")
    lines = [line.rstrip() for line in re.sub(r"\x1b\[\d*m", "", seen).splitlines()]
    masked = [re.sub(r"  \d[\d.]*(?: ms|m \d+s|[ms]) +0$", "  SPAN  0", line) for line in lines]
    assert in_order("\n".join(masked)).splitlines() == DRAWN


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_an_output_without_such_letters_gets_them_written_out(shell: Shell, encoding: str):
    shell.says("enqueue", "any:thing", '"→ 😀"', "--key", "→ 😀")
    (task,) = shell.rows("select id from tasks")
    for form in ("table", "json", "csv"):
        args = ("tasks", "show", task["id"], "-o", form)
        done = shell.run(*args, PYTHONIOENCODING=encoding, PYTHONUTF8="0")
        assert (done.returncode, done.stderr) == (0, "")
        if form == "json":
            assert json.loads(done.stdout)["task"]["idempotency_key"] == "→ 😀"
    drawn = shell.run("top", "--once", PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    assert (drawn.returncode, drawn.stderr) == (0, "")


def test_what_a_store_says_cannot_command_a_terminal(scene: Scene):
    for form in ("table", "json", "jsonl", "csv"):
        _, seen = on_a_terminal(scene.shell, "dead-letter", "ls", "-o", form)
        assert "\x1b[31m" not in seen, form
        assert "broke" in seen


def test_leases_are_watched_on_a_terminal(scene: Scene):
    code, seen = on_a_terminal(scene.shell, "leases", "watch", "--every", "0.01", "--times", "3")
    assert code == 0
    assert scene["held"] in seen


def test_a_watch_ends_with_ctrl_c(scene: Scene):
    watching = scene.shell.start("leases", "watch", "--every", "0.05")
    watching.line(scene["held"])
    watching.send(signal.SIGINT)
    assert watching.end() == 130
