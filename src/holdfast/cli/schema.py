"""Where the schema of a store stands, and the SQL that brings it up to this release."""

from datetime import UTC, datetime, timedelta
from importlib.resources import files
from typing import Any, Literal

import msgspec

from holdfast.errors import InvalidInput
from holdfast.stores import migrations
from holdfast.stores.opening import open_store, postgres_parts

__all__ = ["Moved", "fits", "is_sqlite", "standing", "written"]

_MADE = "select version, name, fits, applied_at from migration order by version"
_SIGNED = "pragma application_id = 1213156420;"  # as stores.sqlite.ownership has it


class Moved(msgspec.Struct, frozen=True, kw_only=True):
    """One migration. `newer`: made by a later release."""

    version: int
    name: str
    state: Literal["applied", "pending", "newer"]
    fits: int
    applied_at: datetime | None = None


def is_sqlite(url: str) -> bool:
    return url.startswith("sqlite:")


def _folder(url: str) -> Any:
    return files("holdfast.stores.sqlite" if is_sqlite(url) else "holdfast.stores.postgres")


async def standing(url: str) -> list[Moved]:
    """All migrations that this release or the store knows."""
    store = await open_store(url, migrate=False, check=False)
    try:
        _, rows = await store.query(_MADE)
    except InvalidInput:  # no such table: nothing of ours is there
        rows = []
    finally:
        await store.close()
    known = migrations.known(_folder(url))
    ours = known[-1].version
    made = [
        Moved(
            version=version,
            name=name,
            state="applied" if version <= ours else "newer",
            fits=fits,
            applied_at=_instant(at),
        )
        for version, name, fits, at in rows
    ]
    last = made[-1].version if made else 0
    return made + [
        Moved(version=m.version, name=m.name, state="pending", fits=m.fits)
        for m in known
        if m.version > last
    ]


def fits(found: list[Moved]) -> bool:
    """Whether this release can work on it."""
    ours = max((one.version for one in found if one.state != "newer"), default=0)
    return all(
        one.state == "applied" or (one.state == "newer" and one.fits <= ours) for one in found
    )


def _instant(value: Any) -> datetime:
    if isinstance(value, datetime):
        return value
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=value)


def written(url: str, *, after: int) -> str:
    """The SQL of all migrations after that version; empty: there are none."""
    found = [m for m in migrations.known(_folder(url)) if m.version > after]
    if not found:
        return ""
    return _sqlite(found) if is_sqlite(url) else _postgres(found, url)


def _sqlite(found: list[migrations.Migration]) -> str:
    parts = ["begin immediate;", _SIGNED]
    now = "cast(unixepoch('subsec') * 1000000 as integer)"
    for m in found:
        made = f"insert into migration values ({m.version}, '{m.name}', {m.fits}, {now});"  # noqa: S608
        parts += [f"-- {m.version:04d} {m.name}", m.sql.strip(), made]
    return "\n\n".join([*parts, "commit;"])


def _postgres(found: list[migrations.Migration], url: str) -> str:
    from holdfast.stores.postgres.schema import check_schema, localised

    schema = check_schema(postgres_parts(url)[1].get("schema", "holdfast"))
    parts = ["begin;", f'create schema if not exists "{schema}";']
    for m in found:
        values = f"({m.version}, '{m.name}', {m.fits}, now())"
        made = f"insert into holdfast.migration values {values};"  # noqa: S608
        parts += [f"-- {m.version:04d} {m.name}", localised(f"{m.sql.strip()}\n\n{made}", schema)]
    return "\n\n".join([*parts, "commit;"])
