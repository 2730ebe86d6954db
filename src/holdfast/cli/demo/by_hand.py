"""The demo in two terminals: one works, one brings jobs; kill the first and start it again."""

import asyncio

import click

from holdfast.app import Holdfast
from holdfast.cli.loading import apply

__all__ = ["create", "work"]

_SECONDS = 6.0
_LEASE = 5.0


def work(store: str) -> int:
    from holdfast.cli.serving import serve_here
    from holdfast.cli.worker import log_to_stderr

    app = _app(store)
    log_to_stderr("info")
    click.echo(
        "In another terminal:  holdfast demo create-jobs 5\n"
        "Then kill this worker in the middle of a job (twice Ctrl-C, or kill -9) and start it "
        f"again:\nits jobs go on where they were, {_LEASE:g} s after the last sign of life. "
        "Ctrl-C once: it finishes first.",
        err=True,
    )
    return serve_here(
        app,
        queues=("demo",),
        max_concurrency=2,
        lease_duration=_LEASE,
        recovery_interval=0.5,
        poll_interval_max=1.0,
    )


def create(store: str, count: int) -> int:
    asyncio.run(_create(store, count))
    return 0


async def _create(store: str, count: int) -> None:
    from holdfast.cli.demo.functions import render

    async with _app(store) as app:
        made = await app.dispatch_many([render.call(n, _SECONDS) for n in range(1, count + 1)])
        waiting = await app.queue_depth("demo")
    for task in made:
        click.echo(str(task.id))
    click.echo(
        f"{count} jobs accepted, {waiting} wait now. Watch them:\n"  # noqa: S608 (text)
        f'  holdfast sql --store {store} "select id, status, progress, try_count, locked_by '
        'from tasks"\nNo worker yet?  holdfast demo worker',
        err=True,
    )


def _app(store: str) -> Holdfast:
    apply(store=store)
    from holdfast.cli.demo.functions import app

    app.move(store=store)
    return app
