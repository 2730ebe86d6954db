"""`holdfast bench`: how fast this store is, with real worker processes."""

import asyncio

import click

from holdfast.cli.options import output_option, store_option

__all__ = ["bench"]


@click.command()
@store_option
@click.option("--tasks", type=click.IntRange(100, 10_000_000), default=20_000, show_default=True)
@click.option("--processes", type=click.IntRange(1, 64), default=1, show_default=True)
@output_option
def bench(store: str | None, tasks: int, processes: int, output: str) -> None:
    """Enqueue and drain tasks that do nothing, and measure how soon a lone one starts.

    It works in a schema or file of its own, beside the given store, and removes it. Without a store
    it is an SQLite file in a temporary folder.
    """
    from holdfast.cli.bench.measuring import measure
    from holdfast.cli.render import Printer, table

    figures = asyncio.run(measure(store, tasks, processes))
    if output != "table":
        Printer(output).many([figures], (), whole=figures)
    else:
        table(("what", "figure"), [(name.replace("_", " "), v) for name, v in figures.items()])
