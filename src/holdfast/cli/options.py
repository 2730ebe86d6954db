"""Options that several commands share, and how their values are read."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, TypeVar

import click

from holdfast.clock import here
from holdfast.errors import InvalidInput
from holdfast.tasks.durations import duration
from holdfast.tasks.names import check_labels

__all__ = [
    "INSTANT",
    "LABELS",
    "RATE",
    "SPAN",
    "WHEN",
    "app_option",
    "output_option",
    "store_option",
]

F = TypeVar("F", bound=Callable[..., Any])


class _Span(click.ParamType[timedelta]):
    """`30s`, `5m`, `1h 30m`, or a number of seconds."""

    name = "duration"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> timedelta:
        if isinstance(value, timedelta):
            return value
        try:
            return duration(_called(param), float(value) if _is_number(value) else value)
        except InvalidInput as error:
            self.fail(str(error), param, ctx)


class _Labels(click.ParamType[tuple[str, ...]]):
    """Names with commas between them."""

    name = "a,b,…"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, ...]:
        if isinstance(value, tuple):
            return value
        try:
            parts = [part.strip() for part in value.split(",")]
            return check_labels(_called(param), (part for part in parts if part))
        except InvalidInput as error:
            self.fail(str(error), param, ctx)


class _Instant(click.ParamType[datetime]):
    """A date and time as ISO 8601 has it; without a zone it is local time."""

    name = "time"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> datetime:
        if isinstance(value, datetime):
            return value
        try:
            found = datetime.fromisoformat(value)
        except ValueError:
            self.fail(f"{value!r:.80} is not a time; write 2030-12-31T08:00", param, ctx)
        return found if found.tzinfo else found.astimezone()


class _When(click.ParamType[datetime]):
    """So long ago (`2h`), or a date and time."""

    name = "time"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> datetime:
        if isinstance(value, datetime):
            return value
        try:
            return here() - duration(_called(param), float(value) if _is_number(value) else value)
        except InvalidInput:
            return INSTANT.convert(value, param, ctx)


class _Rate(click.ParamType[float]):
    """`20/s`, `100/m`, or a number for each second."""

    name = "n/s"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        if isinstance(value, float):
            return value
        number, _, unit = str(value).partition("/")
        seconds = {"": 1, "s": 1, "m": 60, "h": 3600}.get(unit.strip())
        try:
            rate = float(number) / (seconds or 0)
        except (ValueError, ZeroDivisionError):
            rate = 0.0
        if not 0 < rate < float("inf"):
            self.fail(f"{value!r:.80} is no rate; write 20/s or 100/m", param, ctx)
        return rate


SPAN, LABELS, INSTANT, WHEN, RATE = _Span(), _Labels(), _Instant(), _When(), _Rate()


def _called(param: click.Parameter | None) -> str:
    return param.opts[0] if param and param.opts else "value"


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def store_option(function: F) -> F:
    return click.option(
        "--store",
        metavar="URL",
        help="sqlite:///file.db or postgresql://user@host/db.  [HOLDFAST_STORE]",
    )(function)


def app_option(function: F) -> F:
    return click.option(
        "--app",
        "app_name",
        metavar="MODULE[:NAME]",
        help="Where the Holdfast app and its functions are: pkg.module:app.  [HOLDFAST_APP]",
    )(function)


def output_option(function: F) -> F:
    return click.option(
        "-o",
        "--output",
        type=click.Choice(["table", "json", "jsonl", "csv"]),
        default="table",
        show_default=True,
        help="For people, or for programs.",
    )(function)
