"""Requests with an idempotency key: each is done once, and answered the same again."""

import asyncio

import pytest

from holdfast.errors import InvalidInput
from holdfast.ids import new_grant
from tests.contract.acts import seconds

DIGEST, ANOTHER = b"d" * 32, b"o" * 32
NAME = ("acme", "order-7")


async def _begin(store, digest=DIGEST, **rest):
    return await store.begin_request(*NAME, digest, **{"token": new_grant(), **rest})


async def test_the_first_is_new_and_those_that_follow_hear_its_answer(store):
    token = new_grant()
    assert (await _begin(store, token=token)).state == "new"
    assert (await _begin(store)).state == "running"
    assert await store.end_request(*NAME, token=token, status=201, body=b'{"id": 7}')
    again = await _begin(store)
    assert (again.state, again.status, again.body) == ("done", 201, b'{"id": 7}')


async def test_the_headers_of_an_answer_are_kept_with_it(store, clock):
    token, headers = new_grant(), {"location": "/v1/operations/7", "x-note": "grün"}
    await _begin(store, token=token)
    await store.end_request(*NAME, token=token, status=202, body=b"", headers=headers)
    assert (await _begin(store)).headers == headers
    assert (await _begin(store, ANOTHER)).headers == {}
    await clock.advance(86_401)
    assert (await _begin(store)).state == "new"
    again = await _begin(store)
    assert (again.state, again.headers) == ("running", {}), "of a request that is done anew"


async def test_of_many_at_once_one_is_new(store, keeper):
    asked = await asyncio.gather(*(_begin(keeper.store()) for _ in range(8)))
    assert sorted(a.state for a in asked) == ["new"] + ["running"] * 7


async def test_the_key_of_another_request_is_told_and_its_answer_is_not(store):
    token = new_grant()
    await _begin(store, token=token)
    assert (await _begin(store, ANOTHER)).state == "other"
    await store.end_request(*NAME, token=token, status=201, body=b"secret")
    other = await _begin(store, ANOTHER)
    assert (other.state, other.status, other.body) == ("other", None, None)


async def test_keys_of_different_scopes_do_not_meet(store):
    await _begin(store)
    answer = await store.begin_request("other", NAME[1], ANOTHER, token=new_grant())
    assert answer.state == "new"


async def test_whoever_asks_again_after_a_lost_answer_may_go_on(store):
    token = new_grant()
    assert [(await _begin(store, token=token)).state for _ in range(2)] == ["new", "new"]
    for _ in range(2):
        assert await store.end_request(*NAME, token=token, status=200, body=b"1")


async def test_one_whose_process_died_is_taken_over_after_a_while(store, clock):
    dead, heir = new_grant(), new_grant()
    await _begin(store, token=dead)
    await clock.advance(59)
    assert (await _begin(store, token=heir)).state == "running"
    await clock.advance(2)
    assert (await _begin(store, ANOTHER)).state == "other"
    assert (await _begin(store, token=heir)).state == "new"
    assert (await _begin(store)).state == "running"
    assert not await store.end_request(*NAME, token=dead, status=200, body=b"late")
    assert not await store.drop_request(*NAME, token=dead)
    assert await store.end_request(*NAME, token=heir, status=200, body=b"heir")
    assert (await _begin(store)).body == b"heir"


async def test_one_that_came_to_nothing_may_be_tried_again(store):
    token = new_grant()
    await _begin(store, token=token)
    assert await store.drop_request(*NAME, token=token)
    assert (await _begin(store, ANOTHER)).state == "new"


async def test_an_answer_cannot_be_dropped(store):
    token = new_grant()
    await _begin(store, token=token)
    await store.end_request(*NAME, token=token, status=200, body=b"1")
    assert not await store.drop_request(*NAME, token=token)
    assert (await _begin(store)).state == "done"


async def test_answers_are_kept_for_a_day(store, clock, peek):
    token = new_grant()
    await _begin(store, token=token)
    await clock.advance(50)
    await store.end_request(*NAME, token=token, status=200, body=b"1")
    await clock.advance(86_399)
    await store.cleanup(seconds(0))
    assert (await _begin(store)).state == "done"
    await clock.advance(2)
    assert (await _begin(store, ANOTHER)).state == "new", "also where nobody has cleaned up yet"
    await clock.advance(86_401)
    await store.cleanup(seconds(0))
    assert await peek("select count(*) from request") == [(0,)]


async def test_one_pass_of_cleanup_is_bounded_and_says_whether_there_is_more(store, clock):
    for n in range(5):
        await store.begin_request("acme", f"k{n}", DIGEST, token=new_grant())
    await clock.advance(86_401)
    assert [await store.cleanup(seconds(0), batch=2) for _ in range(4)] == [2, 2, 1, 0]


@pytest.mark.parametrize("key", ["", "k" * 256, "a\0"], ids=repr)
async def test_a_key_that_cannot_be_is_refused(store, dump, key):
    before = await dump()
    with pytest.raises(InvalidInput):
        await store.begin_request("acme", key, DIGEST, token=new_grant())
    assert await dump() == before
