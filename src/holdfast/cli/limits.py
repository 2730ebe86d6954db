"""`holdfast limits`: how much of a function, a queue or a tenant runs at once."""

from typing import Any

import click

from holdfast.cli.asking import Asking, asks
from holdfast.cli.groups import Near
from holdfast.cli.render import Column, say
from holdfast.desk.papers import LimitPlace, LimitView, LimitWish

__all__ = ["LIMITS", "limits"]

LIMITS = (
    Column("kind", lambda one: one.kind),
    Column("name", lambda one: one.name),
    Column("at once", lambda one: one.max_concurrent),
    Column("per key", lambda one: one.max_concurrent_per_key),
    Column("rate", lambda one: one.rate_limit),
    Column("running", lambda one: one.running),
    Column("set by", lambda one: one.set_by),
)
_kind = click.argument("kind", type=click.Choice(["type", "queue", "tenant"]))
_name = click.argument("name")


@click.group(cls=Near)
def limits() -> None:
    """Limits of functions (by type), queues and tenants, across all workers."""


@limits.command()
@asks
def ls(at: Asking) -> None:
    """All limits in force, and who set them: an operator, or a function's code."""
    at.out.many(at.ask(lambda desk: desk.limits()), LIMITS)


@limits.command("set")
@_kind
@_name
@click.option("--max-concurrent", type=click.IntRange(1, 1_000_000), help="So many at once.")
@click.option(
    "--max-concurrent-per-key",
    type=click.IntRange(1, 1_000_000),
    help="So many at once for each value of a function's concurrency key.",
)
@click.option("--rate-limit", metavar="RATE", help="So many starts: 100/m, 5/10s.")
@asks
def set_(at: Asking, kind: Any, name: str, **terms: Any) -> None:
    """Limit a type, a queue or a tenant, in place of the limit before.

    What runs already is counted. On a type it goes before what the function's code says, until it
    is lifted.
    """
    wish = LimitWish(kind=kind, name=name, **terms)
    at.out.one(at.ask(lambda desk: desk.set_limit(wish)), _facts)


@limits.command()
@_kind
@_name
@asks
def lift(at: Asking, kind: Any, name: str) -> None:
    """Take back a limit that was set here. What a function's code says holds again."""
    left = at.ask(lambda desk: desk.lift_limit(LimitPlace(kind=kind, name=name)))
    at.out.many([left] if left else [], LIMITS)
    if at.out.for_people and left is None:
        say(f"{kind} {name} is not limited")


def _facts(limit: LimitView) -> "list[tuple[str, Any]]":
    return [(column.title, column.value(limit)) for column in LIMITS]
