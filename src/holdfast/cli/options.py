"""Options that several commands share, and how their values are read."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, TypeVar

import click

from holdfast.errors import InvalidInput
from holdfast.tasks.durations import duration
from holdfast.tasks.names import check_labels

__all__ = ["INSTANT", "LABELS", "SPAN", "app_option", "output_option", "store_option"]

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


SPAN, LABELS, INSTANT = _Span(), _Labels(), _Instant()


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
