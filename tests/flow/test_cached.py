"""`cached`: the same call gives the recorded result, and runs again only when that is too old."""

import asyncio
from collections import Counter
from datetime import timedelta
from typing import Any

import pytest

from holdfast import Holdfast, RetryPolicy, TaskCancelled, TaskFailed
from holdfast.errors import InvalidInput
from holdfast.flow.arrivals import Arrivals
from holdfast.testing import AppUnderTest
from tests.flow.acts import ONCE, journal, number_of, waits
from tests.storm.ledger import peek
from tests.work.bench import Bench, until


async def test_the_same_call_runs_once_also_when_many_ask_at_once(bench: Bench) -> None:
    ran: Counter[int] = Counter()

    @bench.app.durable(name="rate", cached=True)
    async def rate(day: int, *, places: int = 2) -> int:
        ran[day] += 1
        return 10 * day

    @bench.app.durable(name="parent")
    async def parent() -> list[int]:
        both = await asyncio.gather(rate(1, places=2), rate(2))
        return [*both, await rate(places=2, day=1), *await rate.map([2, 3])]

    async with bench.worker():
        asked = [bench.app.dispatch(rate, 1, places=2) for _ in range(10)]
        tasks = await asyncio.gather(*asked)
        assert {await task.result(timeout=60) for task in tasks} == {10}
        again = await bench.app.dispatch(rate, places=2, day=1)
        assert again.id == tasks[0].id
        above = await bench.app.dispatch(parent)
        assert await above.result(timeout=60) == [10, 20, 10, 20, 30]
    assert ran == {1: 1, 2: 1, 3: 1}


async def test_versions_and_tenants_have_results_of_their_own(bench: Bench) -> None:
    @bench.app.durable(name="rate", cached="1h")
    async def old() -> str:
        return "old"

    @bench.app.durable(name="rate", version="2", cached=timedelta(hours=1))
    async def new() -> str:
        return "new"

    async with bench.worker():
        calls: list[Any] = [old, new, old.options(tenant="acme"), new, old]
        tasks = [await bench.app.dispatch(call) for call in calls]
        found = [await task.result(timeout=60) for task in tasks]
    assert found == ["old", "new", "old", "new", "old"]
    assert number_of(bench, "rate") == 3


async def test_a_failure_is_no_result(bench: Bench) -> None:
    ran = []

    @bench.app.durable(name="rate", cached=True, retry_policy=RetryPolicy(max_attempts=1))
    async def rate() -> int:
        ran.append(1)
        if len(ran) == 1:
            raise ValueError("closed today")
        return len(ran)

    async with bench.worker():
        with pytest.raises(TaskFailed):
            await (await bench.app.dispatch(rate)).result(timeout=60)
        for _ in range(2):
            assert await (await bench.app.dispatch(rate)).result(timeout=60) == 2


async def test_a_result_counts_for_its_lifetime(holdfast: AppUnderTest) -> None:
    ran = []

    @holdfast.durable(name="rate", cached="1h")
    async def rate() -> int:
        ran.append(1)
        return len(ran)

    async def ask() -> int:
        task = await holdfast.dispatch(rate)
        await holdfast.drain()
        return await task.result(timeout=60)

    assert [await ask(), await ask()] == [1, 1]
    await holdfast.advance("59m")
    assert await ask() == 1
    await holdfast.advance("2m")
    assert [await ask(), await ask()] == [2, 2]


async def test_a_key_of_ones_own_comes_before_the_cache(bench: Bench) -> None:
    @bench.app.durable(name="rate", cached=True)
    async def rate() -> int:
        return 1

    async with bench.worker():
        first = await bench.app.dispatch(rate)
        keyed = await bench.app.dispatch(rate.options(idempotency_key="mine"))
        assert first.id != keyed.id


