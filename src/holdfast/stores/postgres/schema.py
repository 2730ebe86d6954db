"""Bringing a schema up to this release, and its views for people into `public`."""

import re
from importlib.resources import files

import asyncpg

from holdfast.errors import InvalidInput, SchemaMismatch, StoreError
from holdfast.stores import migrations
from holdfast.stores.postgres.problems import said

__all__ = ["check", "check_schema", "localised", "migrate"]

_HERE = files("holdfast.stores.postgres")
_NAME = re.compile(r"(?!pg_|information_schema$)[a-z_][a-z0-9_]{0,40}")
_OLDEST = 150_000
_MIGRATED = """
select m.version, m.fits
from holdfast.migration m
order by m.version desc
limit 1
"""
# Whoever may drop them; and who else was let in, to be let in again.
_PUBLISHED = """
select c.relname, a.grantee, a.privilege_type
from pg_class c
left join lateral (
  select
    case x.grantee when 0 then 'public' else x.grantee::regrole::text end as grantee,
    x.privilege_type
  from aclexplode(c.relacl) x
  where x.grantee <> c.relowner
) a on true
where c.relnamespace = to_regnamespace('public')
  and c.relkind = 'v'
  and pg_has_role(c.relowner, 'usage')
  and obj_description(c.oid, 'pg_class') = $1
"""
_UNPUBLISHED = """
select v.viewname
from pg_views v
where v.schemaname = $1
  and has_schema_privilege(to_regnamespace('public'), 'create')
  and to_regclass(format('public.%I', v.viewname)) is null
order by v.viewname
"""

Grants = dict[str, list[tuple[str, str]]]


def check_schema(name: str) -> str:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InvalidInput(
            f"schema {name!r} is not a name: use lower-case letters, digits and _, at most 41, and "
            "no name of PostgreSQL's own (pg_…)"
        )
    return name


def localised(sql: str, schema: str) -> str:
    """The files say `holdfast.`; the schema may have another name, also one that SQL reserves."""
    return sql if schema == "holdfast" else re.sub(r"\bholdfast\.", f'"{schema}".', sql)


async def check(conn: asyncpg.Connection, schema: str) -> int:
    """The schema's version, where it fits this release."""
    return migrations.check(await _found(conn, schema), _HERE)


async def migrate(conn: asyncpg.Connection, schema: str, *, public_views: bool) -> int:
    version = await conn.fetchval("show server_version_num")
    if int(version) < _OLDEST:
        raise SchemaMismatch(f"PostgreSQL is of version {int(version) // 10_000}; use 15 or newer")
    # Looked at without the lock first: the usual start has nothing to do and waits for nobody.
    found = await _found(conn, schema)
    if found and not migrations.pending(found, _HERE):
        return migrations.check(found, _HERE)
    try:
        async with conn.transaction(isolation="read_committed"):
            await _move(conn, schema, public_views=public_views)
    except asyncpg.InsufficientPrivilegeError as error:
        ((role, database),) = await conn.fetch(
            "select quote_ident(current_user), quote_ident(current_database())"
        )
        raise StoreError(
            f"role {role} may not set up the schema {schema!r}: {said(error)}. As the database's "
            f'owner run `create schema "{schema}" authorization {role}` or `grant create on '
            f"database {database} to {role}`; or migrate as the schema's owner, and open the store "
            "here with migrate=False"
        ) from error
    return await check(conn, schema)


async def _move(conn: asyncpg.Connection, schema: str, *, public_views: bool) -> None:
    # The lock ends with the transaction, so it also holds behind a pooler.
    await conn.execute(f"select pg_advisory_xact_lock(hashtext('holdfast:{schema}'))")
    if await conn.fetchval("select to_regnamespace($1) is null", f'"{schema}"'):
        await conn.execute(f'create schema "{schema}"')
    pending = migrations.pending(await _found(conn, schema), _HERE)
    if not pending:
        return  # somebody else was quicker
    # They name the columns that they were born with, and would hold up every later change.
    grants = await _unpublish(conn, schema)
    for migration in pending:
        await conn.execute(localised(migration.sql, schema))
        await conn.execute(
            localised("insert into holdfast.migration values ($1, $2, $3, now())", schema),
            migration.version,
            migration.name,
            migration.fits,
        )
    await conn.execute(localised("select holdfast.rebuild_walls()", schema))
    if public_views:
        await _publish(conn, schema, grants)


async def _found(conn: asyncpg.Connection, schema: str) -> tuple[int, int] | None:
    known = await conn.fetchval("select to_regclass($1)::text", f'"{schema}".migration')
    row = await conn.fetchrow(localised(_MIGRATED, schema)) if known else None
    return (row["version"], row["fits"]) if row else None


async def _unpublish(conn: asyncpg.Connection, schema: str) -> Grants:
    """Takes our views out of `public`; answers who else was let in."""
    grants: Grants = {}
    for view, grantee, privilege in await conn.fetch(_PUBLISHED, _remark(schema)):
        held = grants.setdefault(view, [])
        if grantee:
            held.append((grantee, privilege))
    for view in grants:
        await _apart(conn, f"drop view public.{view}")
    return grants


async def _publish(conn: asyncpg.Connection, schema: str, grants: Grants) -> None:
    """The views for people also in `public`, where the name is free and we are let in."""
    for (view,) in await conn.fetch(_UNPUBLISHED, schema):
        made = (
            f"create view public.{view} with (security_invoker = true) as "  # noqa: S608
            f'select * from "{schema}".{view}; '
            f"comment on view public.{view} is '{_remark(schema)}'"
        )
        if await _apart(conn, made):
            for grantee, privilege in grants.get(view, ()):
                await _apart(conn, f"grant {privilege} on public.{view} to {grantee}")


async def _apart(conn: asyncpg.Connection, sql: str) -> bool:
    """Whether it worked. What is only handy must not break a migration."""
    try:
        async with conn.transaction():
            await conn.execute(sql)
    except asyncpg.PostgresError:
        return False
    return True


def _remark(schema: str) -> str:
    return f"Holdfast: as in the schema {schema}, and made anew by its migrations"
