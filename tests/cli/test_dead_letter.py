"""`holdfast dead-letter`: see, replay and discard what failed for good."""

import asyncio
import csv
import io
import json
import shlex
import time

import pytest

from holdfast.stores.opening import open_store
from holdfast.tasks.lifecycle import Settlement, Verdict
from holdfast.tasks.task import Failure
from tests.cli.scene import FAILED, Scene, url_of
from tests.cli.terminal import on_a_terminal
from tests.contract.acts import claim, finish, put

LISTED = """\
id|type|queue|tries|failed|error
BROKEN|shop:refund|default|1|TIME|=it \\x1b[31mbroke"""

GROUPS = """\
count|type|error type|error|newest
1|shop:refund|Boom|=it \\x1b[31mbroke|TIME"""


def failed(
    scene: Scene, count: int, type: str = "shop:mail", settlement: Settlement = FAILED
) -> list[str]:
    """More of them."""

    async def fail() -> list[str]:
        store = await open_store(url_of(scene.shell))
        try:
            ids = await put(store, count, type, priority=5, max_tries=1)
            await finish(store, await claim(store, count, worker=1), settlement)
            return [str(id) for id in ids]
        finally:
            await store.close()

    return asyncio.run(fail())


def statuses(scene: Scene) -> dict[str, int]:
    rows = scene.shell.rows("select status, count(*) as n from tasks group by status")
    return {row["status"]: row["n"] for row in rows}


def test_dead_letters_are_listed_one_by_one_and_in_groups(scene: Scene):
    assert scene.masked("dead-letter", "ls") == LISTED
    assert scene.masked("dlq", "ls", "--groups") == GROUPS
    (row,) = csv.DictReader(io.StringIO(scene.says("dead-letter", "ls", "-o", "csv")))
    assert row["last_error"] == r"'=it \x1b[31mbroke"
    assert scene.shell.fails(2, "dead-letter", "ls", "--groups", "--queue", "x")


def test_dead_letters_are_listed_page_by_page(scene: Scene):
    failed(scene, 2)
    whole = [letter["id"] for letter in json.loads(scene.says("dead-letter", "ls", "-o", "json"))]
    first = scene.shell.run("dead-letter", "ls", "-o", "json", "--limit", "2")
    (cursor,) = shlex.split(first.stderr.partition("there are more: --cursor ")[2])
    rest = scene.shell.run("dead-letter", "ls", "-o", "json", "--cursor", cursor)
    found = [letter["id"] for said in (first, rest) for letter in json.loads(said.stdout)]
    assert (found, len(whole)) == (whole, 3)
    assert "more" not in rest.stderr
    assert "more" not in scene.shell.run("dead-letter", "ls", "--limit", "3").stderr
    assert scene.shell.fails(2, "dead-letter", "ls", "--groups", "--cursor", cursor)


def test_there_are_more_only_where_what_follows_is_what_was_asked_for(scene: Scene):
    """By their error no index knows them: `broken` comes after them, and is not meant."""
    other = Settlement(verdict=Verdict.FAILED, failure=Failure(type="Late", message="no"))
    failed(scene, 2, settlement=other)
    ls = ("dead-letter", "ls", "--error-type", "Late", "--limit")
    assert "more" not in scene.shell.run(*ls, "2").stderr
    assert "more" in scene.shell.run(*ls, "1").stderr


def test_lists_are_filtered_by_their_error_and_time(scene: Scene):
    def count(*args: str) -> int:
        return len(json.loads(scene.says("dead-letter", "ls", "-o", "json", *args)))

    failed(scene, 3)
    assert count() == 4
    assert count("--limit", "2") == 2
    assert count("--error", "BROKE") == 4
    assert count("--error", "mended") == count("--user-id", "nobody") == 0
    assert count("--user-id", "ann") == 1
    assert count("--type", "shop:mail", "--since", "1h") == 3
    assert count("--since", "0s") == 0
    assert count("--until", "0s", "--error-type", "Boom") == 4
    assert count("--until", "1h") == count("--error-type", "Bo") == 0


def test_a_dead_letter_is_shown_with_its_arguments_and_traceback(scene: Scene):
    text = scene.says("dead-letter", "show", scene["broken"])
    assert '"args":' in text.replace(" ", "")
    assert text.endswith("  File shop.py\n    boom()")


def test_dead_letters_are_replayed_by_their_ids_at_once(scene: Scene):
    assert scene.says("dead-letter", "replay", scene["broken"]) == scene["broken"]
    assert "failed" not in statuses(scene)
    assert "no dead letter" in scene.shell.fails(5, "dead-letter", "replay", scene["paid"])


@pytest.mark.parametrize("verb", ["replay", "discard"])
def test_many_are_shown_first_and_want_a_yes(scene: Scene, verb: str):
    failed(scene, 3)
    chosen = (verb, "--type", "shop:mail")
    done = scene.shell.run("dead-letter", *chosen)
    assert done.returncode == 6
    assert "3 match (shop:mail 3)." in done.stderr
    assert "--yes" in done.stderr
    assert statuses(scene)["failed"] == 4
    assert "3 match" in scene.shell.run("dead-letter", *chosen, "--dry-run").stderr
    assert statuses(scene)["failed"] == 4
    done = json.loads(scene.says("dead-letter", *chosen, "--yes", "-o", "json"))
    assert (done["state"], done["matched"], done["done"], done["failed"]) == ("done", 3, 3, 0)
    assert statuses(scene)["failed"] == 1
    (record,) = json.loads(scene.says("audit", "ls", "--verb", "operation.*", "-o", "json"))["data"]
    assert (record["subject"], record["detail"]["action"]) == (done["id"], verb)


def test_a_person_on_a_terminal_is_asked(scene: Scene):
    failed(scene, 2)
    code, seen = on_a_terminal(scene.shell, "dlq", "discard", "--all", keys=b"n\n", after=b"[y/N]")
    assert (code, statuses(scene)["failed"]) == (0, 3)
    assert "nothing was changed" in seen
    code, seen = on_a_terminal(scene.shell, "dlq", "discard", "--all", keys=b"y\n", after=b"[y/N]")
    assert (code, "failed" in statuses(scene)) == (0, False)


def test_ctrl_c_is_an_answer_too(scene: Scene):
    code, seen = on_a_terminal(scene.shell, "dlq", "discard", "--all", keys=b"\x03", after=b"[y/N]")
    assert (code, statuses(scene)["failed"]) == (130, 1)
    assert "nothing was changed" in seen


def test_replay_keeps_to_its_rate_and_draws_a_bar_on_a_terminal(scene: Scene):
    failed(scene, 15)
    began = time.monotonic()
    chosen = ("dlq", "replay", "--type", "shop:mail", "--rate", "10/s", "--yes")
    code, seen = on_a_terminal(scene.shell, *chosen)
    assert code == 0
    assert "At 10/s: about 1.5s" in seen
    assert "replay" in seen.replace("\n", "")
    assert "100%" in seen
    assert time.monotonic() - began > 1  # three slices of half a second, a pause between them
    assert statuses(scene)["failed"] == 1


def test_what_is_meant_must_be_said(scene: Scene):
    assert "give ids" in scene.shell.fails(2, "dead-letter", "discard", "--yes")
    assert "give ids" in scene.shell.fails(2, "dlq", "discard", scene["broken"], "--all")
    assert "is no rate" in scene.shell.fails(2, "dlq", "replay", "--all", "--rate", "fast")
    assert "--all" in scene.shell.says("dlq", "replay", "--help")
