"""`holdfast dev`: a worker, and the API where it is installed, that start anew with the code."""

import asyncio
import sys
from importlib.util import find_spec
from pathlib import Path

import click

from holdfast.cli.exits import Exit, Stop
from holdfast.cli.options import LABELS, app_option, store_option
from holdfast.cli.render import say

__all__ = ["dev"]


@click.command()
@app_option
@store_option
@click.option("--queues", type=LABELS, help="Take only these queues.")
@click.option("--concurrency", type=click.IntRange(1, 1000), help="Slots.  [default: 10]")
@click.option("--host", default="127.0.0.1", show_default=True, help="Where the API listens.")
@click.option("--port", type=click.IntRange(0, 65535), default=8000, show_default=True)
@click.option("--no-api", is_flag=True, help="Only the worker.")
@click.option(
    "--watch",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    default=".",
    help="Start anew when a .py file below this folder changes.  [default: here]",
)
def dev(
    app_name: str | None,
    store: str | None,
    queues: tuple[str, ...] | None,
    concurrency: int | None,
    host: str,
    port: int,
    no_api: bool,
    watch: Path,
) -> None:
    """A worker, and the API where it is installed, that start anew when the code changes.

    For the time of development, not for production. Ctrl-C ends both.
    """
    from holdfast.cli.loading import apply
    from holdfast.cli.reloading import Reloading

    place = app_name or apply(store=store).app
    if place is None:
        raise Stop(Exit.USAGE, "which functions? Give --app pkg.module:app, or set HOLDFAST_APP")
    worker = ["worker", "--app", place, "--drain-timeout", "3s"]
    if concurrency:
        worker += ["--concurrency", str(concurrency)]
    if queues:
        worker += ["--queues", ",".join(queues)]
    leashed = [sys.executable, "-m", "holdfast.cli.leash"]
    commands = {"worker": [*leashed, *worker]}
    if not no_api and _has_api():
        commands["api"] = [*leashed, "api", "--app", place, "--host", host, "--port", str(port)]
    elif not no_api:
        say("no API: it comes with pip install 'holdfast[server]'")
    say(f"serving {place} with {' and '.join(commands)}; changes below {watch} start it anew")
    sys.exit(asyncio.run(Reloading(commands, watch).run()))


def _has_api() -> bool:
    return all(find_spec(name) for name in ("holdfast.cli.api", "uvicorn"))