@pytest.mark.parametrize("own", [{"idempotent": True}, {"idempotency_key_func": str}], ids=str)
async def test_what_is_cached_and_idempotent_runs_once_however_it_ends(
    bench: Bench, own: dict[str, Any]
) -> None:
    ran: Counter[int] = Counter()

    @bench.app.durable(name="rate", cached=True, retry_policy=RetryPolicy(max_attempts=1), **own)
    async def rate(day: int) -> int:
        ran[day] += 1
        if day == 7:
            raise ValueError("closed today")
        return 10 * day

    @bench.app.durable(name="parent")
    async def parent() -> list[int]:
        return [await rate(1), *await rate.map([1, 2])]

    async with bench.worker():
        for _ in range(2):
            with pytest.raises(TaskFailed, match="closed today"):
                await (await bench.app.dispatch(rate, 7)).result(timeout=60)
            task = await bench.app.dispatch(parent)
            assert await task.result(timeout=60) == [10, 10, 20]
    assert ran == {7: 1, 1: 1, 2: 1}


@pytest.mark.parametrize(
    "wrong", [{"cached": 0}, {"cached": "soon"}, {"cached": "1h", "idempotent": True}], ids=str
)
def test_what_cannot_be_kept_is_refused(wrong: dict[str, Any]) -> None:
    app = Holdfast("sqlite://:memory:")
    with pytest.raises(InvalidInput, match="cached"):

        @app.durable(name="rate", **wrong)
        async def rate() -> None: ...


async def test_who_waits_for_a_result_that_another_gave_up_gets_one_of_its_own(
    bench: Bench,
) -> None:
    """The child was the other's, and is cancelled with it."""
    ran: list[int] = []
    go = asyncio.Event()

    @bench.app.durable(name="rate", cached=True)
    async def rate() -> int:
        ran.append(1)
        await go.wait()
        return 7

    @bench.app.durable(name="parent")
    async def parent(i: int) -> int:
        return max(await asyncio.gather(*(rate() for _ in range(i))))

    async with bench.worker():
        first = await bench.app.dispatch(parent, 1)
        await until(lambda: ran)
        second = await bench.app.dispatch(parent, 2)

        async def asked() -> bool:
            return "holder" in await journal(bench, second)

        await until(asked)
        await bench.app.cancel(first)
        await until(lambda: len(ran) == 2)
        go.set()
        assert await second.result(timeout=30) == 7
        with pytest.raises(TaskCancelled):
            await first.result(timeout=30)


async def test_a_key_made_of_some_arguments_is_one_run_whatever_the_others_are(
    bench: Bench,
) -> None:
    """Dispatched or called, at once or one after the other, by its function or given."""
    ran: list[int] = []

    @bench.app.durable(name="charge", idempotency_key_func=lambda order, at: f"order-{order}")
    async def charge(order: int, at: float) -> float:
        ran.append(order)
        return at

    @bench.app.durable(name="parent")
    async def parent() -> list[float]:
        return [*await asyncio.gather(charge(7, 3.0), charge(7, 4.0)), await charge(7, 5.0)]

    first = await bench.app.dispatch(charge, 7, 1.0)
    second = await bench.app.dispatch(charge, 7, at=2.0)
    assert first.id == second.id
    async with bench.worker():
        assert await (await bench.app.dispatch(parent)).result(timeout=60) == [1.0, 1.0, 1.0]
    assert ran == [7]
    for at in (1.0, 2.0):
        given = charge.options(idempotency_key="order-7")
        assert (await bench.app.dispatch(given, 7, at)).id == first.id


