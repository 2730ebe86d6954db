"""How PostgreSQL runs the hot path: always by the same indexes, whatever the statistics say."""

from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from uuid import UUID

import asyncpg
import pytest
import pytest_asyncio

from holdfast.answers import Step, Taking, TaskFilter
from holdfast.ids import new_id
from holdfast.stores.sql import SqlStore
from holdfast.tasks.lifecycle import Settlement, Verdict
from holdfast.tasks.limits import Limit
from holdfast.tasks.task import Draft, Failure, Lease, TaskStatus
from tests.plans.explained import Explained, Look
from tests.servers import AnyPostgres, fresh_database

pytestmark = pytest.mark.asyncio(loop_scope="module")

TASKS = 3000
FINISHED = """
with task as (
  insert into holdfast.task (id, lane, np, payload)
  select gen_random_uuid(), (select min(id) from holdfast.lane), 0, 'null'
  from generate_series(1, 30000)
  returning id
)
insert into holdfast.outcome (id, finished_at, fence, tries, state, ended_by)
select id, now(), 1, 1, (array['done', 'failed', 'cancelled'])[1 + random() * 2], 'holder' from task
"""
CONSUMED = """
insert into holdfast.signal (signal, id, name, payload, sent_at, consumed)
select gen_random_uuid(), $1, 'a', 'null', now(), true from generate_series(1, 3000)
"""
DELAYED = """
insert into holdfast.later (id, run_at, lane, fence, np, tries, alone, child)
select gen_random_uuid(), now() + interval '1 day', l.id, 0, 0, 0, false, false
from (select min(id) as id from holdfast.lane) l, generate_series(1, 30000)
"""
LEASE = timedelta(minutes=5)
BIG = {"task", "ready", "outcome"}
DONE = Settlement(verdict=Verdict.DONE, result=b"null")
RETRY = Settlement(
    verdict=Verdict.RETRY,
    failure=Failure(type="Again", message="again"),
    delay=timedelta(minutes=1),
)


class Bench:
    """A filled store whose plans can be looked at."""

    def __init__(self, driver: Explained, conn: asyncpg.Connection) -> None:
        self.driver, self.conn = driver, conn
        self.store = SqlStore(driver, share_commits=False)

    async def claim(self, want: int = 200) -> list[Lease]:
        lanes = list((await self.store.lanes()).lanes)
        self.driver.take()
        answer = await self.store.claim(worker=1, lanes=lanes, want=want, lease=LEASE)
        assert len(answer.tasks) == want
        return [task.lease for task in answer.tasks]


