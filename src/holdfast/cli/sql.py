"""`holdfast sql`: a question to the store in its own language."""

import asyncio
from typing import Any

import click

from holdfast.cli.options import output_option, store_option

__all__ = ["sql"]


class _Asking(click.Command):
    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """A query may begin with a comment, as those people copy do; it is no option."""
        spaced = [f" {arg}" if arg[:2] == "--" and arg[2:3].isspace() else arg for arg in args]
        return super().parse_args(ctx, spaced)


@click.command(cls=_Asking)
@click.argument("query")
@store_option
@output_option
def sql(query: str, store: str | None, output: str) -> None:
    """Run a QUERY that only reads, such as "select * from tasks where status = 'failed'".

    The views are described in docs/reference/sql.md. now() works on every store; what would write
    is refused (exit code 6).
    """
    from holdfast.cli.render import Printer, table

    columns, rows = asyncio.run(_ask(store, query))
    if output == "table":
        table(columns, rows)
    else:
        Printer(output).many([_record(columns, row) for row in rows], ())


async def _ask(store: str | None, query: str) -> tuple[list[str], list[Any]]:
    from holdfast.cli.asking import local_app

    async with local_app(store) as app:
        return await (await app.home.client()).store.query(query)


def _record(columns: list[str], row: Any) -> dict[str, Any]:
    """Bytes as people write them."""
    values = (value.hex() if isinstance(value, bytes) else value for value in row)
    return dict(zip(columns, values, strict=True))
