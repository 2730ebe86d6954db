"""All commands by name. A command's module is imported when it is called."""

import sys
from importlib import import_module
from typing import Any

import click

from holdfast import __version__
from holdfast.cli.exits import Exit, explained
from holdfast.errors import HoldfastError

__all__ = ["Group", "main"]

_COMMANDS = {
    "api": "holdfast.cli.api",
    "bench": "holdfast.cli.bench",
    "demo": "holdfast.cli.demo",
    "enqueue": "holdfast.cli.enqueue",
    "flows": "holdfast.cli.flows",
    "sql": "holdfast.cli.sql",
    "worker": "holdfast.cli.worker",
}


class Group(click.Group):
    """Knows its commands by name, and ends every foreseen error in words and a code."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        module = _COMMANDS.get(cmd_name)
        found: click.Command | None = getattr(import_module(module), cmd_name) if module else None
        return found

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except HoldfastError as error:
            raise explained(error) from error
        except KeyboardInterrupt:
            click.echo("interrupted", err=True)
            sys.exit(Exit.INTERRUPTED)


@click.group(cls=Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="holdfast")
def main() -> None:
    """Durable tasks: nothing that was accepted is lost, nothing finishes twice."""
