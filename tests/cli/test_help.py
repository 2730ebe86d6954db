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


def test_the_help_names_every_command(shell: Shell):
    text = shell.says("--help")
    assert re.findall(r"^  ([a-z]+)  ", text, re.MULTILINE) == [
        "api", "bench", "demo", "enqueue", "flows", "sql", "worker",
    ]  # fmt: skip
    assert __version__ in shell.says("--version")


@pytest.mark.parametrize(("name", "command"), commands())
def test_the_page_of_the_command_line_names_every_flag(name: str, command: click.Command):
    part = PAGE.partition(f"## holdfast {name}\n")[2].partition("\n## ")[0]
    flags = [
        param.opts[-1]
        for param in command.params
        if isinstance(param, click.Option) and not param.hidden
    ]
    assert part
    assert [flag for flag in flags if f"`{flag}" not in part] == []


def test_the_page_names_every_exit_code():
    assert [code for code in Exit if f"\n| {code.value} | " not in PAGE] == []


def test_a_command_that_is_not_there_is_a_mistake_of_use(shell: Shell):
    assert "No such command" in shell.fails(2, "wroker")
