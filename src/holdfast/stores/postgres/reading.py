"""Queries of people's own. They read, and nothing else."""

import asyncpg

from holdfast.errors import InvalidInput, ReadOnly
from holdfast.stores.driver import Row
from holdfast.stores.reading import check_reads

__all__ = ["query"]


async def query(
    conn: asyncpg.Connection, schema: str, sql: str, within: float
) -> tuple[list[str], list[Row]]:
    """The columns and rows of one statement, in a transaction that cannot write."""
    check_reads(sql)
    transaction = conn.transaction(readonly=True)
    await transaction.start()
    try:
        await conn.execute(f'set local search_path to "{schema}", public')
        await conn.execute(f"set local statement_timeout to {round(within * 1000)}")
        statement = await conn.prepare(sql)
        rows = await statement.fetch(timeout=within)
        return [column.name for column in statement.get_attributes()], [tuple(row) for row in rows]
    except asyncpg.ReadOnlySQLTransactionError:
        raise ReadOnly from None
    except asyncpg.SyntaxOrAccessError as error:
        raise InvalidInput(f"PostgreSQL refuses this query: {error}") from None
    finally:
        await transaction.rollback()
