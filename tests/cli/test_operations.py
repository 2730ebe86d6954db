"""`holdfast operations` and `holdfast audit`: the same done to many, and who did it."""

import json
import signal
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast import Holdfast
from holdfast.cli import bulk
from holdfast.cli.exits import Stop
from holdfast.desk import bulk as counting
from holdfast.desk.papers import OperationView, OperationWish, TaskSelection
from holdfast.desk.shapes import NewTask
from holdfast.ids import new_id
from tests.cli.scene import Scene
from tests.cli.shell import until
from tests.cli.test_dead_letter import failed, statuses

CANCEL = ("operations", "start", "cancel", "--status", "pending", "--queue", "mail")
LISTED = "id|action|state|matched|done|failed|by|created|ended"


def one(scene: Scene, *args: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(scene.says(*args, "-o", "json"))
    return found


def test_an_operation_is_shown_first_done_and_told(scene: Scene):
    said = scene.shell.fails(6, *CANCEL)
    assert "2 match (shop:charge 2)." in said
    assert "--yes" in said
    assert one(scene, *CANCEL, "--dry-run", "--user-id", "ann")["matched"] == 0
    plan = one(scene, *CANCEL, "--dry-run")
    assert (plan["state"], plan["matched"], plan["id"]) == ("planned", 2, None)
    assert statuses(scene)["pending"] == 2
    done = one(scene, *CANCEL, "--yes", "--reason", "a mistake")
    assert (done["state"], done["done"], done["reason"]) == ("done", 2, "a mistake")
    assert statuses(scene)["cancelled"] == 2
    heading, row = scene.masked("operations", "ls").splitlines()
    assert heading == LISTED
    assert row.split("|")[1:6] == ["cancel", "done", "2", "2", "0"]
    assert one(scene, "operations", "show", done["id"]) == done
    assert f"operation\t{done['id']}" in scene.says("operations", "wait", done["id"])
    assert "has ended: it is done" in scene.shell.fails(5, "operations", "cancel", done["id"])
    for verb in ("show", "wait", "cancel"):
        assert "no operation" in scene.shell.fails(3, "operations", verb, str(new_id()))


def test_a_detached_one_goes_on_waits_to_be_waited_for_and_is_stopped(scene: Scene):
    failed(scene, 30)
    slow = ("dlq", "replay", "--type", "shop:mail", "--rate", "4/s", "--yes", "--detach")
    begun = one(scene, *slow)
    id = begun["id"]
    assert begun["state"] in ("pending", "running")
    waiting = scene.shell.start("operations", "wait", id)
    until(lambda: one(scene, "operations", "show", id)["done"] > 0, "somebody does it")
    assert "goes on; wait longer" in scene.shell.fails(
        7, "operations", "wait", id, "--timeout", "0.1s"
    )
    assert one(scene, "operations", "cancel", id)["state"] == "cancelled"
    assert waiting.end() == 5
    assert "was cancelled after" in waiting.said
    assert 0 < statuses(scene)["failed"] <= 30


def test_whoever_is_interrupted_hears_how_to_go_on(scene: Scene):
    failed(scene, 30)
    running = scene.shell.start("dlq", "discard", "--all", "--rate", "4/s", "--yes")
    found: list[dict[str, Any]] = []

    def begun() -> bool:
        found[:] = json.loads(scene.says("operations", "ls", "-o", "json"))
        return bool(found and found[0]["done"])

    until(begun, "it has begun")
    running.send(signal.SIGINT)
    assert running.end() == 130
    assert f"holdfast operations wait {found[0]['id']}" in running.said
    assert "Traceback" not in running.said


def test_by_ids_nothing_is_paced(scene: Scene):
    assert "for filters" in scene.shell.fails(2, "dlq", "replay", scene["broken"], "--rate", "5/s")
    assert "would be done" in scene.shell.run("dlq", "discard", scene["broken"], "--dry-run").stderr
    assert statuses(scene)["failed"] == 1


def test_tasks_are_chosen_by_error_and_time(scene: Scene):
    def matched(*args: str) -> int:
        chosen = ("operations", "start", "retry", "--status", "failed", "--dry-run")
        found: int = one(scene, *chosen, *args)["matched"]
        return found

    assert matched("--error-type", "Boom", "--ended-after", "1h") == 1
    assert matched("--error", "BROKE", "--created-after", "1h") == 1
    assert matched("--ended-before", "1h") == matched("--created-before", "1h") == 0
    assert matched("--ended-after", "2020-01-01T00:00") == 1
    listed = scene.says("tasks", "ls", "--error", "broke", "--created-after", "1h", "-o", "jsonl")
    assert [json.loads(line)["id"] for line in listed.splitlines()] == [scene["broken"]]
    assert "is not a time" in scene.shell.fails(2, "dlq", "ls", "--since", "yesterday")


async def test_what_could_not_be_counted_is_said_to_be_or_more_and_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    for name, value in {"_CAP": 1, "_PAGE": 1, "_PAGES": 1}.items():
        monkeypatch.setattr(counting, name, value)
    async with Holdfast(f"sqlite:///{tmp_path}/many.db") as app:
        desk = await app.desk()
        wishes = [NewTask(type="any", allow_unknown=True) for _ in range(3)]
        ids = [(await desk.submit([wish]))[0].task.id for wish in wishes]
        last = TaskSelection(status="pending", created_after=(await desk.task(ids[2])).created_at)
        found: OperationView | None = None
        for filter, shown, done in ((last, "0", 1), (TaskSelection(status="pending"), "1", 2)):
            wish = OperationWish(action="cancel", filter=filter, dry_run=True, rate=500)
            how = bulk.How(rate=None, reason=None, dry_run=False, yes=True, detach=False)
            plan = await bulk._planned(desk, wish)
            found = await bulk._begun(desk, wish, plan, how)
            assert capsys.readouterr().err.startswith(f"{shown} or more match")
            assert (found.state, found.done) == ("done", done)
            assert bulk.matched(found) == dict(bulk.facts(found))["matched"] == f"{shown}+"
        assert found is not None
        with pytest.raises(Stop, match="these 1 or more, say so with --yes"):
            bulk._agreed(msgspec.structs.replace(found, state="planned"), yes=False)


def test_the_audit_tells_who_did_what(scene: Scene):
    scene.says("queues", "pause", "mail")
    scene.says("tasks", "edit", scene["next"], "--priority", "3")
    scene.says("tasks", "cancel", scene["next"])
    heading, *rows = scene.masked("audit", "ls").splitlines()
    assert heading == "seq|at|actor|tenant|verb|subject|detail"
    assert ["|".join(row.split("|")[4:]).rstrip("|") for row in rows] == [
        "task.cancel|NEXT",
        'task.edit|NEXT|{"priority": 3}',
        "queue.pause|mail",
    ]

    def verbs(*args: str) -> list[str]:
        return [record["verb"] for record in one(scene, "audit", "ls", *args)["data"]]

    actor = rows[0].split("|")[2]
    assert verbs("--verb", "task.*", "--actor", actor) == ["task.cancel", "task.edit"]
    assert verbs("--subject", "mail", "--since", "1h") == ["queue.pause"]
    assert verbs("--actor", "nobody") == verbs("--until", "1h") == verbs("--tenant", "x") == []
    page = one(scene, "audit", "ls", "--limit", "1")
    assert verbs("--before", str(page["next_before"]))[:1] == ["task.edit"]
    assert "--before" in scene.shell.run("audit", "ls", "--limit", "1").stderr
