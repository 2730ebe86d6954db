"""Queries of people's own: they read, and nothing else."""

import pytest

from holdfast.errors import InvalidInput, ReadOnly
from tests.contract.acts import put

WRITES = [
    "delete from tasks",
    "update task set payload = null",
    "drop table task",
    "with gone as (select 1) delete from task",
    "pragma query_only = off",
    "commit",
    "set transaction read write",
    "/* select */ delete from task",
]


async def test_a_query_answers_columns_and_rows(store):
    await put(store, 3)
    columns, rows = await store.query("-- how many\nselect count(*) as n, 'x' as y from tasks")
    assert (columns, [tuple(row) for row in rows]) == (["n", "y"], [(3, "x")])
    assert await store.query("select id from tasks where false") == (["id"], [])


@pytest.mark.parametrize("statement", WRITES)
async def test_what_would_write_is_refused_and_changes_nothing(store, dump, statement):
    await put(store, 1)
    before = await dump()
    with pytest.raises(ReadOnly):
        await store.query(statement)
    assert await dump() == before


@pytest.mark.parametrize(
    "statement", ["select 1 from", "select * from nowhere", "select 1; select 2"]
)
async def test_what_is_no_query_is_refused_in_words(store, statement):
    with pytest.raises(InvalidInput):
        await store.query(statement)
