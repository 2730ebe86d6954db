"""The second wall between tenants: the database itself keeps a role of the API's to one of them.

Nothing here asks for a tenant by a filter; what is seen is what the wall lets through.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from urllib.parse import urlsplit
from uuid import UUID, uuid4

import asyncpg
import pytest
import pytest_asyncio

from holdfast.answers import TaskFilter, WorkerRecord
from holdfast.errors import InvalidInput, StoreError, UnknownTask
from holdfast.ids import new_grant, new_id
from holdfast.records import LogLine
from holdfast.stores.postgres.driver import PostgresDriver
from holdfast.stores.sql import SqlStore
from holdfast.tasks.edit import Edit
from holdfast.tasks.limits import Limit
from holdfast.tasks.task import Draft
from tests.contract.acts import (
    FAILED,
    OTHER,
    WORKER,
    claim,
    claim_one,
    draft,
    finish,
    put,
    put_one,
    retry,
    seconds,
)
from tests.contract.keepers import PostgresKeeper
from tests.servers import PgBouncer, with_database

ONLY = "postgres"
LINE = LogLine(position=1, level="INFO", logger="job", message="begun")


class RolesBouncer(PgBouncer):
    """Lets clients in as one role, whoever they are."""

    role = ""

    @property
    def _user(self) -> str:
        return self.role


@pytest.fixture(scope="session")
def role() -> str:
    return f"holdfast_api_{uuid4().hex[:8]}"


@pytest.fixture(scope="session")
def role_url(request: pytest.FixtureRequest, keeper: PostgresKeeper, role: str) -> Iterator[str]:
    """Where the role connects: through a pooler where the keeper does."""
    parts = urlsplit(keeper.direct)
    as_role = parts._replace(netloc=f"{role}@{parts.netloc.rpartition('@')[2]}").geturl()
    if keeper.url == keeper.direct:
        yield as_role
        return
    bouncer = RolesBouncer(request.getfixturevalue("pgbouncer").behind)
    bouncer.role = role
    with bouncer:
        yield with_database(bouncer.url, parts.path[1:])


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def walled(keeper: PostgresKeeper, role: str, role_url: str) -> AsyncIterator[SqlStore]:
    """A store as the API's process opens it."""
    await keeper.peek(f"create role {role} login")
    try:
        await keeper.store().wall(role)
        await keeper.peek(f"grant select on test_clock to {role}")
        store = SqlStore(PostgresDriver(role_url, schema=keeper.schema))
        yield store
        await store.close()
    finally:
        await _drop(keeper, role)


async def _drop(keeper: PostgresKeeper, role: str) -> None:
    for tries_left in range(9, -1, -1):
        try:
            await keeper.peek(f"drop owned by {role}")
            break
        except asyncpg.DeadlockDetectedError:  # with a vacuum, say
            if not tries_left:
                raise
    await keeper.peek(f"drop role {role}")


@pytest.fixture
def acme(store: SqlStore, walled: SqlStore) -> SqlStore:
    return walled.as_tenant("acme")


@pytest.fixture
def other(store: SqlStore, walled: SqlStore) -> SqlStore:
    return walled.as_tenant("other")


async def _fill(store: SqlStore, tenant: str) -> dict[str, UUID]:
    """One of everything, in the name of a tenant; as the owner."""
    await store.limit("type", "job:keyed", Limit(max_running=50, max_per_key=1))
    fields = {"tenant": tenant, "queue": f"q-{tenant}", "user_id": "ann"}
    found = {
        "later": await put_one(store, "job:later", delay=seconds(600), **fields),
        "expires": await put_one(store, "job:later", expires=seconds(600), **fields),
    }
    await put(store, 3, "job:keyed", concurrency_key="k", **fields)
    for name in ("done", "failed", "running"):
        found[name] = await put_one(store, f"job:{name}", key=name, max_tries=9, **fields)
    await store.register(WorkerRecord(id=WORKER, name="w"))
    held = {c.lease.task: c for c in await claim(store)}
    done, failed, running = (held[found[name]] for name in ("done", "failed", "running"))
    await store.log(done.lease, [LINE])
    await store.progress(running.lease, 10, "begun", b"1")
    await finish(store, done)
    await finish(store, failed, FAILED)
    await store.settle([(done.lease, FAILED)])  # refused
    await store.send_signal(found["running"], new_id(), "go", b"1")
    await finish(store, held[found["expires"]], retry(60))
    await store.note("ann", "look", tenant=tenant)
    digest = bytes(32)
    await store.add_key(
        f"key-{tenant}", tenant=tenant, name="k", scopes=["a"], digest=digest, created_by="ann"
    )
    await store.begin_request(f"{tenant} key", "r", digest, token=new_grant())
    await store.start_operation(new_id(), "replay", {}, actor="ann", tenant=tenant)
    await store.roll_up()
    return found


