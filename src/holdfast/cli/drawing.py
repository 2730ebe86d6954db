"""Tables on screens of any width. Names and numbers are never broken into pieces."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

__all__ = ["Cell", "Drawing"]

_GAP = 2
_LONG = 20  # what has more letters than these, and spaces, is prose


class Cell(NamedTuple):
    text: str
    is_number: bool


class _Column(NamedTuple):
    name: str
    cells: tuple[Cell, ...]

    @property
    def is_empty(self) -> bool:
        return not any(cell.text for cell in self.cells)

    @property
    def is_prose(self) -> bool:
        """Such may go on in the next line."""
        return any(" " in cell.text and cell_len(cell.text) > _LONG for cell in self.cells)

    @property
    def width(self) -> int:
        """The least that it needs."""
        if self.is_prose:
            return max(_LONG, cell_len(self.name))
        return max(cell_len(text) for text in (self.name, *(cell.text for cell in self.cells)))


class Drawing:
    """Without room for all columns, empty ones are left out first, then those at the end."""

    def __init__(
        self, titles: Sequence[str], rows: Sequence[Sequence[Cell]], title: str | None
    ) -> None:
        by_column = zip(*rows, strict=True) if rows else ((),) * len(titles)
        self._title, self._rows = title, len(rows)
        self._columns = [_Column(*each) for each in zip(titles, map(tuple, by_column), strict=True)]

    @property
    def width(self) -> int:
        """The least that all of them need."""
        return _width(self._columns)

    def without_empty(self) -> "Drawing":
        """Only what says something."""
        found = Drawing((), (), self._title)
        found._columns = [c for c in self._columns if not c.is_empty] or self._columns[:1]
        found._rows = self._rows
        return found

    def __rich_console__(self, console: Any, options: Any) -> Iterator[Table]:
        columns = self._columns
        if _width(columns) > options.max_width:
            columns = self.without_empty()._columns
        while len(columns) > 1 and _width(columns) > options.max_width:
            columns = columns[:-1]
        yield self._table(columns)

    def _table(self, columns: Sequence[_Column]) -> Table:
        table = Table(
            title=self._title,
            title_justify="left",
            box=None,
            pad_edge=False,
            padding=(0, _GAP, 0, 0),
        )
        for column in columns:
            table.add_column(column.name, no_wrap=not column.is_prose, overflow="fold")
        for row in range(self._rows):
            table.add_row(*(_drawn(column.cells[row]) for column in columns))
        return table


def _width(columns: Sequence[_Column]) -> int:
    return sum(column.width + _GAP for column in columns) - _GAP


def _drawn(cell: Cell) -> Text:
    return Text(cell.text, justify="right" if cell.is_number else "left")
