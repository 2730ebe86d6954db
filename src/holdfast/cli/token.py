"""`holdfast token`: keys of the API."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Any, TypeVar

import click
import msgspec

from holdfast.cli.exits import Exit, Stop
from holdfast.cli.groups import Near
from holdfast.cli.options import LABELS, SPAN, output_option, store_option
from holdfast.cli.render import Column, Printer, as_json, say
from holdfast.desk.caller import ROLES, SCOPES

__all__ = ["token"]

T = TypeVar("T")


class KeyView(msgspec.Struct, frozen=True, kw_only=True):
    """A key as people see it: nothing of its secret."""

    id: str
    name: str
    tenant: str | None
    scopes: list[str]
    state: str
    created_at: datetime
    created_by: str
    expires_at: datetime | None
    last_used_at: datetime | None


_COLUMNS = (
    Column("id", lambda k: k.id),
    Column("name", lambda k: k.name),
    Column("tenant", lambda k: k.tenant or "all"),
    Column("scopes", lambda k: k.scopes),
    Column("state", lambda k: k.state),
    Column("created", lambda k: k.created_at),
    Column("by", lambda k: k.created_by),
    Column("expires", lambda k: k.expires_at),
    Column("last used", lambda k: k.last_used_at),
)


@click.group(cls=Near)
def token() -> None:
    """Keys of the API: make, list and revoke them. Only the store itself is asked."""


@token.command()
@click.argument("name")
@click.option("--role", type=click.Choice(list(ROLES)), help="What it may do, in one word.")
@click.option("--scopes", type=LABELS, help=f"What it may do: {', '.join(SCOPES)}.")
@click.option("--tenant", help="Only tasks of this tenant.  [default: of all]")
@click.option("--expires", type=SPAN, help="It is good for so long.  [default: until revoked]")
@store_option
@output_option
def create(
    name: str,
    role: str | None,
    scopes: tuple[str, ...] | None,
    tenant: str | None,
    expires: timedelta | None,
    store: str | None,
    output: str,
) -> None:
    """Make a key called NAME, and print it: this once. Only its digest is kept."""
    from holdfast.cli.asking import whoami
    from holdfast.desk.keys import new_key

    chosen = _scopes(role, scopes)
    key = new_key()

    async def add(store: Any) -> None:
        await store.note(whoami(), "token.create", key.id, tenant=tenant, detail={"name": name})
        await store.add_key(
            key.id,
            name=name,
            scopes=chosen,
            digest=key.digest,
            created_by=whoami(),
            tenant=tenant,
            expires=expires,
        )

    _asked(store, add)
    as_json({"id": key.id, "key": key.text}) if output != "table" else click.echo(key.text)
    say(f"key {key.id}: keep it now, it is not shown again; HOLDFAST_TOKEN_FILE takes its file")


@token.command()
@click.option("--all", "everything", is_flag=True, help="Also what expired or was revoked.")
@store_option
@output_option
def ls(everything: bool, store: str | None, output: str) -> None:
    """All keys that are good, without their secrets."""
    found = [_view(record) for record in _asked(store, lambda store: store.keys())]
    chosen = [view for view in found if everything or view.state == "good"]
    Printer(output).many(chosen, _COLUMNS)


@token.command()
@click.argument("id")
@store_option
def revoke(id: str, store: str | None) -> None:
    """Take a key back by its ID: within a second it opens nothing more."""
    from holdfast.cli.asking import whoami

    async def take_back(store: Any) -> bool:
        await store.note(whoami(), "token.revoke", id)
        return bool(await store.revoke_key(id))

    if not _asked(store, take_back):
        raise Stop(
            Exit.NOT_FOUND,
            f"there is no key {id!r:.80} that is good; `holdfast token ls --all` shows all",
        )
    click.echo(id)


def _scopes(role: str | None, scopes: tuple[str, ...] | None) -> tuple[str, ...]:
    if bool(role) == bool(scopes):
        raise Stop(
            Exit.USAGE,
            f"say what it may do: --role {'|'.join(ROLES)}, or --scopes {','.join(SCOPES)}",
        )
    unknown = sorted(set(scopes or ()) - SCOPES.keys())
    if unknown:
        raise Stop(
            Exit.USAGE, f"no such scope: {', '.join(unknown)}; there are {', '.join(SCOPES)}"
        )
    return ROLES[role] if role else tuple(scopes or ())


def _view(record: Any) -> KeyView:
    state = "revoked" if record.revoked_at else "expired" if record.expired else "good"
    return KeyView(
        id=record.id,
        name=record.name,
        tenant=record.tenant,
        scopes=list(record.scopes),
        state=state,
        created_at=record.created_at,
        created_by=record.created_by,
        expires_at=record.expires_at,
        last_used_at=record.last_used_at,
    )


def _asked(store: str | None, question: Callable[[Any], Awaitable[T]]) -> T:
    from holdfast.cli.asking import local_app

    async def asked() -> T:
        async with local_app(store) as app:
            return await question((await app.home.client()).store)

    return asyncio.run(asked())