@pytest.mark.parametrize("lingers", [True, False])
@pytest.mark.parametrize("how", ["gather", "map", "exceptions", "at_most", "asyncio"])
async def test_a_fan_out_may_ask_for_one_result_many_times(
    bench: Bench, how: str, lingers: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waited for ever for all but one of them."""
    if not lingers:
        monkeypatch.setattr("holdfast.flow.arrivals._LINGER", 0.0)
        monkeypatch.setattr("holdfast.flow.arrivals._STRANGER", 3600.0)  # none is one
    ran: Counter[int] = Counter()

    @bench.app.durable(name="rate", cached=True)
    async def rate(day: int) -> int:
        ran[day] += 1
        return 10 * day

    @bench.app.durable(name="parent")
    async def parent() -> list[int]:
        days = [4, 4, 5, 4]
        match how:
            case "gather":
                return await Holdfast.gather(*map(rate, days))
            case "asyncio":
                return await asyncio.gather(*map(rate, days))
            case "at_most":
                return await rate.map(days, at_most=2)
            case _:
                return await rate.map(days, return_exceptions=how == "exceptions")

    async with bench.worker():
        task = await bench.app.dispatch(parent)
        assert await task.result(timeout=30) == [40, 40, 50, 40]
    assert ran == {4: 1, 5: 1}


async def test_a_fan_out_over_one_result_that_fails_fails(bench: Bench) -> None:
    @bench.app.durable(name="rate", idempotent=True, retry_policy=ONCE)
    async def rate(day: int) -> int:
        raise ValueError("closed today")

    @bench.app.durable(name="parent", retry_policy=ONCE)
    async def parent(patient: bool) -> int:
        return len(await rate.map([4, 4], return_exceptions=patient))

    async with bench.worker():
        assert await (await bench.app.dispatch(parent, True)).result(timeout=30) == 2
        with pytest.raises(TaskFailed, match="closed today"):
            await (await bench.app.dispatch(parent, False)).result(timeout=30)
    assert number_of(bench, "rate") == 1


async def test_results_for_many_who_ask_are_recorded_in_parts(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where an entry ends between two who wait for the same one."""
    monkeypatch.setattr("holdfast.flow.arrivals._LARGEST_BATCH", 2500)

    @bench.app.durable(name="page", cached=True)
    async def page(number: int) -> str:
        return str(number) * 1000

    @bench.app.durable(name="parent")
    async def parent() -> int:
        return sum(map(len, await page.map([1, 1, 2, 2, 2, 3])))

    async with bench.worker():
        assert await (await bench.app.dispatch(parent)).result(timeout=30) == 6000


async def test_a_put_down_join_is_woken_by_as_many_ends_as_it_has_children(
    bench: Bench, no_linger: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.flow.arrivals._STRANGER", 3600.0)  # none is one
    gates = {day: asyncio.Event() for day in (1, 2)}

    @bench.app.durable(name="rate", cached=True)
    async def rate(day: int) -> int:
        await gates[day].wait()
        return day

    @bench.app.durable(name="parent")
    async def parent() -> list[int]:
        return await rate.map([1, 1, 2, 1])

    async with bench.worker():
        task = await bench.app.dispatch(parent)
        await waits(bench, task)
        assert [int(row[0]) for row in peek(bench.place, "select wakes from {s}later")] == [2]
        assert (await bench.app.state_of(task)).run_at is None  # no timer: its own children wake it
        for gate in gates.values():
            gate.set()
        assert await task.result(timeout=30) == [1, 1, 2, 1]


async def test_an_end_stays_for_all_who_wait_for_it(
    bench: Bench, no_linger: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was forgotten with the first who heard of it; if the next look was not answered, nothing
    ever woke the join that had to have it too."""
    gate, answered, missed = asyncio.Event(), asyncio.Event(), list[int]()
    look = Arrivals._look

    async def looks(self: Any) -> None:
        if not (answered.is_set() and not missed and len(self._open) == 2):
            return await look(self)
        missed.append(1)  # as where the store cannot be reached
        self._is_told, self._next_look = False, self._loop.time() + 0.1
        return None

    monkeypatch.setattr(Arrivals, "_look", looks)

    @bench.app.durable(name="rate", cached=True)
    async def rate(day: int) -> int:
        if day == 4:
            await gate.wait()
        return 10 * day

    async def alone() -> int:
        found = int(await rate(1))
        answered.set()
        return found

    @bench.app.durable(name="parent")
    async def parent() -> list[int]:
        async with asyncio.TaskGroup() as group:
            joined = group.create_task(Holdfast.map(rate, [1, 4]))
            one = group.create_task(alone())
        return [one.result(), *joined.result()]

    async with bench.worker():
        task = await bench.app.dispatch(parent)
        await until(lambda: missed)
        await waits(bench, task)
        gate.set()
        assert await task.result(timeout=30) == [10, 10, 40]