TENANTS_OWN = {
    "api_key", "attempt", "audit", "blocked", "expiry", "key_gate", "lane", "later", "lease",
    "operation", "outcome", "progress", "ready", "request", "rollup", "signal", "task",
    "task_key", "task_log", "wake",
}  # fmt: skip


async def _counts(conn: asyncpg.Connection, schema: str) -> dict[str, int]:
    tables = [name for (name,) in await conn.fetch(f"select name from {schema}.wall_rules()")]
    return {t: await conn.fetchval(f"select count(*) from {schema}.{t}") for t in tables}


async def _seen(walled: SqlStore, keeper: PostgresKeeper, tenant: str) -> dict[str, int]:
    """How many rows of each table a statement without any filter finds."""
    async with walled.as_tenant(tenant).transaction() as conn:
        return await _counts(conn, keeper.schema)


async def test_statements_without_a_filter_see_one_tenants_rows(store, walled, keeper):
    await _fill(store, "acme")
    alone = await _seen(walled, keeper, "acme")
    assert {t for t in TENANTS_OWN if not alone[t]} <= {"ready"}
    for tenant in ("other", "third"):
        await _fill(store, tenant)
    await put_one(store, tenant="acme")
    again = await _seen(walled, keeper, "acme")
    changed = {t for t in TENANTS_OWN if again[t] != alone[t]}
    assert changed <= {"lane", "ready", "task"}, "the one that came just now, and no foreign one"
    assert again["task"] == alone["task"] + 1
    nobody = await _seen(walled, keeper, "nobody")
    assert {t for t in TENANTS_OWN if nobody[t]} == set()


async def test_in_nobodys_name_nothing_is_seen(store, walled, acme, keeper, role_url):
    await _fill(store, "acme")
    conn = await asyncpg.connect(role_url, statement_cache_size=0)
    try:
        for _ in range(2):
            async with conn.transaction():
                found = await _counts(conn, keeper.schema)
            assert {t for t in TENANTS_OWN if found[t]} == set()
            async with conn.transaction():  # an empty name is what a session has after this
                await conn.execute("select set_config('holdfast.tenant', 'acme', true)")
                assert await conn.fetchval(f"select count(*) from {keeper.schema}.task") > 0
    finally:
        await conn.close()
    for _ in range(3):  # on the same connections
        pages = await asyncio.gather(*(acme.list_tasks(TaskFilter()) for _ in range(4)))
        assert all(page.tasks for page in pages)
        assert (await acme.query("select count(*) from task"))[1] != [(0,)]
        assert await walled.keys() == []
        assert (await walled.list_tasks(TaskFilter())).tasks == []
        assert (await walled.query("select count(*) from task"))[1] == [(0,)]


async def test_questions_without_a_tenant_are_answered_for_one(store, acme, clock):
    own = await _fill(store, "acme")
    foreign = await _fill(store, "other")
    page = await acme.list_tasks(TaskFilter())
    assert {task.tenant for task in page.tasks} == {"acme"}
    assert await acme.list_tasks(TaskFilter(user_id="ann")) == page
    assert {e.tenant for e in await acme.events()} == {"acme"}
    assert {lease.tenant for lease in await acme.leases()} == {"acme"}
    assert [g.count for g in await acme.dead_letter_groups()] == [1]
    assert [key.id for key in await acme.keys()] == ["key-acme"]
    assert {record.tenant for record in await acme.audits()} == {"acme"}
    assert {o.tenant for o in await acme.operations()} == {"acme"}
    loads = {q.queue: (q.ready, q.scheduled, q.running) for q in await acme.queue_loads()}
    assert loads["q-other"] == (0, 0, 0)
    assert loads["q-acme"] != (0, 0, 0)
    assert (await acme.get(own["done"])).tenant == "acme"
    assert len(await acme.logs(own["done"])) == 1
    for id in foreign.values():
        with pytest.raises(UnknownTask):
            await acme.get(id)
        with pytest.raises(UnknownTask):
            await acme.ending(id)
        with pytest.raises(UnknownTask):
            await acme.standing(id)
        with pytest.raises(UnknownTask):
            await acme.payload(id)
        assert await acme.attempts(id) == []
        assert list(await acme.task_events(id)) == []
        assert await acme.logs(id) == []
        assert (await acme.journal(id)).steps == []
        assert await acme.saved(id) is None
    _, rows = await acme.query("select distinct tenant_id from tasks")
    assert rows == [("acme",)]


