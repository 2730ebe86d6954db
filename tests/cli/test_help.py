"""What the command line says of itself is what it does."""

import re
from pathlib import Path

import click
import pytest

from holdfast import __version__
from holdfast.cli.exits import Exit
from holdfast.cli.main import main
from tests.cli.shell import Shell

PAGE = (Path(__file__).parents[2] / "docs/reference/cli.md").read_text()
COMMANDS = [
    "api", "audit", "bench", "completion", "config", "dead-letter", "demo", "dev", "doctor",
    "enqueue", "flows", "init", "leases", "limits", "migrate", "operations", "queues", "recover",
    "sql", "stats", "tasks", "token", "top", "worker", "workers",
]  # fmt: skip
SHARED = {"--store", "--api", "--token-file", "--output", "--time"}


def commands() -> list[tuple[str, click.Command]]:
    context = click.Context(main)
    found = []
    for name in main.list_commands(context):
        command = main.get_command(context, name)
        assert command
        found.append((name, command))
        if isinstance(command, click.Group):
            found += [(f"{name} {sub}", one) for sub, one in command.commands.items()]
    return found


def part(heading: str) -> str:
    return PAGE.partition(f"## {heading}\n")[2].partition("\n## ")[0]


def test_the_help_names_every_command(shell: Shell):
    text = shell.says("--help")
    assert re.findall(r"^  ([a-z][a-z-]*)  +[A-Z]", text, re.MULTILINE) == COMMANDS
    assert __version__ in shell.says("--version")


def test_every_command_says_what_it_does():
    silent = [name for name, command in commands() if not command.help]
    assert silent == []


@pytest.mark.parametrize(("name", "command"), commands(), ids=lambda given: str(given)[:30])
def test_the_page_of_the_command_line_names_every_flag(name: str, command: click.Command):
    flags = {
        param.opts[-1]
        for param in command.params
        if isinstance(param, click.Option) and not param.hidden
    }
    if flags >= SHARED:  # told once for all of them
        flags -= SHARED
    assert part(f"holdfast {name}")
    assert [flag for flag in flags if f"`{flag}" not in part(f"holdfast {name}")] == []


def test_the_page_names_the_flags_that_are_shared():
    assert [flag for flag in SHARED if f"| `{flag}`" not in part("A store or an API")] == []


def test_the_page_names_no_command_that_is_not_there():
    named = re.findall(r"^## holdfast (.+)$", PAGE, re.MULTILINE)
    assert sorted(named) == sorted(name for name, _ in commands())


def test_the_page_names_every_exit_code():
    assert [code for code in Exit if f"\n| {code.value} | " not in PAGE] == []


def test_the_page_names_every_check_of_the_doctor():
    from holdfast.cli.doctor.finding import CHECKS

    table = part("holdfast doctor")
    assert re.findall(r"^\| (HF\d+) \| ([^|]+) \|", table, re.MULTILINE) == list(CHECKS.items())


def test_a_command_that_is_not_there_is_answered_with_the_nearest(shell: Shell):
    said = shell.fails(2, "wroker")
    assert "No such command" in said
    assert "Did you mean worker" in said
    assert "Did you mean ls" in shell.fails(2, "tasks", "lss")
