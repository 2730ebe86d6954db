"""`holdfast sql`: a question to the store in its own language."""

import asyncio
from pathlib import Path
from typing import Any

import click

from holdfast.cli.exits import Exit, Stop
from holdfast.cli.options import output_option, store_option

__all__ = ["sql"]


@click.command()
@click.argument("query")
@store_option
@output_option
def sql(query: str, store: str | None, output: str) -> None:
    """Run a QUERY that only reads, such as "select * from tasks where status = 'failed'".

    The views are described in docs/reference/sql.md. now() works on every store; what would write
    is refused (exit code 6).
    """
    from holdfast.cli.loading import apply
    from holdfast.cli.render import as_json, table

    apply(store=store)
    columns, rows = asyncio.run(_ask(query))
    if output == "json":
        as_json([dict(zip(columns, row, strict=True)) for row in rows])
    else:
        table(columns, rows)


async def _ask(query: str) -> tuple[list[str], list[Any]]:
    from holdfast.app import Holdfast

    app = Holdfast()
    _look(app.home.url)
    async with app:
        return await (await app.home.client()).store.query(query)


def _look(url: str) -> None:
    """Reading must not make a store where there is none."""
    path = url.partition("?")[0].removeprefix("sqlite:///")
    if path != url and not Path(path).exists():
        raise Stop(
            Exit.UNREACHABLE,
            f"there is no store at {path}; name one with --store or HOLDFAST_STORE",
        )
