"""Data on stdout, for people or for programs."""

import json
import sys
from collections.abc import Iterable, Sequence
from typing import Any

import click

__all__ = ["as_json", "table"]


def as_json(value: Any) -> None:
    click.echo(json.dumps(value, default=_plain, ensure_ascii=False))


def _plain(value: Any) -> Any:
    return value.hex() if isinstance(value, bytes) else str(value)


def table(columns: Sequence[str], rows: Iterable[Sequence[Any]], title: str | None = None) -> None:
    """Lines of a table on a terminal; text with tabs, which other programs can cut, in a pipe."""
    if not sys.stdout.isatty():
        click.echo("\t".join(columns))
        for row in rows:
            click.echo("\t".join(map(_cell, row)))
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    drawn = Table(*columns, title=title)
    for row in rows:
        drawn.add_row(*(Text(_cell(value)) for value in row))
    Console().print(drawn)


def _cell(value: Any) -> str:
    match value:
        case None:
            return ""
        case bytes():
            return value.hex()
        case list() | tuple() | dict():
            return json.dumps(value, default=_plain, ensure_ascii=False)
    return " ".join(str(value).split())
