"""The `holdfast` command: parse, one call, render."""

import sys

import click

from holdfast import __version__


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="holdfast")
def main() -> None:
    """Durable tasks: nothing that was accepted is lost, nothing finishes twice."""


@main.command()
def demo() -> None:
    """Kill a worker in the middle of its work and watch nothing get lost."""
    from holdfast.cli.demo import run

    sys.exit(run())
