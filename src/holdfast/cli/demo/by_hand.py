"""The demo in two terminals: one works, one brings jobs; kill the first and start it again."""

import asyncio
from datetime import timedelta

import click

from holdfast.app import Holdfast
from holdfast.cli.loading import apply

__all__ = ["create", "work"]


def work(store: str, lease: timedelta) -> int:
    from holdfast.cli.serving import serve_here
    from holdfast.cli.worker import log_to_stderr

    app = _app(store)
    log_to_stderr("info")
    click.echo(
        "In another terminal:  holdfast demo create-jobs 5\n"
        "Then kill this worker in the middle of a job (twice Ctrl-C, or kill -9) and start it "
        f"again:\nits jobs go on where they were, {lease.total_seconds():g} s after its last sign "
        "of life. Ctrl-C once: it finishes first.",
        err=True,
    )
    return serve_here(
        app,
        queues=("demo",),
        max_concurrency=2,
        lease_duration=lease,
        recovery_interval=0.5,
        poll_interval_max=1.0,
    )


def create(store: str, count: int, seconds: float) -> None:
    asyncio.run(_create(store, count, seconds))


async def _create(store: str, count: int, seconds: float) -> None:
    from holdfast.cli.demo.functions import render

    async with _app(store) as app:
        made = await app.dispatch_many([render.call(n, seconds) for n in range(1, count + 1)])
        waiting = await app.queue_depth("demo")
    place = store if app.home.is_sqlite else "URL"  # which may hold a password
    for task in made:
        click.echo(str(task.id))
    click.echo(
        f"{count} jobs accepted, {waiting} wait now. Watch them:\n"  # noqa: S608 (text)
        f'  holdfast sql --store {place} "select id, status, progress, try_count, locked_by '
        'from tasks"\nNo worker yet?  holdfast demo worker',
        err=True,
    )


def _app(store: str) -> Holdfast:
    apply(store=store)
    from holdfast.cli.demo.functions import app

    app.move(store=store)
    return app
