"""Children that are handed over directly, while their parent is stopped: the answer of the write
says which of them are held here, and whoever misses it looks for them. None of them waits for its
lease to lapse, and none pays a try for it."""

import asyncio
from typing import Any
from uuid import UUID

import pytest

from holdfast import Holdfast
from holdfast.errors import HoldfastError, StoreUnreachable
from holdfast.flow import pump
from holdfast.flow.arrivals import Arrivals
from holdfast.work import adoption
from holdfast.work.looking import Looking
from tests.work.bench import Bench, until

STAYS = 99


class Slow:
    """A store that writes the children which it is told to wait for at once, and answers later."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.hands_over = self.waits = False
        self.written, self.answer = asyncio.Event(), asyncio.Event()
        self.error: Exception | None = None
        self.children: list[UUID] = []
        self.looks = 0  # for what a grant has brought

    def __getattr__(self, verb: str) -> Any:
        return getattr(self._store, verb)

    async def claimed(self, **asked: Any) -> Any:
        self.looks += 1
        return await self._store.claimed(**asked)

    async def record(self, *args: Any, children: Any = (), **rest: Any) -> Any:
        answer = await self._store.record(*args, children=children, **rest)
        if not children:
            return answer
        self.hands_over = bool(answer.leased)
        if self.hands_over and self.waits and not self.written.is_set():
            self.children = answer.children
            self.written.set()
            await self.answer.wait()
            if self.error:
                raise self.error
        return answer


class Family:
    """A parent of three, and which of them began."""

    def __init__(self, app: Holdfast, slow: Slow) -> None:
        self.slow, self.begun = slow, list[int]()

        @app.durable(name="child", max_tries=1)
        async def child(i: int) -> int:
            if i >= 0:
                self.begun.append(i)
            if i == STAYS:
                await asyncio.Event().wait()
            return i

        @app.durable(name="parent")
        async def parent() -> list[int]:
            await self.until_idle()
            return await asyncio.gather(*(child(i) for i in range(3)))

        self.child, self.parent = child, parent

    async def until_idle(self, child: Any = None) -> None:
        """Children go to their queue until their worker has nothing else to do."""
        while not await Holdfast.step("is it idle", lambda: self.slow.hands_over):
            await (child() if child else self.child(-1))
        self.slow.waits = True


@pytest.fixture
async def family(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Family:
    monkeypatch.setattr(adoption, "_ANSWER", 0.5)
    # Workers find by themselves what there is: a hint that comes late, in the moment of the write,
    # would send the children to their queue.
    monkeypatch.setattr(Looking, "hint", lambda looking: None)
    client = await bench.app.home.client()
    slow = Slow(client.store)
    client.store = slow
    return Family(bench.app, slow)


async def ends(bench: Bench, family: Family) -> list[list[str | None]]:
    return [await bench.ends(child) for child in family.slow.children]


def answer_soon(family: Family) -> None:
    asyncio.get_running_loop().call_later(0.1, family.slow.answer.set)


@pytest.mark.parametrize("answers", [True, False], ids=["late", "never"])
async def test_a_drain_in_the_moment_of_the_write_hands_the_children_back(
    bench: Bench, family: Family, answers: bool
) -> None:
    task = await bench.app.dispatch(family.parent)
    working, lifecycle = await bench.start(drain_timeout=0.0)
    await family.slow.written.wait()
    lifecycle.request_drain()
    if answers:
        answer_soon(family)
    await working
    assert (family.begun, bench.leases()) == ([], 0)
    assert (family.slow.looks == 0) == answers, "who waits for the answer need not look"
    assert await ends(bench, family) == [["handed_back"]] * 3
    async with bench.worker():
        assert await task.result(timeout=60) == [0, 1, 2]


@pytest.mark.parametrize("answers", [True, False], ids=["late", "unheard"])
async def test_a_cancel_in_the_moment_of_the_write_ends_the_children(
    bench: Bench, family: Family, answers: bool
) -> None:
    task = await bench.app.dispatch(family.parent)
    async with bench.worker():
        await family.slow.written.wait()
        await task.cancel()
        if not answers:
            family.slow.error = StoreUnreachable("gone")
        answer_soon(family)
        await until(lambda: bench.leases() == 0)
    assert all(len(one) == 1 and "lost" not in one for one in await ends(bench, family))


@pytest.mark.parametrize("answers", [True, False], ids=["late", "never"])
async def test_a_lease_that_is_lost_in_the_moment_of_the_write_takes_no_child_along(
    bench: Bench, family: Family, answers: bool
) -> None:
    task = await bench.app.dispatch(family.parent)
    async with bench.worker():
        await family.slow.written.wait()
        await (await bench.store()).revoke(task.id, 1)
        if answers:
            answer_soon(family)
        assert await task.result(timeout=60) == [0, 1, 2]
    assert sorted(family.begun) == [0, 1, 2]
    assert await ends(bench, family) == [["done"]] * 3


async def test_a_store_that_goes_away_in_the_moment_of_the_write_takes_no_child_along(
    bench: Bench, family: Family
) -> None:
    """It was written, nobody heard so, and as the same is asked again the lease is lost."""
    task = await bench.app.dispatch(family.parent)
    async with bench.worker(heartbeat_interval=60.0):
        await family.slow.written.wait()
        await (await bench.store()).revoke(task.id, 1)
        family.slow.error = StoreUnreachable("gone")
        family.slow.answer.set()
        assert await task.result(timeout=60) == [0, 1, 2]
    assert sorted(family.begun) == [0, 1, 2]
    assert await ends(bench, family) == [["done"]] * 3


async def test_a_function_that_leaves_a_child_behind_leaves_none_astray(
    bench: Bench, family: Family
) -> None:
    @bench.app.durable(name="leaves")
    async def leaves() -> str:
        await family.until_idle()
        left = asyncio.ensure_future(family.child(STAYS))
        await family.slow.written.wait()
        answer_soon(family)
        return "left" if not left.done() else "done"

    async with bench.worker():
        task = await bench.app.dispatch(leaves)
        assert await task.result(timeout=60) == "left"
        await until(lambda: bench.leases() == 0)
    assert await ends(bench, family) == [["cancelled"]]


async def test_a_step_that_is_given_up_while_a_child_is_written_does_not_begin(
    bench: Bench, family: Family
) -> None:
    done = list[str]()

    async def pay() -> None:
        done.append("paid")

    async def call() -> None:
        await family.child(-1)

    @bench.app.durable(name="both")
    async def both() -> None:
        await family.until_idle()
        paying = asyncio.create_task(Holdfast.step("pay", pay))
        calling = asyncio.create_task(call())
        await family.slow.written.wait()
        paying.cancel()
        family.slow.answer.set()
        await calling
        await asyncio.gather(paying, return_exceptions=True)

    async with bench.worker():
        await (await bench.app.dispatch(both)).result(timeout=60)
    assert family.slow.hands_over, "the child started here"
    assert done == []


@pytest.mark.parametrize("slots", [1, 5])
async def test_a_parent_whose_child_ends_at_once_does_not_get_ready_to_wait(
    bench: Bench, family: Family, monkeypatch: pytest.MonkeyPatch, slots: int
) -> None:
    waited: list[str] = []
    wait = Arrivals.wait

    async def waits(*args: Any, **options: Any) -> Any:
        waited.append("waits")
        return await wait(*args, **options)

    @bench.app.durable(name="lingers")
    async def lingers() -> list[str]:
        await family.until_idle()
        family.slow.waits = False
        monkeypatch.setattr(pump, "_MOMENT", 60)
        monkeypatch.setattr(Arrivals, "wait", waits)
        await family.child(-1)
        return waited

    async with bench.worker(max_concurrency=slots):
        assert await (await bench.app.dispatch(lingers)).result(timeout=30) == []


async def test_a_parent_that_goes_on_beside_a_child_has_a_slot(
    bench: Bench, family: Family
) -> None:
    """One child is refused, and told of at once; another one has taken the slot of its parent."""
    running: set[str] = set()
    most: list[int] = []

    @bench.app.durable(name="long")
    async def long() -> None:
        running.add("child")
        most.append(len(running))
        await asyncio.sleep(0.3)
        running.discard("child")

    async def beside() -> None:
        running.add("step")
        most.append(len(running))
        await asyncio.sleep(0.1)
        running.discard("step")

    @bench.app.durable(name="goes_on")
    async def goes_on() -> None:
        await family.until_idle(long)
        family.slow.waits = False
        other = asyncio.create_task(long())
        with pytest.raises(HoldfastError):
            await family.child.options(idempotency_key="taken")(1)
        await Holdfast.step("beside", beside)
        await other

    await bench.app.dispatch(family.child.options(idempotency_key="taken"), -1)
    async with bench.worker(max_concurrency=1):
        await (await bench.app.dispatch(goes_on)).result(timeout=60)
    assert max(most) == 1


async def test_a_time_that_is_over_comes_before_a_child_that_ends_at_once(
    bench: Bench, family: Family
) -> None:
    @bench.app.durable(name="hurries")
    async def hurries() -> str:
        await family.until_idle()
        family.slow.waits = False
        try:
            async with asyncio.timeout(0):
                await family.child(-1)
        except TimeoutError:
            return "over"
        return "came"

    async with bench.worker():
        assert await (await bench.app.dispatch(hurries)).result(timeout=60) == "over"
