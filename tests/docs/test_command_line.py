"""Commands on the pages: each is one that is there, and those of the outage page are run."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from holdfast.cli.main import main
from tests.cli.scene import Scene, played
from tests.cli.shell import shell_in

DOCS = Path(__file__).parents[2] / "docs"
PAGES = ["reference/cli.md", "howto/operate.md"]
A_TASK = re.compile(r"01a1df74-84de-79d8-9d84-750682bd8314|0192…")
GOES_ON = ("tail", "top")


def commands(page: str) -> list[list[str]]:
    """What stands in its blocks of code, word by word, without prompts, pipes and comments."""
    text = (DOCS / page).read_text()
    blocks = re.findall(r"^```\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    lines = [line.removeprefix("$ ") for block in blocks for line in block.splitlines()]
    told = [re.split(r" \| |  +#", line)[0] for line in lines if line.startswith("holdfast ")]
    return [shlex.split(line)[1:] for line in told]


def parsed(words: list[str]) -> None:
    """As click takes it, down to the last flag."""
    command: click.Command = main
    context = click.Context(main)
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        name, *words = words
        found = command.get_command(context, name)
        assert found, name
        context, command = click.Context(found, context, info_name=name), found
    with command.make_context("holdfast", list(words)):
        pass


@pytest.mark.parametrize("page", PAGES)
def test_every_command_on_the_page_can_be_given(page: str, tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run.json").touch()
    found = commands(page)
    assert len(found) > 10
    for words in found:
        parsed([A_TASK.sub("01a1df74-84de-79d8-9d84-750682bd8314", word) for word in words])


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    with shell_in(tmp_path) as shell:
        yield played(shell)


def test_the_commands_of_the_outage_page_are_run(scene: Scene):
    for words in commands("howto/operate.md"):
        given = [A_TASK.sub(scene["broken"], word) for word in words]
        if words[-1] not in GOES_ON and words[1:2] != ["tail"]:
            done = scene.shell.run(*given)
            assert done.returncode == 0, (given, done.stdout, done.stderr)
            assert done.stdout or done.stderr
    rows = scene.shell.rows("select status from tasks where last_error like '%broke%'")
    assert [row["status"] for row in rows] == ["pending"]
