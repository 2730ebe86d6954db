"""`holdfast demo`: a worker is killed in the middle of its work, and nothing is lost."""

import sys
from datetime import timedelta

import click

from holdfast.cli.options import SPAN

__all__ = ["demo"]

# Not the store of HOLDFAST_STORE unless told so: that one may be in earnest.
_store = click.option(
    "--store", metavar="URL", default="sqlite:///holdfast-demo.db", show_default=True
)


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
@_store
@click.option("--lease", type=SPAN, default="5s", show_default=True)
def worker(store: str, lease: timedelta) -> None:
    """Work on the jobs of `create-jobs`."""
    from holdfast.cli.demo.by_hand import work

    sys.exit(work(store, lease))


@demo.command()
@click.argument("count", type=click.IntRange(1, 10_000), default=5)
@_store
@click.option("--seconds", type=click.FloatRange(0.1, 3600), default=6, show_default=True)
def create_jobs(count: int, store: str, seconds: float) -> None:
    """Put COUNT jobs, which take some seconds each, into the demo's store."""
    from holdfast.cli.demo.by_hand import create

    create(store, count, seconds)
