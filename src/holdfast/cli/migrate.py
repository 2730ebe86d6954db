"""`holdfast migrate`: the schema of a store."""

import asyncio
from typing import Any

import click

from holdfast.cli.exits import Exit, Stop
from holdfast.cli.groups import Near
from holdfast.cli.options import output_option, store_option
from holdfast.cli.render import Column, Printer, say

__all__ = ["migrate"]

_COLUMNS = (
    Column("version", lambda m: m.version),
    Column("name", lambda m: m.name),
    Column("state", lambda m: m.state),
    Column("applied", lambda m: m.applied_at),
)


@click.group(cls=Near)
def migrate() -> None:
    """The schema of a store: where it stands, bring it up to date, or print the SQL for it."""


def _url(store: str | None) -> str:
    from holdfast.app import Holdfast
    from holdfast.cli.loading import apply

    apply(store=store)
    return Holdfast().home.url


@migrate.command()
@click.option("--check", is_flag=True, help="End with 9 where it does not fit this release.")
@store_option
@output_option
def status(check: bool, store: str | None, output: str) -> None:
    """Which migrations were made, and which are to come."""
    from holdfast.cli.asking import look
    from holdfast.cli.schema import fits, standing

    url = _url(store)
    look(url)
    found = asyncio.run(standing(url))
    Printer(output).many(found, _COLUMNS)
    if not fits(found):
        message = "the schema does not fit this release: run `holdfast migrate up`"
        if any(one.state == "newer" for one in found):
            message = "the schema is newer than this release: upgrade holdfast here"
        if check:
            raise Stop(Exit.UNHEALTHY, message)
        say(message)


@migrate.command()
@store_option
def up(store: str | None) -> None:
    """Bring the schema up to this release; it is made where there is none.

    Safe at any time, also while workers run, and also from several machines at once.
    """
    url = _url(store)
    version = asyncio.run(_up(url))
    click.echo(f"schema version {version}")


async def _up(url: str) -> int:
    from holdfast.stores.opening import open_store

    store: Any = await open_store(url, migrate=True)
    try:
        return await store.migrate()  # type: ignore[no-any-return]
    finally:
        await store.close()


@migrate.command()
@click.option(
    "--all", "everything", is_flag=True, help="From the first on, without asking a store."
)
@store_option
def sql(everything: bool, store: str | None) -> None:
    """Print the SQL that `up` would run, for those who run it themselves.

    In one transaction; nothing is changed. Views for people in `public` are made by `up` only.
    """
    from holdfast.cli.asking import file_of
    from holdfast.cli.schema import standing, written

    url = _url(store)
    path = file_of(url)
    is_there = path is None or path.exists()
    found = asyncio.run(standing(url)) if is_there and not everything else []
    made = max((one.version for one in found if one.state != "pending"), default=0)
    text = written(url, after=made)
    if text:
        click.echo(text)
    else:
        say("nothing is to be done")
