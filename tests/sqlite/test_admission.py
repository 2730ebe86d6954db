"""Limits per key: keys of one function do not stand in the way of another's."""

from holdfast.tasks.limits import Limit
from tests.contract.acts import MINUTE, WORKER, ask, claim, draft, finish, ids_of, put_one


async def _crowd(store, n=1500):
    await store.enqueue([draft("job:a", concurrency_key=f"{k:05}") for k in range(n)])
    return await put_one(store, "job:b", concurrency_key="x", priority=100)


async def _claim(store, type, want=1):
    lanes = [id for id, lane in (await store.lanes()).lanes.items() if type in (None, lane.type)]
    answer = await store.claim(worker=WORKER, lanes=lanes, want=want, lease=MINUTE)
    return ids_of(answer.tasks)


async def test_who_serves_one_function_does_not_wait_for_keys_of_another(store):
    wanted = await _crowd(store)
    assert await _claim(store, "job:b") == [wanted]


async def test_who_serves_both_lets_keys_of_both_in(store):
    wanted = await _crowd(store)
    assert await _claim(store, None) == [wanted]


async def test_a_claim_lets_in_a_bounded_number_of_keys(store, driver):
    await _crowd(store)
    await _claim(store, "job:a")
    async with driver.transaction() as conn:
        assert await conn.execute("select count(*) from blocked") == [(1401,)]


async def test_all_keys_have_their_turn(store):
    await store.limit("type", "job:a", Limit(max_per_key=1))
    for _ in range(2):
        await store.enqueue([draft("job:a", concurrency_key=str(k)) for k in range(300)])
    seen = []
    while (answer := await ask(store, 200)).tasks or answer.next_due == 0:
        seen += ids_of(answer.tasks)
        await finish(store, answer.tasks)
    assert len(set(seen)) == len(seen) == 600
    assert answer.next_due is None


async def test_what_one_function_does_not_need_goes_to_another(store):
    await _crowd(store)
    assert len(await claim(store, 200)) == 200


async def test_an_answer_before_all_keys_were_looked_at_asks_to_be_repeated(store):
    await store.limit("type", "job:a", Limit(max_running=150, max_per_key=1))
    await _crowd(store)
    short = await ask(store, 200)
    assert (len(short.tasks), short.full, short.next_due) == (151, True, 0)


async def test_functions_in_two_queues_share_their_keys(store):
    await store.limit("type", "job:a", Limit(max_per_key=1))
    await put_one(store, "job:a", queue="one", concurrency_key="k")
    second = await put_one(store, "job:a", queue="two", concurrency_key="k")
    (first,) = await claim(store)
    await finish(store, first)
    assert ids_of(await claim(store)) == [second]
