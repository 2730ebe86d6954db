"""`holdfast limits`: over a store and over an API alike."""

import json

from tests.cli.scene import Scene

SET = """\
kind|queue
name|mail
at once|5
rate|100/m
running|0
set by|operator"""

LS = """\
kind|name|at once|per key|rate|running|set by
queue|mail|5||100/m|0|operator
type|shop:charge|2|1||1|operator"""


def test_limits_are_set_seen_and_lifted(scene: Scene):
    terms = ("--max-concurrent", "5", "--rate-limit", "100/m")
    assert scene.masked("limits", "set", "queue", "mail", *terms) == SET
    terms = ("--max-concurrent", "2", "--max-concurrent-per-key", "1")
    scene.says("limits", "set", "type", "shop:charge", *terms)
    assert scene.masked("limits", "ls") == LS
    (first, _) = json.loads(scene.says("limits", "ls", "-o", "json"))
    assert (first["kind"], first["max_concurrent"], first["declared"]) == ("queue", 5, None)
    done = scene.shell.run("limits", "lift", "queue", "mail")
    assert "queue mail is not limited" in done.stderr
    assert "mail" not in scene.says("limits", "ls")


def test_what_is_no_limit_says_why(scene: Scene):
    assert "or lift the limit" in scene.shell.fails(2, "limits", "set", "queue", "mail")
    wrong = ("limits", "set", "queue", "mail", "--rate-limit", "fast")
    assert "write it as '100/m'" in scene.shell.fails(2, *wrong)
    assert "is not one of" in scene.shell.fails(2, "limits", "lift", "worker", "w")
