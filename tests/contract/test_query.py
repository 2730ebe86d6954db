"""Queries of people's own: they read, and nothing else."""

import pytest

from holdfast.errors import InvalidInput, ReadOnly, StoreError
from holdfast.stores import reading
from tests.contract.acts import put, put_one

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


NUMBERS = """
with recursive n (i) as (select 1 union all select i + 1 from n where i < {})
select {} from n
"""


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


async def test_more_rows_than_anybody_reads_are_refused(store):
    _, rows = await store.query(NUMBERS.format(100_000, "i"))
    assert len(rows) == 100_000
    with pytest.raises(InvalidInput, match=r"100,000 rows; narrow it or add a limit"):
        await store.query(NUMBERS.format(100_001, "i"))


WIDE = {"sqlite": "printf('%.*c', 7000, 'x')", "postgres": "repeat('x', 7000)"}


@pytest.mark.parametrize("form", ["text", "bytes", "list"])
async def test_more_bytes_than_anybody_reads_are_refused(store, keeper, form, monkeypatch):
    monkeypatch.setattr(reading, "MOST_BYTES", 1 << 20)
    wide = WIDE[keeper.dialect]
    if form == "bytes":
        wide = f"cast({wide} as blob)" if keeper.dialect == "sqlite" else f"{wide}::bytea"
    if form == "list" and keeper.dialect == "postgres":
        wide = f"array[{wide}, 'y']"
    _, rows = await store.query(NUMBERS.format(140, wide))
    assert len(rows) == 140
    with pytest.raises(InvalidInput, match=r"more than 1 MiB; narrow it or add a limit"):
        await store.query(NUMBERS.format(160, wide))
    assert (await store.query("select 1 as n"))[1] == [(1,)]


async def test_one_value_is_as_bounded_as_all_of_them(store, keeper):
    huge = {"sqlite": "zeroblob(70000000)", "postgres": "repeat('x', 70000000)"}
    with pytest.raises(InvalidInput, match="more than 64 MiB"):
        await store.query(f"select {huge[keeper.dialect]} as huge")
    if keeper.dialect == "sqlite":  # in this process, also on the way
        with pytest.raises(InvalidInput, match="more than 64 MiB"):
            await store.query("select length(hex(zeroblob(40000000))) as n")
    assert (await store.query("select 1 as n"))[1] == [(1,)]


async def test_a_query_that_takes_too_long_is_stopped_and_the_store_goes_on(
    store, keeper, monkeypatch
):
    await store.query("select 1")
    with monkeypatch.context() as patient:
        patient.setattr(keeper.driver, "_timeout", 0.5)
        with pytest.raises(StoreError, match=r"longer than 0\.5 s and was stopped; narrow it"):
            await store.query(NUMBERS.format(10**12, "count(*)"))
    await put_one(store)
    assert (await store.query("select count(*) from tasks"))[1] == [(1,)]
