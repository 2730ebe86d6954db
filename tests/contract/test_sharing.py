"""Callers that share a commit: each hears what concerns it, and soon."""

import asyncio
import threading

import msgspec
import pytest

from holdfast.errors import InvalidInput, KeyConflict, StoreError, StoreUnreachable
from holdfast.stores import sharing
from holdfast.stores.sql import SqlStore
from tests.contract.acts import claim, draft, ids_of, put_one


class Counted:
    """A driver that counts the calls that bring tasks in."""

    def __init__(self, driver) -> None:
        self._driver, self.accepts = driver, 0

    async def call(self, verb, /, **parameters):
        self.accepts += verb == "accept"
        await asyncio.sleep(0)  # others come meanwhile
        return await self._driver.call(verb, **parameters)

    def __getattr__(self, name):
        return getattr(self._driver, name)


class Down(Counted):
    """No database answers."""

    async def call(self, verb, /, **parameters):
        if verb == "accept":
            self.accepts += 1
            await asyncio.sleep(0)
            raise StoreUnreachable("nobody is there")
        return await self._driver.call(verb, **parameters)


def _with_id(id, **fields):
    return msgspec.structs.replace(draft(**fields), id=id)


async def _together(store, calls):
    return await asyncio.gather(*(store.enqueue(c) for c in calls), return_exceptions=True)


async def test_a_store_that_is_down_says_so_to_all_at_once(store, keeper):
    down = Down(keeper.driver)
    heard = await _together(SqlStore(down), [[draft()] for _ in range(50)])
    assert {type(error) for error in heard} == {StoreUnreachable}
    assert len(set(map(id, heard))) == 50
    assert down.accepts == 2, "the first alone, all others together"


async def test_what_goes_together_is_bounded_in_bytes(store, keeper, monkeypatch):
    monkeypatch.setattr(sharing, "_MOST_BYTES", 100)
    counted = Counted(keeper.driver)
    sizes = [1, 40, 40, 40, 150, 1]
    calls = [[draft(payload=b"%d" % 10 ** (size - 1))] for size in sizes]
    assert await _together(SqlStore(counted), calls) == [[one.id] for (one,) in calls]
    assert counted.accepts == 5, "the first alone; two; one; one that is too large; one"


async def test_conflicts_go_and_all_others_share_the_next_commit(store, keeper):
    for n in (7, 30, 31):
        await put_one(store, key=f"order-{n}")
    counted = Counted(keeper.driver)
    calls = [[draft(key=f"order-{n}", payload=b"[2]"), draft()] for n in range(60)]
    heard = await _together(SqlStore(counted), calls)
    refused = {n: error.key for n, error in enumerate(heard) if isinstance(error, KeyConflict)}
    assert refused == {7: "order-7", 30: "order-30", 31: "order-31"}
    accepted = [[d.id for d in call] for n, call in enumerate(calls) if n not in refused]
    assert [ids for n, ids in enumerate(heard) if n not in refused] == accepted
    assert counted.accepts == 3, "the first alone, the others, and again without conflicts"


async def test_two_callers_in_conflict_with_each_other_are_one_accepted_and_one_refused(store):
    calls = [[draft(key="order-7", payload=b"[1]")], [draft(key="order-7", payload=b"[2]")]]
    first, second = await _together(store, calls)
    assert first == [calls[0][0].id]
    assert isinstance(second, KeyConflict)
    assert second.existing == first[0]


async def test_a_key_lost_to_somebody_who_is_refused_is_not_lost(store):
    await put_one(store, key="taken")
    both = [draft(key="order-7", payload=b"[1]"), draft(key="taken", payload=b"[2]")]
    other = draft(key="order-7", payload=b"[2]")
    refused, accepted = await _together(store, [both, [other]])
    assert isinstance(refused, KeyConflict)
    assert refused.key == "taken"
    assert accepted == [other.id]


async def test_a_caller_in_conflict_with_itself_is_refused_alone(store):
    mine = [draft(key="order-7", payload=b"[1]"), draft(key="order-7", payload=b"[2]")]
    other = draft()
    refused, accepted = await _together(store, [mine, [other]])
    assert isinstance(refused, KeyConflict)
    assert accepted == [other.id]


async def test_other_faults_are_found_in_halves(store, keeper):
    used = await put_one(store)
    counted = Counted(keeper.driver)
    calls = [[draft()] for _ in range(64)]
    calls[20] = [_with_id(used, type="other")]
    heard = await _together(SqlStore(counted), calls)
    assert isinstance(heard[20], InvalidInput)
    assert [n for n, answer in enumerate(heard) if answer != [calls[n][0].id]] == [20]
    assert counted.accepts <= 14


class Held(Counted):
    """The first caller's commit lasts until it is let go."""

    def __init__(self, driver) -> None:
        super().__init__(driver)
        self.under_way, self.go = asyncio.Event(), asyncio.Event()

    async def call(self, verb, /, **parameters):
        if verb == "accept" and not self.under_way.is_set():
            self.under_way.set()
            await self.go.wait()
        return await self._driver.call(verb, **parameters)


async def test_a_second_event_loop_never_waits_for_the_first(store, keeper):
    """SQLite's threads serve every loop; connections to PostgreSQL hang on theirs."""
    held = Held(keeper.driver)
    shared = SqlStore(held)
    first, second = draft(), draft()
    mine = asyncio.create_task(shared.enqueue([first]))
    await held.under_way.wait()
    heard: list[object] = []

    async def elsewhere() -> None:
        try:
            heard.append(await asyncio.wait_for(shared.enqueue([second]), 60))
        except StoreError as error:
            heard.append(str(error))

    thread = threading.Thread(target=lambda: asyncio.run(elsewhere()))
    thread.start()
    await asyncio.to_thread(thread.join)
    held.go.set()
    assert await mine == [first.id]
    if keeper.dialect == "postgres":
        assert heard == ["a store belongs to one event loop; open another one in the other thread"]
        assert ids_of(await claim(store)) == [first.id]
    else:
        assert heard == [[second.id]]
        assert sorted(ids_of(await claim(store))) == sorted([first.id, second.id])


@pytest.mark.parametrize("other", [{"type": "other"}, {"payload": b"[2]"}], ids=repr)
async def test_an_id_of_other_work_is_refused(store, dump, other):
    await put_one(store, "other")
    id = await put_one(store)
    before = await dump()
    with pytest.raises(InvalidInput, match="used before"):
        await store.enqueue([_with_id(id, **other)])
    assert await dump() == before
    assert await store.enqueue([_with_id(id)]) == [id]
