"""Unknown commits: the connection is cut before, during and after the commit of every verb; asking
again has exactly one effect."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from holdfast.answers import Step, Taking
from holdfast.errors import StoreUnreachable
from holdfast.ids import new_grant, new_id
from holdfast.stores.postgres.driver import PostgresDriver
from holdfast.stores.sql import SqlStore
from holdfast.tasks.edit import Edit
from holdfast.tasks.lifecycle import Settlement, Verdict
from holdfast.tasks.task import Draft, Failure, Lease
from tests.servers import AnyPostgres, fresh_database
from tests.storm.proxy import Cut, Proxy

MINUTE = timedelta(minutes=1)
BOOM = Failure(type="Boom", message="boom")
DONE = Settlement(verdict=Verdict.DONE, result=b"1")
FAILED = Settlement(verdict=Verdict.FAILED, failure=BOOM)
ANEW = Settlement(
    verdict=Verdict.SNOOZED, delay=timedelta(0), refund=True, payload=b"[2]"
)  # of a durable function
RETRY = Settlement(verdict=Verdict.RETRY, failure=BOOM, delay=MINUTE)
TABLES = (
    "task",
    "ready",
    "later",
    "lease",
    "outcome",
    "attempt",
    "refusal",
    "wake",
    "step",
    "signal",
)
WAITING_FOR_A_LOCK = """
select count(*) from pg_stat_activity
where datname = current_database() and wait_event_type = 'Lock'
"""


@dataclass
class Scene:
    """A task, its lease where it has one, and a parent that waits for it where it is a child."""

    direct: SqlStore
    task: UUID
    lease: Lease | None = None
    draft: Draft | None = None
    child: Draft | None = None
    grant: UUID | None = None

    @property
    def held(self) -> Lease:
        assert self.lease is not None
        return self.lease


@dataclass(frozen=True)
class Case:
    """What is asked, twice; which of its statements is cut; how many rows it leaves where."""

    cut_at: str
    start: str  # how the task stands: new, ready, held, ended
    ask: Callable[[SqlStore, Scene], Awaitable[Any]]
    hears: Callable[[Any, Scene], bool]
    leaves: dict[str, int]
    writes: str  # a table: whoever locks it stops the statement midway


def _record(store: SqlStore, scene: Scene) -> Awaitable[Any]:
    steps = [Step(position=1, name="one", value=b"1"), Step(position=2, name="two", value=b"2")]
    return store.record(scene.held, steps)


def _record_one(store: SqlStore, scene: Scene) -> Awaitable[Any]:
    return store.record(scene.held, [Step(position=1, name="one", value=b"1")])


def _no_children(answer: Any, scene: Scene) -> bool:
    return answer.children == [] and not answer.leased


def _record_a_child(store: SqlStore, scene: Scene, taking: Taking | None = None) -> Awaitable[Any]:
    if scene.child is None:
        scene.child = Draft(id=new_id(), type="child", parent=scene.held.task)
    steps = [Step(position=1, name="one")]
    return store.record(scene.held, steps, children=[scene.child], taking=taking)


def _record_and_take(store: SqlStore, scene: Scene) -> Awaitable[Any]:
    assert scene.grant is not None
    taking = Taking(worker=1, grant=scene.grant, lease=MINUTE, most=1)
    return _record_a_child(store, scene, taking)


async def _claim(store: SqlStore, scene: Scene) -> list[Any]:
    """A claim is asked for by its grant at first; where that brings nothing, it is made."""
    assert scene.grant is not None
    found = await store.claimed(worker=1, grant=scene.grant)
    if found:
        return found
    lanes = list((await scene.direct.lanes()).lanes)
    return (await store.claim(worker=1, lanes=lanes, want=1, lease=MINUTE, grant=scene.grant)).tasks


def _settles(settlement: Settlement) -> Callable[[SqlStore, Scene], Awaitable[Any]]:
    return lambda store, scene: store.settle([(scene.held, settlement)])


def _nothing(answer: Any, _: Scene) -> bool:
    return not answer


CASES = {
    "enqueue": Case(
        "holdfast.accept(",
        "new",
        lambda store, s: store.enqueue([s.draft] if s.draft else []),
        lambda answer, s: answer == [s.task],
        {"task": 1, "ready": 1},
        "task",
    ),
    "claim": Case(
        "holdfast.claim(",
        "ready",
        _claim,
        lambda answer, s: [task.lease.task for task in answer] == [s.task],
        {"task": 1, "lease": 1},
        "lease",
    ),
    "renew": Case(
        "holdfast.renew(",
        "held",
        lambda store, s: store.renew([s.held], MINUTE),
        lambda answer, _: not answer.lost,
        {"task": 1, "lease": 1},
        "lease",
    ),
    "settle done": Case(
        "holdfast.settle_one(", "held", _settles(DONE), _nothing, {"task": 1, "outcome": 1}, "lease"
    ),
    "settle failed": Case(
        "holdfast.settle(", "held", _settles(FAILED), _nothing, {"task": 1, "outcome": 1}, "lease"
    ),
    "settle retry": Case(
        "holdfast.settle(",
        "held",
        _settles(RETRY),
        _nothing,
        {"task": 1, "later": 1, "attempt": 1},
        "lease",
    ),
    "record a step": Case(
        "holdfast.record_step(",
        "held",
        _record_one,
        _no_children,
        {"task": 1, "lease": 1, "step": 1},
        "step",
    ),
    "record steps": Case(
        "holdfast.record_steps(",
        "held",
        _record,
        _no_children,
        {"task": 1, "lease": 1, "step": 2},
        "step",
    ),
    "record a child": Case(
        "holdfast.record(",
        "held",
        _record_a_child,
        lambda answer, s: answer.children == [s.child and s.child.id],
        {"task": 2, "ready": 1, "lease": 1, "step": 1},
        "step",
    ),
    "record a child and take it": Case(
        "holdfast.record_child(",
        "held",
        _record_and_take,
        lambda answer, s: answer.leased == {s.child and s.child.id},
        {"task": 2, "lease": 2, "step": 1},
        "step",
    ),
    "begin anew": Case(
        "holdfast.restart(",
        "held",
        _settles(ANEW),
        _nothing,
        {"task": 1, "later": 1, "attempt": 1},
        "task",
    ),
    "progress": Case(
        "holdfast.progress(",
        "held",
        lambda store, s: store.progress(s.held, 50.0),
        _nothing,
        {"task": 1, "lease": 1},
        "progress",
    ),
    "cancel, asked for": Case(
        "holdfast.request_cancel(",
        "ready",
        lambda store, s: store.cancel([s.task]),
        lambda answer, s: answer == {s.task: "cancelled"},
        {"task": 1, "outcome": 1, "wake": 1},
        "task",
    ),
    "cancel, withdrawn": Case(
        "holdfast.withdraw(",
        "ready",
        lambda store, s: store.cancel([s.task]),
        lambda answer, s: answer == {s.task: "cancelled"},
        {"task": 1, "outcome": 1, "wake": 1},
        "outcome",
    ),
    "signal": Case(
        "holdfast.send_signal(",
        "held",
        lambda store, s: store.send_signal(s.task, s.held.grant, "hello", b"1"),
        lambda answer, _: answer is True,
        {"task": 1, "lease": 1, "signal": 1, "wake": 1},
        "signal",
    ),
    "replay": Case(
        "holdfast.retry(",
        "ended",
        lambda store, s: store.retry([s.task]),
        lambda answer, s: answer <= {s.task},
        {"task": 1, "ready": 1, "attempt": 1},
        "outcome",
    ),
    "edit": Case(
        "holdfast.edit(",
        "ready",
        lambda store, s: store.edit(s.task, Edit(delay=MINUTE, priority=3)),
        lambda answer, _: answer == "edited",
        {"task": 1, "later": 1},
        "later",
    ),
}


@pytest.fixture(scope="module")
def url(postgres_current: AnyPostgres) -> Iterator[str]:
    with fresh_database(postgres_current) as url:
        yield url


@pytest.fixture
async def proxy(url: str) -> AsyncIterator[Proxy]:
    async with Proxy(url) as proxy:
        yield proxy


@pytest.fixture
async def direct(url: str) -> AsyncIterator[SqlStore]:
    store = SqlStore(PostgresDriver(url))
    await store.migrate()
    conn = await asyncpg.connect(url)
    tables = ", ".join(f"holdfast.{table}" for table in (*TABLES, "task_key", "progress"))
    await conn.execute(f"truncate {tables}")
    await conn.close()
    yield store
    await store.close()


async def set_the_scene(direct: SqlStore, case: Case) -> Scene:
    draft = Draft(id=new_id(), type="work", key="K")
    scene = Scene(direct, draft.id, draft=draft, grant=new_grant())
    if case.start != "new":
        await direct.enqueue([draft])
    if case.start in ("held", "ended"):
        lanes = list((await direct.lanes()).lanes)
        (task,) = (await direct.claim(worker=1, lanes=lanes, want=1, lease=MINUTE)).tasks
        scene.lease = task.lease
    if case.start == "ended":
        await direct.settle([(scene.held, FAILED)])
    return scene


async def check(url: str, case: Case, answer: Any, scene: Scene) -> None:
    assert case.hears(answer, scene), answer
    conn = await asyncpg.connect(url)
    counts = {
        table: await conn.fetchval(f"select count(*) from holdfast.{table}") for table in TABLES
    }
    await conn.close()
    assert {table: count for table, count in counts.items() if count} == case.leaves


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("cut", ["before", "after"])
async def test_asking_again_after_a_cut_has_one_effect(
    proxy: Proxy, direct: SqlStore, url: str, name: str, cut: Cut
) -> None:
    case = CASES[name]
    scene = await set_the_scene(direct, case)
    store = SqlStore(PostgresDriver(proxy.url))
    proxy.arm(case.cut_at, cut)
    with pytest.raises(StoreUnreachable):
        await case.ask(store, scene)
    assert proxy.fired.is_set()
    answer = await case.ask(store, scene)
    await store.close()
    await check(url, case, answer, scene)


@pytest.mark.parametrize("name", [name for name in CASES if name != "claim"])
async def test_asking_again_while_the_first_is_still_under_way_has_one_effect(
    proxy: Proxy, direct: SqlStore, url: str, name: str
) -> None:
    case = CASES[name]
    scene = await set_the_scene(direct, case)
    store = SqlStore(PostgresDriver(proxy.url))
    conn, watch = [await asyncpg.connect(url) for _ in range(2)]
    transaction = conn.transaction()
    await transaction.start()
    await conn.execute(f"lock table holdfast.{case.writes} in share mode")
    proxy.arm(case.cut_at, "during")
    with pytest.raises(StoreUnreachable):
        await case.ask(store, scene)
    await until_waiting(watch, 1)
    again = asyncio.ensure_future(case.ask(store, scene))
    await until_waiting(watch, 2)
    await transaction.rollback()
    answer = await again
    await store.close()
    await conn.close()
    await watch.close()
    await check(url, case, answer, scene)


async def until_waiting(watch: asyncpg.Connection, count: int) -> None:
    for _ in range(12_000):
        if await watch.fetchval(WAITING_FOR_A_LOCK) >= count:
            return
        await asyncio.sleep(0.005)
    raise TimeoutError(f"{count} statements should wait for the lock by now")
