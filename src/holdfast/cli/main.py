"""All commands by name. A command's module is imported when it is called."""

import sys
from importlib import import_module
from typing import Any

import click

from holdfast import __version__
from holdfast.cli import output
from holdfast.cli.exits import Exit, Stop, explained
from holdfast.cli.groups import Near
from holdfast.errors import HoldfastError

__all__ = ["Group", "main"]

_COMMANDS = {
    "api": "The HTTP API.",
    "audit": "Who changed what, and when.",
    "bench": "How fast this store is on this machine.",
    "completion": "Completion for a shell: bash, zsh or fish.",
    "config": "Settings, and where each comes from.",
    "dead-letter": "Tasks that failed for good: see, replay, discard.",
    "demo": "Kill a worker in the middle of its work and watch.",
    "dev": "Worker (and API) that start anew when the code changes.",
    "doctor": "Look for what is wrong, and say the fix.",
    "enqueue": "Put a task into its queue.",
    "flows": "Durable functions: journals, children, signals.",
    "init": "Begin a project: an app, a test, a page.",
    "leases": "Who holds what until when.",
    "limits": "How much runs at once: see, set, lift.",
    "migrate": "The schema of a store.",
    "operations": "The same done to many tasks: start, see, stop.",
    "queues": "See, pause and resume queues; why nothing runs.",
    "recover": "Take back what dead workers held, now.",
    "sql": "Ask a store in its own language.",
    "stats": "The numbers of the whole fleet.",
    "tasks": "See, wait for, change, cancel and retry tasks.",
    "token": "Keys of the API.",
    "top": "Workers, leases and queues, live.",
    "worker": "Run a worker.",
    "workers": "Who works, and how busy they are.",
}
_ALIASES = {"dlq": "dead-letter"}


class Group(Near):
    """Knows its commands by name, and ends every foreseen error in words and a code."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        name = _ALIASES.get(cmd_name, cmd_name)
        if name not in _COMMANDS:
            return None
        attribute = name.replace("-", "_")
        module = import_module(f"holdfast.cli.{attribute}")
        found: click.Command = getattr(module, attribute)
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Without importing them all."""
        with formatter.section("Commands"):
            formatter.write_dl(sorted(_COMMANDS.items()))

    def invoke(self, ctx: click.Context) -> Any:
        output.prepare()
        try:
            found = super().invoke(ctx)
            sys.stdout.flush()  # here, where a disk that is full can be told
            return found
        except HoldfastError as error:
            raise explained(error) from error
        except KeyboardInterrupt:
            click.echo("interrupted", err=True)
            sys.exit(Exit.INTERRUPTED)
        except OSError as error:
            if not output.is_full(error):
                raise
            output.forget()
            raise Stop(Exit.FAILED, f"the output cannot be written: {error.strerror}") from error


@click.group(cls=Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="holdfast")
def main() -> None:
    """Durable tasks: nothing that was accepted is lost, nothing finishes twice.

    Most commands ask a store (--store, or HOLDFAST_STORE) or an API (--api, or HOLDFAST_API), with
    the same answers.
    """
