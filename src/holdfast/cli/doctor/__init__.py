"""`holdfast doctor`: looks for what is wrong, and says the fix."""

from datetime import timedelta

import click

from holdfast.cli.asking import Asking, asks
from holdfast.cli.exits import Exit, Stop
from holdfast.cli.options import SPAN
from holdfast.cli.render import Column

__all__ = ["doctor"]

_SIGNS = {"ok": "ok", "warn": "WARN", "fail": "FAIL", "skipped": "-"}
_COLUMNS = (
    Column("code", lambda f: f.code),
    Column("", lambda f: _SIGNS[f.status]),
    Column("check", lambda f: f.check),
    Column("found", lambda f: f.message),
    Column("what to do", lambda f: f.fix or None),
)


@click.command()
@click.option(
    "--lease", type=SPAN, help="How long your leases are.  [default: as the workers have them]"
)
@click.option(
    "--old-transaction",
    type=SPAN,
    default="5m",
    show_default=True,
    help="On PostgreSQL, a transaction that is open for so long is told of.",
)
@asks
def doctor(at: Asking, lease: timedelta | None, old_transaction: timedelta) -> None:
    """Look for what is wrong: store, schema, clocks, queues, workers, leases, and the database.

    Nothing is changed. Over an API only what it can say is looked at. Exit code 9: something
    failed; warnings alone do not count. The codes are explained in docs/reference/cli.md.
    """
    from holdfast.cli.doctor.visit import Visit

    findings = Visit(at, lease=lease, old_transaction=old_transaction).run()
    at.out.many(findings, _COLUMNS)
    failed = [f.code for f in findings if f.status == "fail"]
    warned = sum(f.status == "warn" for f in findings)
    if failed:
        raise Stop(
            Exit.UNHEALTHY,
            f"unhealthy: {', '.join(failed)}" + (f", and {warned} warnings" if warned else ""),
        )
