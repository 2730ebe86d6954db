"""A database of its own, with a table that functions write to beside their tasks."""

import asyncpg

from holdfast import Holdfast

urls: list[str] = []


def serve():
    return Holdfast.bootstrap(urls[-1], serve=True, poll_interval=0.02, lease_duration="5s")


async def rows(shop: asyncpg.Connection) -> list[int]:
    return [row[0] for row in await shop.fetch("select number from shop order by 1")]


async def elsewhere(statement: str) -> None:
    """By somebody else, at once."""
    conn = await asyncpg.connect(urls[-1])
    await conn.execute(statement)
    await conn.close()


async def nothing_is_open(shop: asyncpg.Connection) -> bool:
    """No transaction was forgotten: it would keep its connection, and all that it has locked."""
    return not await shop.fetch(
        "select from pg_stat_activity where datname = current_database() "
        "and pid <> pg_backend_pid() and state like 'idle in transaction%'"
    )
