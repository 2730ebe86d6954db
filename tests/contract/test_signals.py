"""Signals: queued in order, once per id, refused after the end."""

import pytest

from holdfast.answers import Signal
from holdfast.errors import InvalidInput, PayloadRefused
from holdfast.ids import new_id
from holdfast.stores import flows
from holdfast.tasks.task import TaskStatus
from tests.contract.acts import (
    DONE,
    claim,
    claim_one,
    finish,
    ids_of,
    put_one,
    seconds,
    status_of,
    waiting,
)


async def _send(store, id, name="go", payload=b"1"):
    signal = Signal(id=new_id(), name=name, payload=payload)
    assert await store.send_signal(id, signal.id, name, payload) is True
    return signal


async def _signals(store, id, *names):
    return (await store.news(id, [], signals=names)).signals


async def test_signals_wait_in_the_order_in_which_they_were_sent(store):
    id = await put_one(store)
    sent = [await _send(store, id, f"s{n % 2}", bytes([n])) for n in range(5)]
    assert await _signals(store, id, "s0", "s1") == sent
    assert await _signals(store, id, "s1") == [sent[1], sent[3]]
    assert await _signals(store, id) == await _signals(store, id, "s2") == []


async def test_of_very_many_signals_the_oldest_are_heard_first(store, monkeypatch):
    """All of them at once are more than PostgreSQL sends; and never those of other names."""
    monkeypatch.setattr(flows, "_PAGE", 3)
    id = await put_one(store)
    others = [await _send(store, id, "others") for _ in range(4)]
    sent = [await _send(store, id, f"s{n % 2}") for n in range(4)]
    assert await _signals(store, id, "s0", "s1") == sent[:3]
    assert await _signals(store, id, "others", "s0") == others[:3]
    lease = (await claim_one(store)).lease
    await store.record(lease, [], consumed=[one.id for one in sent[:3]])
    assert await _signals(store, id, "s0", "s1") == sent[3:]


async def test_a_signal_is_sent_once_however_often_it_is_repeated(store, dump):
    id = await put_one(store)
    sent = await _send(store, id)
    before = await dump()
    assert await store.send_signal(id, sent.id, "go", b"1") is True
    assert await dump() == before
    assert await _signals(store, id, "go") == [sent]


async def test_a_consumed_signal_is_gone_and_stays_gone(store):
    id = await put_one(store)
    first, second = await _send(store, id), await _send(store, id)
    lease = (await claim_one(store)).lease
    await store.record(lease, [], consumed=[first.id])
    assert await _signals(store, id, "go") == [second]
    assert await store.send_signal(id, first.id, "go", b"1") is True
    assert await _signals(store, id, "go") == [second]


async def test_only_a_tasks_own_signals_are_consumed(store):
    mine, other = await put_one(store), await put_one(store)
    sent = await _send(store, other)
    await _send(store, mine)
    lease = (await claim_one(store)).lease
    assert lease.task == mine
    await store.record(lease, [], consumed=[sent.id])
    assert await _signals(store, other, "go") == [sent]


async def test_a_signal_wakes_its_task(store):
    id = await put_one(store)
    await finish(store, await claim_one(store), waiting(wakes=5))
    assert await claim(store) == []
    await _send(store, id)
    assert ids_of(await claim(store)) == [id]


async def test_a_signal_does_not_hurry_a_task_that_is_delayed(store):
    id = await put_one(store, delay=seconds(60))
    await _send(store, id)
    assert await claim(store) == []
    assert len(await _signals(store, id, "go")) == 1


async def test_a_signal_that_came_before_the_wait_is_not_missed(store):
    id = await put_one(store)
    claimed = await claim_one(store)
    await _send(store, id)
    await finish(store, claimed, waiting())
    assert ids_of(await claim(store)) == [id]


async def test_a_signal_after_the_end_is_refused(store, dump):
    id = await put_one(store)
    await finish(store, await claim_one(store), DONE)
    before = await dump()
    assert await store.send_signal(id, new_id(), "go", b"1") is False
    assert await dump() == before


async def test_a_signal_that_was_sent_before_the_end_was_sent(store):
    id = await put_one(store)
    sent = await _send(store, id)
    await finish(store, await claim_one(store), DONE)
    assert await store.send_signal(id, sent.id, "go", b"1") is True


async def test_a_signal_to_nobody_is_refused(store, dump):
    before = await dump()
    assert await store.send_signal(new_id(), new_id(), "go", b"1") is False
    assert await dump() == before


async def test_a_signal_whose_name_or_payload_is_bad_is_refused(store, dump):
    id = await put_one(store)
    before = await dump()
    with pytest.raises(InvalidInput, match="signal name"):
        await store.send_signal(id, new_id(), "NUL \0", b"1")
    with pytest.raises(PayloadRefused, match="over the limit"):
        await store.send_signal(id, new_id(), "go", b" " * (1024 * 1024 + 1))
    assert await dump() == before
    assert await status_of(store, id) is TaskStatus.PENDING
