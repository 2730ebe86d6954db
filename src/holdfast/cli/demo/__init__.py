"""`holdfast demo`: a worker is killed in the middle of its work, and nothing is lost."""

import sys

import click

from holdfast.cli.options import store_option

__all__ = ["demo"]

STORE = "sqlite:///holdfast-demo.db"


@click.group(invoke_without_command=True)
@click.pass_context
def demo(ctx: click.Context) -> None:
    """Kill a worker in the middle of its work and watch nothing get lost.

    Without a command: the whole show by itself, in less than a minute, in a temporary folder. By
    hand, in two terminals: `holdfast demo worker` and `holdfast demo create-jobs 5`; then kill the
    first and start it again.
    """
    if ctx.invoked_subcommand is None:
        from holdfast.cli.demo.show import run

        sys.exit(run())


@demo.command()
@store_option
def worker(store: str | None) -> None:
    """Work on the jobs of `create-jobs`, with a lease of 5 seconds."""
    from holdfast.cli.demo.by_hand import work

    sys.exit(work(store or STORE))


@demo.command()
@click.argument("count", type=click.IntRange(1, 10_000), default=5)
@store_option
def create_jobs(count: int, store: str | None) -> None:
    """Put COUNT jobs, which take some seconds each, into the demo's store."""
    from holdfast.cli.demo.by_hand import create

    sys.exit(create(store or STORE, count))