@pytest.fixture(scope="module", params=["taken while empty", "up to date", "never taken"])
def statistics(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def url(postgres_current: AnyPostgres, statistics: str) -> Iterator[str]:
    with fresh_database(postgres_current) as url:
        yield url


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def bench(url: str, statistics: str) -> AsyncIterator[Bench]:
    """Three thousand tasks beside many finished, and statistics of one kind or another."""
    conn = await asyncpg.connect(url)
    driver = Explained(url, conn)
    bench = Bench(driver, conn)
    await driver.migrate()
    for (table,) in await conn.fetch(
        "select tablename from pg_tables where schemaname = 'holdfast'"
    ):
        await conn.execute(f"alter table holdfast.{table} set (autovacuum_enabled = off)")
    if statistics == "taken while empty":
        await conn.execute("vacuum analyze")
    await bench.store.limit("type", "gated", Limit(max_running=10_000))
    types = ["free", "gated", "other"]
    await bench.store.enqueue([Draft(id=new_id(), type=types[n % 3]) for n in range(TASKS)])
    for _ in range(3):
        leases = await bench.claim()
        await bench.store.settle([(lease, DONE) for lease in leases])
    await conn.execute(FINISHED)
    if statistics == "up to date":
        await conn.execute("vacuum analyze")
    await driver.start()
    yield bench
    await driver.close()
    await conn.close()


def scans(looks: list[Look]) -> list[Look]:
    """Looks that read a big table whole."""
    return [look for look in looks if look.table in BIG and look.how == "Seq Scan"]


def indexes(looks: list[Look], table: str) -> set[str | None]:
    return {look.index for look in looks if look.table == table and look.how != "Tid Scan"}


async def test_a_claim_peeks_and_takes_by_the_order_of_its_lanes(bench: Bench) -> None:
    await bench.claim()
    looks = bench.driver.take()
    assert scans(looks) == []
    assert indexes(looks, "ready") == {"ready_order"}
    assert indexes(looks, "task") == {"task_pkey"}
    assert sum(look.index == "ready_order" for look in looks) >= 2, "the peek and the take"


async def test_a_settle_finds_leases_and_tasks_by_their_keys(bench: Bench) -> None:
    leases = await bench.claim()
    bench.driver.take()
    await bench.store.settle([(lease, DONE) for lease in leases[:100]])
    done = bench.driver.take()
    await bench.store.settle([(lease, RETRY) for lease in leases[100:]])
    mixed = bench.driver.take()
    for looks in (done, mixed):
        assert scans(looks) == []
        assert indexes(looks, "lease") == {"lease_pkey"}
        assert indexes(looks, "task") <= {"task_pkey"}
        assert [look for look in looks if look.index and not look.condition] == [], "read whole"
    assert indexes(mixed, "task") == {"task_pkey"}


async def test_one_child_that_is_settled_alone_finds_its_parent_by_its_key(bench: Bench) -> None:
    (parent, *_) = await bench.claim()
    children = [Draft(id=new_id(), type="child", parent=parent.task) for _ in range(50)]
    await bench.store.enqueue(children)
    lanes = (await bench.store.lanes()).lanes.items()
    own = [id for id, lane in lanes if lane.type == "child"]
    (child,) = (await bench.store.claim(worker=1, lanes=own, want=1, lease=LEASE)).tasks
    bench.driver.take()
    await bench.store.settle([(child.lease, DONE)], is_awake=lambda parent: True)
    looks = bench.driver.take()
    assert scans(looks) == []
    assert indexes(looks, "lease") == {"lease_pkey"}
    assert indexes(looks, "task") == {"task_pkey"}
    assert [look for look in looks if look.index and not look.condition] == [], "read whole"


async def test_a_refused_settle_looks_by_keys_too(bench: Bench) -> None:
    leases = await bench.claim()
    await bench.store.settle([(lease, DONE) for lease in leases])
    bench.driver.take()
    assert not await bench.store.settle([(lease, DONE) for lease in leases])
    looks = bench.driver.take()
    assert scans(looks) == []
    assert indexes(looks, "outcome") == {"outcome_pkey"}


async def test_a_renewal_finds_its_leases_by_their_keys(bench: Bench) -> None:
    leases = await bench.claim()
    bench.driver.take()
    assert not (await bench.store.renew(leases, LEASE)).lost
    looks = bench.driver.take()
    assert scans(looks) == []
    assert indexes(looks, "lease") == {"lease_pkey"}
    assert indexes(looks, "task") == {"task_pkey"}


async def test_recording_never_reads_a_journal_whole(bench: Bench) -> None:
    one, two = await bench.claim(2)
    bench.driver.take()
    for first in (0, 2, 2):  # what is recorded already may be asked for again
        steps = [
            Step(position=place, kind="step", name="s", value=b"1") for place in (first, first + 1)
        ]
        child = Draft(id=UUID(int=first + 1), type="free", parent=one.task)
        await bench.store.record(one, steps, children=[child])
        await bench.store.record(two, steps)
        await bench.store.record(two, [Step(position=first + 50, kind="step", name="s")])
    looks = [look for look in bench.driver.take() if look.table == "step"]
    assert looks
    assert {look.index for look in looks} == {"step_pkey"}
    assert all("position" in look.condition for look in looks), looks


async def test_a_child_that_is_taken_at_once_reads_by_keys(bench: Bench) -> None:
    (lease,) = await bench.claim(1)
    bench.driver.take()
    for place in (0, 1):
        step = Step(position=place, kind="ask.child", name="free", value=b"1")
        child = Draft(id=new_id(), type="free", parent=lease.task)
        offer = Taking(worker=1, grant=new_id(), lease=LEASE, most=1)
        written = await bench.store.record(lease, [step], children=[child], taking=offer)
        assert written.leased == {child.id}
    looks = bench.driver.take()
    assert not any("holdfast.record(" in look.statement for look in looks)
    assert {look.table for look in looks} == {"lease", "step", "lane"}
    assert {look.how for look in looks} <= {"Index Scan", "Index Only Scan"}
    assert [look for look in looks if not look.condition] == [], "read whole"
    assert all("position" in look.condition for look in looks if look.table == "step"), looks


async def test_signals_that_were_consumed_are_not_read_again(bench: Bench) -> None:
    (lease,) = await bench.claim(1)
    for name in ("a", "b", "b"):
        await bench.store.send_signal(lease.task, new_id(), name, b"1")
    await bench.conn.execute(CONSUMED, lease.task)
    await bench.conn.execute("analyze holdfast.signal")
    bench.driver.take()
    assert len((await bench.store.news(lease.task, [], signals=["a", "b"])).signals) == 3
    (look,) = [look for look in bench.driver.take() if look.table == "signal"]
    assert look.index == "signal_of"
    assert all(f"({column} = " in look.condition for column in ("id", "consumed", "name")), look


@pytest.mark.parametrize("status", [None, *TaskStatus])
async def test_no_list_reads_a_big_table_whole(bench: Bench, status: TaskStatus | None) -> None:
    await bench.claim(20)
    bench.driver.take()
    page = await bench.store.list_tasks(TaskFilter(status=status), limit=50)
    await bench.store.list_tasks(TaskFilter(status=status), limit=50, cursor=page.next)
    assert scans(bench.driver.take()) == []


async def test_one_users_tasks_are_found_by_their_own_index(bench: Bench) -> None:
    users = [f"u{n % 300}" for n in range(1200)]
    await bench.store.enqueue([Draft(id=new_id(), type="free", user_id=user) for user in users])
    bench.driver.take()
    for status in (None, TaskStatus.DONE, TaskStatus.PENDING):
        filter = TaskFilter(user_id="u7", status=status)
        page = await bench.store.list_tasks(filter, limit=3)
        await bench.store.list_tasks(filter, limit=3, cursor=page.next)
    looks = bench.driver.take()
    assert scans(looks) == []
    assert indexes(looks, "task") == {"task_user", "task_pkey"}
    walked = [look for look in looks if look.index == "task_user"]
    assert all("user_id" in look.condition and "lane" in look.condition for look in walked), walked


async def test_a_task_is_got_by_its_key(bench: Bench) -> None:
    (lease,) = await bench.claim(1)
    bench.driver.take()
    await bench.store.get(lease.task)
    await bench.store.attempts(lease.task)
    looks = bench.driver.take()
    assert scans(looks) == []
    assert indexes(looks, "task") == {"task_pkey"}
    assert indexes(looks, "outcome") == {"outcome_pkey"}


async def test_where_a_task_stands_is_found_by_its_key_and_along_its_lane(bench: Bench) -> None:
    (lease,) = await bench.claim(1)
    (waiting,) = (
        await bench.store.list_tasks(TaskFilter(status=TaskStatus.PENDING), limit=1)
    ).tasks
    bench.driver.take()
    for task, place in ((lease.task, "lease"), (waiting.id, "ready")):
        assert (await bench.store.standing(task)).place == place
    looks = bench.driver.take()
    assert scans(looks) == []
    assert indexes(looks, "task") == {"task_pkey"}
    assert indexes(looks, "outcome") == {"outcome_pkey"}
    assert indexes(looks, "ready") == {"ready_order"}


async def test_who_watches_is_found_by_what_is_watched(bench: Bench) -> None:
    """Also where much else waits, and where much has failed since statistics were taken."""
    await bench.conn.execute(DELAYED)
    watchers, others = await bench.claim(3), await bench.claim(30)
    watched = [lease.task for lease in others]
    waits = Settlement(verdict=Verdict.WAITING, watched=tuple(watched), wakes=len(watched))
    many = [new_id() for _ in range(500)]
    # As from the sixth call on.
    await bench.conn.execute("set plan_cache_mode = force_generic_plan")
    bench.driver.take()
    for one, other in zip(watchers, others[:3], strict=True):
        await bench.store.settle([(one, waits)])
        await bench.store.in_vain(one.task, watched)
        await bench.store.settle([(other, DONE)])
        assert one.task in await bench.store.wake_watchers([other.task, *many])
        await bench.store.sweep_wakes()
    await bench.conn.execute("reset plan_cache_mode")
    looks = bench.driver.take()
    assert scans(looks) == []
    assert indexes(looks, "outcome") == {"outcome_pkey"}
    assert indexes(looks, "task") == {"task_pkey"}
    by_id = {"later_pkey", "later_waiting"}
    assert indexes(looks, "later") - by_id == {"later_watcher", "later_watching"}
    whole = {look.index for look in looks if look.table in ("later", "wake") and not look.condition}
    assert whole <= {"later_watcher", "wake_of"}, "the sweep's"
