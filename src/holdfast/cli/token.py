"""`holdfast token`: keys of the API."""

from datetime import timedelta
from typing import Any

import click

from holdfast.cli.asking import Asking, asks
from holdfast.cli.exits import Exit, Stop
from holdfast.cli.groups import Near
from holdfast.cli.options import LABELS, SPAN
from holdfast.cli.render import Column, as_json, say
from holdfast.desk.caller import ROLES, SCOPES
from holdfast.desk.desk import Desk
from holdfast.desk.papers import KeyView, KeyWish

__all__ = ["token"]


def _state(key: KeyView) -> str:
    return "revoked" if key.revoked_at else "good" if key.valid else "expired"


_COLUMNS = (
    Column("id", lambda k: k.id),
    Column("name", lambda k: k.name),
    Column("tenant", lambda k: k.tenant_id or "all"),
    Column("scopes", lambda k: k.scopes),
    Column("state", _state),
    Column("created", lambda k: k.created_at),
    Column("by", lambda k: k.created_by),
    Column("expires", lambda k: k.expires_at),
    Column("last used", lambda k: k.last_used_at),
)


@click.group(cls=Near)
def token() -> None:
    """Keys of the API: make, list and revoke them."""


@token.command()
@click.argument("name", required=False)
@click.option("--role", type=click.Choice(list(ROLES)), help="What it may do, in one word.")
@click.option("--scopes", type=LABELS, help=f"What it may do: {', '.join(SCOPES)}.")
@click.option("--tenant", help="Only tasks of this tenant.  [default: of all]")
@click.option("--expires", type=SPAN, help="It is good for so long.  [default: until revoked]")
@asks
def create(
    at: Asking,
    name: str | None,
    role: str | None,
    scopes: tuple[str, ...] | None,
    tenant: str | None,
    expires: timedelta | None,
) -> None:
    """Make a key called NAME (else like its tenant), and print it: this once. Only its digest is
    kept."""
    if bool(role) == bool(scopes):
        roles, every = "|".join(ROLES), ",".join(SCOPES)
        raise Stop(Exit.USAGE, f"say what it may do: --role {roles}, or --scopes {every}")
    wish = KeyWish(
        name=name or tenant or "key",
        scopes=[role] if role else list(scopes or ()),
        tenant_id=tenant,
        expires=None if expires is None else expires.total_seconds(),
    )
    made = at.ask(lambda desk: desk.create_key(wish))
    click.echo(made.key) if at.out.for_people else as_json(made)
    say(
        f"key {made.record.id}: keep it now, it is not shown again; HOLDFAST_TOKEN_FILE takes the "
        "file that it is in"
    )


@token.command()
@click.option("--all", "everything", is_flag=True, help="Also what expired or was revoked.")
@asks
def ls(at: Asking, everything: bool) -> None:
    """All keys that are good, without their secrets."""
    found = at.ask(lambda desk: desk.keys())
    at.out.many([key for key in found if everything or key.valid], _COLUMNS)


@token.command()
@click.argument("id")
@asks
def revoke(at: Asking, id: str) -> None:
    """Take a key back by its ID: within a second it opens nothing more."""

    async def take_back(desk: Desk) -> Any:
        key = await desk.key(id)
        if key.revoked_at is not None:
            raise Stop(Exit.CONFLICT, f"key {id} was taken back before")
        return await desk.revoke_key(id)

    key = at.ask(take_back)
    at.out.line(key.id) if at.out.for_people else at.out.one(key, lambda _: ())