async def test_foreign_tasks_cannot_be_changed(store, acme, dump):
    foreign = list((await _fill(store, "other")).values())
    before = await dump()
    assert set((await acme.cancel(foreign)).values()) == {"unknown"}
    assert await acme.retry(foreign) == frozenset()
    assert await acme.discard(foreign) == frozenset()
    for id in foreign:
        with pytest.raises(UnknownTask):
            await acme.edit(id, Edit(priority=1, delay=seconds(5)))
    assert not await acme.send_signal(foreign[0], new_id(), "go", b"1")
    assert await acme.wake_up(foreign) == 0
    assert not await acme.revoke_key("key-other")
    assert not any([await acme.cancel_operation(o.id) for o in await store.operations()])
    assert await dump() == before


async def test_nothing_can_be_brought_in_for_another_tenant(store, acme, dump):
    await put_one(store, tenant="other")
    before = await dump()
    for tenant in ("other", "new"):
        with pytest.raises(StoreError, match="row-level security"):
            await acme.enqueue([draft(tenant=tenant)])
    with pytest.raises(StoreError, match="row-level security"):
        await acme.note("ann", "look", tenant="other")
    after = await dump()
    after.pop("lane_change"), before.pop("lane_change")
    assert after == before


WRITES = {
    "a task in a foreign lane": "insert into task (id, lane, np, payload) values ($1, $2, 0, '')",
    "a task that moves to a foreign lane": "update task set lane = $2 where id <> $1",
    "a place in a foreign lane": "insert into ready (id, lane, np) values ($1, $2, 0)",
    "a log of a foreign task": (
        "insert into task_log (id, fence, position, at, level, logger, message) "
        "values ($3, $2, 9, statement_timestamp(), '', '', $1::uuid::text)"
    ),
    "a signal to a foreign task": (
        "insert into signal (signal, id, name, payload, sent_at) "
        "values ($1, $3, $2::int::text, '', statement_timestamp())"
    ),
    "a key that becomes a foreign tenant's": (
        "update task_key set tenant = 'other' where id <> $1 and $2::int > 0"
    ),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
async def test_no_statement_writes_what_belongs_to_another(store, acme, keeper, dump, write):
    theirs = await put_one(store, tenant="other")
    await put_one(store, tenant="acme", key="order-7")
    lanes = (await store.lanes()).lanes
    (lane,) = [id for id, found in lanes.items() if found.tenant == "other"]
    before = await dump()
    values = [new_id(), lane, theirs][: 3 if "$3" in write else 2]
    with pytest.raises(asyncpg.InsufficientPrivilegeError, match="row-level security"):
        await _write(acme, keeper.schema, write, values)
    assert await dump() == before


async def _write(store: SqlStore, schema: str, sql: str, values: list[object]) -> None:
    async with store.transaction() as conn:
        await conn.execute(f"set local search_path to {schema}")
        await conn.execute(sql, *values)


async def test_a_tenants_own_tasks_are_brought_in_steered_and_forgotten(store, acme, keeper, clock):
    ids = await acme.enqueue([draft(tenant="acme") for _ in range(1500)])
    single = await put_one(acme, tenant="acme", key="order-7", expires=seconds(600))
    assert await put_one(acme, tenant="acme", key="order-7") == single
    late = await put_one(acme, tenant="acme", delay=seconds(600))
    moved = Edit(queue="vip", priority=3, delay=seconds(300), expires=seconds(900), max_tries=2)
    assert await acme.edit(late, moved) == "edited"
    assert await acme.edit(late, Edit(queue="default", expires=None)) == "edited"
    assert await acme.retry([late]) == {late}
    assert (await acme.cancel(ids))[ids[0]] == "cancelled"
    claimed = {c.lease.task: c for c in await claim(store)}
    await store.log(claimed[single].lease, [LINE])
    await finish(store, claimed[single], FAILED)
    assert await acme.retry([single]) == {single}
    again = await claim_one(store, worker=OTHER)
    assert await acme.cancel([single]) == {single: "requested"}
    await acme.send_signal(single, new_id(), "go", b"1")
    await finish(store, again, FAILED)
    assert await acme.discard([single]) == {single}
    left = {t for t, rows in (await keeper.dump()).items() if keeper.shown(single) in str(rows)}
    assert left == set(), "nothing stays behind of what is forgotten from behind the wall"
    await finish(store, claimed[late])


async def test_a_key_that_is_taken_by_a_foreign_task_is_free(store, acme):
    theirs = await put_one(store, tenant="other", key="order-7")
    assert await put_one(acme, tenant="acme", key="order-7") != theirs


async def test_in_the_name_of_all_everything_is_seen_and_done(store, walled):
    own, foreign = await _fill(store, "acme"), await _fill(store, "other")
    everybody = walled.as_tenant(None)
    page = await everybody.list_tasks(TaskFilter(), limit=1000)
    assert {task.tenant for task in page.tasks} == {"acme", "other"}
    assert len(await everybody.keys()) == 2
    await everybody.touch_keys(["key-acme", "key-other"])
    await everybody.pause("q-acme")
    await everybody.resume("q-acme")
    await everybody.limit("tenant", "acme", Limit(max_running=99))
    assert set(await everybody.cancel([own["later"], foreign["later"]])) == {
        own["later"],
        foreign["later"],
    }
    token = new_grant()
    assert (await everybody.begin_request("*", "k", bytes(32), token=token)).state == "new"
    assert await everybody.end_request("*", "k", token=token, status=200, body=b"")


async def test_tenants_that_take_turns_on_the_same_connections_do_not_meet(store, acme, other):
    for tenant in ("acme", "other"):
        await put(store, 5, tenant=tenant)

    async def look(tenant: str, store: SqlStore) -> None:
        for _ in range(10):
            tasks = (await store.list_tasks(TaskFilter())).tasks
            assert [task.tenant for task in tasks] == [tenant] * 5

    async with asyncio.timeout(60):
        names = {"acme": acme, "other": other}
        await asyncio.gather(*(look(*name) for name in [*names.items()] * 5))


async def test_a_caller_in_its_own_transaction_is_kept_to_its_tenant(store, acme):
    async with acme.transaction() as conn:
        (id,) = await acme.enqueue([draft(tenant="acme")], conn=conn)
    assert (await store.get(id)).tenant == "acme"
    theirs = draft(tenant="other")
    await store.enqueue([draft(tenant="other")])  # its lane is there
    with pytest.raises(StoreError, match="row-level security"):
        await _enqueue_within(acme, [draft(tenant="acme"), theirs])
    with pytest.raises(UnknownTask):
        await store.get(theirs.id)


async def _enqueue_within(store: SqlStore, drafts: list[Draft]) -> None:
    async with store.transaction() as conn:
        await store.enqueue(drafts, conn=conn)


async def test_a_task_from_a_sql_prompt_is_its_tenants(store, acme, keeper):
    ask = f"select {keeper.schema}.enqueue('job:sql', tenant => $1)"
    async with acme.transaction() as conn:
        id = await conn.fetchval(ask, "acme")
    await store.promote()
    assert (await acme.get(id)).tenant == "acme"
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        async with acme.transaction() as conn:
            await conn.fetchval(ask, "other")


async def test_the_audit_log_cannot_be_changed_from_behind_the_wall(store, acme):
    await acme.note("ann", "look", tenant="acme")
    for change in ("update {} set actor = 'x'", "delete from {}", "truncate {}"):
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            async with acme.transaction() as conn:
                await conn.execute(change.format(f"{acme._driver.schema}.audit"))


async def test_every_table_has_its_place_at_the_wall(keeper, store):
    tables = {
        name
        for (name,) in await keeper.peek(
            f"select tablename::text from pg_tables where schemaname = '{keeper.schema}'"
        )
    }
    ruled = {name for (name,) in await keeper.peek("select name from wall_rules()")}
    assert tables - ruled - {"test_clock"} == set()
    assert ruled <= tables


async def test_the_owner_and_other_roles_are_not_kept_back(store, walled, keeper):
    assert await walled.is_walled()
    assert not await store.is_walled()
    await put_one(store, tenant="acme")
    role = f"worker_{uuid4().hex[:8]}"
    await keeper.peek(f"create role {role}")
    try:
        await keeper.peek(f"grant usage on schema {keeper.schema} to {role}")
        await keeper.peek(f"grant select on task to {role}")
        async with keeper.transaction(keep=False) as conn:
            await conn.execute(f"set local role {role}")
            assert await conn.fetchval(f"select count(*) from {keeper.schema}.task") == 1
    finally:
        await _drop(keeper, role)


async def test_a_role_that_passes_every_wall_is_refused(store, keeper):
    ((owner,),) = await keeper.peek("select current_user::text")
    with pytest.raises(StoreError, match="no wall holds"):
        await store.wall(owner)
    with pytest.raises((StoreError, InvalidInput), match="there is no role"):
        await store.wall("nobody_at_all")


async def test_a_wall_is_built_anew_by_a_migration(keeper, role, walled):
    async with keeper.elsewhere() as place:
        store = place.store()
        await store.migrate()
        await store.wall(role)
        await store.wall(role)
        await place.peek(f'drop policy "wall of {role}" on {place.schema}.outcome')
        await place.peek("select rebuild_walls()")
        ((walls,),) = await place.peek(
            "select count(*) from pg_policies where policyname = "
            f"'wall of {role}' and schemaname = '{place.schema}'"
        )
        ((rules,),) = await place.peek("select count(*) from wall_rules() where sees is not null")
        assert walls == rules
