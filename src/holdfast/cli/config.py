"""`holdfast config`: settings, and where each comes from."""

import os
from datetime import timedelta
from typing import Any

import click
import msgspec

from holdfast.cli.cells import span
from holdfast.cli.groups import Near
from holdfast.cli.options import output_option
from holdfast.cli.render import Column, Printer

__all__ = ["config"]

_SECRET = ("key", "password", "secret", "token")


@click.group(cls=Near)
def config() -> None:
    """Settings: what the environment says."""


@config.command()
@click.option("--origin", is_flag=True, help="Also which variable each comes from.")
@click.option("--set", "only_set", is_flag=True, help="Only those that the environment sets.")
@output_option
def show(origin: bool, only_set: bool, output: str) -> None:
    """All settings as they are read here, without their secrets.

    A flag of a command goes before them; what neither says is the default.
    """
    from holdfast import config as settings

    found = settings.read(os.environ)
    rows = []
    for field in msgspec.structs.fields(settings.Config):
        if field.name == "origin" or (only_set and field.name not in found.origin):
            continue
        row = {"setting": field.name, "value": _shown(field.name, getattr(found, field.name))}
        if origin:
            row["origin"] = _origin(found.origin.get(field.name))
        rows.append(row)
    columns = [Column(name, _named(name)) for name in ("setting", "value", "origin")]
    Printer(output).many(rows, columns if origin else columns[:2])


def _named(name: str) -> Any:
    return lambda row: row[name]


def _origin(name: str | None) -> str:
    """The variable, or the one that names a file."""
    if name is None:
        return "default"
    return name if (os.environ.get(name) or "").strip() else f"{name}_FILE"


def _shown(name: str, value: Any) -> Any:
    from holdfast.app.home import plain_url

    if value is not None and any(part in name for part in _SECRET):
        return "***"
    match value:
        case str() if "://" in value:
            return plain_url(value)
        case timedelta():
            return span(value.total_seconds())
        case tuple():
            return list(value)
    return value
