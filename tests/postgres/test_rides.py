"""Hints that leave with the commit that they are about."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest

from holdfast.client import Client
from holdfast.errors import KeyConflict
from holdfast.ids import new_id
from holdfast.notifier import Hint, Ride
from holdfast.notifiers.postgres import PostgresNotifier
from holdfast.stores.sql import SqlStore
from holdfast.tasks.task import Draft
from tests.contract.acts import MINUTE, WORKER
from tests.notifiers.keepers import Ears

WORK = Hint("work", "default")
LAST = Hint("work", "last")


@pytest.fixture
async def notifier(url: str) -> AsyncIterator[PostgresNotifier]:
    notifier = PostgresNotifier(url)
    yield notifier
    await notifier.close()


@pytest.fixture
async def ears(url: str) -> AsyncIterator[Ears]:
    ears, notifier = Ears(), PostgresNotifier(url)
    await notifier.listen(ears)
    yield ears
    await notifier.close()


@pytest.fixture
def client(store: SqlStore, notifier: PostgresNotifier) -> Client:
    return Client(store, notifier)


def _draft(**wishes: Any) -> Draft:
    return Draft(id=new_id(), type="lone", **wishes)


async def _told(notifier: PostgresNotifier, ears: Ears) -> list[Hint]:
    """What was heard up to now."""
    notifier.tell([LAST])
    await ears.hear(LAST)
    return [hint for hint in ears.heard if hint != LAST]


async def _ids(conn: asyncpg.Connection) -> list[Any]:
    return [row["id"] for row in await conn.fetch("select id from holdfast.ready")]


async def test_a_lone_dispatch_is_told_once_with_its_commit(client, notifier, ears, conn):
    (id,) = await client.enqueue([_draft()])
    await ears.hear(WORK)
    assert notifier._sender is None, "nobody had to tell it afterwards"
    assert await _told(notifier, ears) == [WORK]
    assert await _ids(conn) == [id]


async def test_who_hears_of_it_finds_it(store, client, ears):
    await client.enqueue([_draft()])
    lanes = list((await store.lanes()).lanes)
    for _ in range(50):
        await asyncio.sleep(0.011)
        ears.heard.clear()
        dispatch = asyncio.create_task(client.enqueue([_draft()]))
        await ears.hear(WORK)
        assert (await store.claim(worker=WORKER, lanes=lanes, want=10, lease=MINUTE)).tasks
        await dispatch


async def test_of_many_that_come_quickly_most_are_told_together(client, notifier, ears):
    for _ in range(20):
        await client.enqueue([_draft()])
    assert notifier._sender is not None
    assert await _told(notifier, ears)


async def test_many_tasks_in_one_call_ride_too(store, ears, conn):
    drafts = [_draft(queue=queue) for queue in ("a", "b", "b")]
    ride = Ride([Hint("work", "a"), Hint("work", "b")])
    assert await store.enqueue(drafts, ride=ride) == [draft.id for draft in drafts]
    assert ride.left
    await ears.hear(Hint("work", "a"), Hint("work", "b"))
    assert len(await _ids(conn)) == 3


async def test_those_who_share_a_commit_are_told_afterwards(client, notifier, ears, conn):
    await asyncio.gather(*(client.enqueue([_draft()]) for _ in range(30)))
    assert await _told(notifier, ears)
    assert len(await _ids(conn)) == 30


async def test_a_key_that_is_taken_is_answered_as_ever(store, conn):
    first = _draft(key="k")
    await store.enqueue([first], ride=Ride([WORK]))
    assert await store.enqueue([_draft(key="k")], ride=Ride([WORK])) == [first.id]
    with pytest.raises(KeyConflict):
        await store.enqueue([_draft(key="k", payload=b"[[2],{}]")], ride=Ride([WORK]))
    assert await _ids(conn) == [first.id]


async def test_what_was_written_before_is_answered_as_ever(store, conn):
    draft = _draft()
    await store.enqueue([draft])
    assert await store.enqueue([draft], ride=Ride([WORK])) == [draft.id]
    assert await _ids(conn) == [draft.id]


async def test_a_tenant_of_its_own_does_not_ride(store, ears, client, notifier):
    ride = Ride([WORK])
    await store.as_tenant("acme").enqueue([_draft(tenant="acme")], ride=ride)
    assert not ride.left
    await client.as_tenant("acme").enqueue([_draft(tenant="acme")])
    assert await _told(notifier, ears) == [WORK]


async def test_where_there_is_no_room_for_a_hint_the_task_is_accepted_once(
    client, notifier, ears, conn
):
    """The server refuses a hint when its queue is full: after the commit of the task."""
    body = await conn.fetchval("select pg_get_functiondef('holdfast.accept_telling'::regproc)")
    assert "perform pg_notify(p_channel, p_hints);" in body
    await conn.execute(
        body.replace(
            "perform pg_notify(p_channel, p_hints);",
            "raise program_limit_exceeded using message = 'too many notifications in the queue';",
        )
    )
    (id,) = await client.enqueue([_draft()])
    assert await _ids(conn) == [id]
    assert await _told(notifier, ears) == [WORK], "it is told by the other way"


async def test_the_hint_has_a_transaction_of_its_own(store, conn):
    """Its lock is one for all, and must not be held while the task is written to disk."""
    await store.enqueue([_draft()], ride=Ride([WORK]))
    call = (
        "call holdfast.accept_telling('{}', '{}', '{}', '{}', null, null, null, null, null, null,"
        " null, null, null, null, null, null, 'c', 'h', null, null, null)"
    )
    with pytest.raises(asyncpg.InvalidTransactionTerminationError):
        async with conn.transaction():
            await conn.execute(call)
