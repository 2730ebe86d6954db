"""SQLite asks whether a statement is allowed whenever it plans one: so it can be seen planning."""

import apsw

from tests.contract.acts import claim, finish, put


async def test_a_statement_is_planned_once_whatever_its_values(store, driver):
    planned = []

    def watch(*_: object) -> int:
        planned.append(1)
        return apsw.SQLITE_OK

    def begin(s) -> None:
        s.conn.authorizer = watch

    async def work(count: int) -> None:
        await put(store, count)
        for task in await claim(store, count):
            await finish(store, task)

    await driver._ask(begin, writes=True)  # plans are forgotten here
    await work(2)
    planned.clear()
    await work(3)
    assert planned == []
