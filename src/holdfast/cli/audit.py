"""`holdfast audit`: who changed what, and when."""

from typing import Any

import click
import msgspec

from holdfast.cli.asking import Asking, asks
from holdfast.cli.groups import Near
from holdfast.cli.options import WHEN
from holdfast.cli.render import Column, say
from holdfast.desk.desk import Desk
from holdfast.desk.papers import AuditPage, AuditQuery, AuditView

__all__ = ["audit"]

_PAGE = 500
_RECORDS = (
    Column("seq", lambda r: r.seq),
    Column("at", lambda r: r.at),
    Column("actor", lambda r: r.actor),
    Column("tenant", lambda r: r.tenant_id),
    Column("verb", lambda r: r.verb),
    Column("subject", lambda r: r.subject),
    Column("detail", lambda r: r.detail or None),
)


@click.group(cls=Near)
def audit() -> None:
    """The audit: who changed what, and when. It only grows."""


@audit.command()
@click.option("--actor", help="By this person or key.")
@click.option("--verb", help="Such as task.cancel, or task.* for all that was done to tasks.")
@click.option("--subject", help="To this task, queue, worker or key.")
@click.option("--tenant", "tenant_id", help="In the name of this tenant.")
@click.option("--since", type=WHEN, help="Within so long, or since this time.")
@click.option("--until", type=WHEN, help="So long ago, or before this time.")
@click.option("--before", type=click.IntRange(0), help="Only older ones than this number.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=50, show_default=True)
@asks
def ls(at: Asking, limit: int, **given: Any) -> None:
    """What was changed from outside, the newest first, each written down before it was done."""
    query = AuditQuery(**given, limit=min(limit, _PAGE))
    page = at.ask(lambda desk: _found(desk, query, limit))
    at.out.many(page.data, _RECORDS, whole=page)
    if page.next_before is not None and at.out.form != "json":
        say(f"there may be more: --before {page.next_before}")


async def _found(desk: Desk, query: AuditQuery, limit: int) -> AuditPage:
    data: list[AuditView] = []
    while True:
        asked = msgspec.structs.replace(query, limit=min(limit - len(data), _PAGE))
        page = await desk.audits(asked)
        data += page.data
        if page.next_before is None or len(data) == limit:
            return AuditPage(data=data, next_before=page.next_before)
        query = msgspec.structs.replace(query, before=page.next_before)
