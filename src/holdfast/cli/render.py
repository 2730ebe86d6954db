"""Data on stdout, for people or for programs; messages on stderr."""

import csv
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import click
import msgspec

from holdfast.cli.cells import Cells, csv_cell, plain_json, safe

if TYPE_CHECKING:
    from holdfast.cli.drawing import Drawing

__all__ = ["Column", "Printer", "as_json", "csv_rows", "drawn", "say", "table"]


class Column(NamedTuple):
    """A heading, and what stands under it for one thing."""

    title: str
    value: Callable[[Any], Any]


def say(message: str) -> None:
    """To people, beside the data."""
    click.echo(safe(message, keep="\n"), err=True)


def as_json(value: Any) -> None:
    click.echo(plain_json(value))


class Printer:
    """`form`: table json jsonl csv. `time`: relative or iso; None: relative on a terminal."""

    def __init__(self, form: str = "table", time: str | None = None) -> None:
        self.form = form
        self.is_terminal = sys.stdout.isatty()
        relative = time == "relative" or (time is None and self.is_terminal)
        self.cells = Cells(relative=relative)

    @property
    def for_people(self) -> bool:
        return self.form == "table"

    def many(self, found: Sequence[Any], columns: Sequence[Column], whole: Any = None) -> None:
        """A list. `whole`: what JSON shows in place of the bare list."""
        match self.form:
            case "json":
                as_json(found if whole is None else whole)
            case "jsonl":
                for each in found:
                    as_json(each)
            case "csv":
                csv_rows(found)
            case _:
                rows = [[column.value(each) for column in columns] for each in found]
                table([column.title for column in columns], rows, cells=self.cells)

    def one(self, found: Any, facts: Callable[[Any], Iterable[tuple[str, Any]]]) -> None:
        """A thing by itself: for people as lines of name and value."""
        match self.form:
            case "json" | "jsonl":
                as_json(found)
            case "csv":
                csv_rows([found])
            case _:
                self.facts(facts(found))

    def facts(self, pairs: Iterable[tuple[str, Any]]) -> None:
        known = [(name, self.cells.text(value)) for name, value in pairs if value is not None]
        width = max((len(name) for name, _ in known), default=0) if self.is_terminal else 0
        gap = "  " if self.is_terminal else "\t"
        for name, text in known:
            click.echo(f"{name:<{width}}{gap}{text}")

    def line(self, text: str) -> None:
        click.echo(safe(text))


def table(
    columns: Sequence[str],
    rows: Iterable[Sequence[Any]],
    title: str | None = None,
    cells: Cells | None = None,
) -> None:
    """Lines of a table on a terminal; text with tabs, which other programs can cut, in a pipe."""
    cells = cells or Cells(relative=False)
    if not sys.stdout.isatty():
        click.echo("\t".join(columns))
        for row in rows:
            click.echo("\t".join(map(cells.text, row)))
        return
    from rich.console import Console

    console, found = Console(), drawn(columns, rows, title, cells)
    if found.width > console.width:  # then lines run on, and nothing is broken or left out
        console = Console(width=max(console.width, found.without_empty().width))
    console.print(found)


def drawn(
    columns: Sequence[str], rows: Iterable[Sequence[Any]], title: str | None, cells: Cells
) -> "Drawing":
    """The table as rich draws it, on screens of any width."""
    from holdfast.cli.drawing import Cell, Drawing

    return Drawing(
        columns,
        [
            [
                Cell(cells.text(value), isinstance(value, int | float) and value is not True)
                for value in row
            ]
            for row in rows
        ],
        title,
    )


def csv_rows(found: Sequence[Any], *, heading: bool = True) -> None:
    """The fields of the shapes by their names."""
    writer = csv.writer(sys.stdout, lineterminator="\n")
    if found and heading:
        writer.writerow(_record(found[0]))
    for each in found:
        writer.writerow([csv_cell(value) for value in _record(each).values()])
    sys.stdout.flush()  # here, where a reader that has gone away is understood


def _record(found: Any) -> dict[str, Any]:
    return found if isinstance(found, dict) else msgspec.structs.asdict(found)
