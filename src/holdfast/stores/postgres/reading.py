"""Queries of people's own. They read, and nothing else, and leave nothing behind."""

import asyncio

import asyncpg

from holdfast.errors import InvalidInput, ReadOnly, StoreError
from holdfast.stores.driver import Row
from holdfast.stores.reading import Answer, check_reads, took_too_long

__all__ = ["query"]

# Locks that a query took for its session would outlive its transaction, also where it failed.
# Behind a pooler only this transaction is certain to be on the same session.
_LET_GO = "rollback to savepoint theirs; select pg_advisory_unlock_all()"


async def query(
    conn: asyncpg.Connection, schema: str, sql: str, within: float, tenant: str | None = None
) -> tuple[list[str], list[Row]]:
    """The columns and rows of one statement, in a transaction that cannot write."""
    check_reads(sql)
    transaction = conn.transaction(readonly=True, isolation="read_committed")
    await transaction.start()
    await conn.execute(
        f'set local search_path to "{schema}", public; '
        f"set local statement_timeout to {max(round(within * 1000), 1)}; "
        f"set local lock_timeout to {max(round(within * 1000 / 3), 1)}; "
        "savepoint theirs"
    )
    if tenant is not None:
        await conn.execute("select set_config('holdfast.tenant', $1::text, true)", tenant)
    loop = asyncio.get_running_loop()
    over = loop.time() + within
    problem: Exception | None = None
    columns: list[str] = []
    rows: list[Row] = []
    try:
        columns, rows = await _ask(conn, sql)
    except asyncpg.QueryCanceledError as error:
        problem = took_too_long(within) if loop.time() >= over else error  # or by an operator
    except asyncpg.PostgresError as error:
        problem = _explained(error)
    except InvalidInput as error:
        problem = error
    await conn.execute(_LET_GO)
    await transaction.rollback()
    if problem:
        raise problem
    return columns, rows


async def _ask(conn: asyncpg.Connection, sql: str) -> tuple[list[str], list[Row]]:
    statement = await conn.prepare(sql)
    cursor, answer = await statement.cursor(), Answer()
    while rows := await cursor.fetch(answer.next):
        answer.add([tuple(row) for row in rows])
    return [column.name for column in statement.get_attributes()], answer.rows


def _explained(error: asyncpg.PostgresError) -> Exception:
    match error:
        case asyncpg.ReadOnlySQLTransactionError():
            return ReadOnly()
        case asyncpg.LockNotAvailableError():
            return StoreError(
                "another transaction has locked a table that the query reads; ask again when it "
                "has ended"
            )
        case asyncpg.SyntaxOrAccessError():
            return InvalidInput(f"PostgreSQL refuses this query: {error}")
        case _:
            return error
