"""What every notifier promises, asked of all of them."""

import asyncio
import logging
import os
import threading
from pathlib import Path
from typing import Any

import pytest
import uvloop

from holdfast.errors import InvalidInput
from holdfast.notifier import EVERYTHING, Hint
from holdfast.notifiers import outbox, postgres, redis
from holdfast.notifiers.gathered import CAP
from tests.notifiers.conftest import listeners
from tests.notifiers.keepers import SECRET, DatagramKeeper, Ears, Keeper, until
from tests.notifiers.wire import Wire

everyone = pytest.mark.parametrize(
    "keeper", ["local", "postgres", "redis", "several", "datagram"], indirect=True
)
with_a_carrier = pytest.mark.parametrize(
    "keeper", ["postgres", "redis", "several", "datagram"], indirect=True
)
with_a_server = pytest.mark.parametrize("keeper", ["postgres", "redis", "several"], indirect=True)

WORK = Hint("work", "mail")
STOP = Hint("cancel", "0192f0c1-2345-7000-8000-000000000001")
LAST = Hint("work", "last")


@pytest.fixture
def hasty(monkeypatch):
    """Does not wait long for an answer."""
    monkeypatch.setattr(postgres, "_PATIENCE", 0.3)
    monkeypatch.setattr(redis, "_PATIENCE", 0.3)


@pytest.fixture
def patient(monkeypatch):
    """At its close it waits for whatever it waits for."""
    monkeypatch.setattr(outbox, "_FAREWELL", 600.0)


@everyone
async def test_a_hint_is_heard_by_another_and_by_oneself(open):
    (alice, at_alice), (_, at_bob) = await open(), await open()
    alice.tell([WORK, STOP])
    await at_bob.hear(WORK, STOP)
    await at_alice.hear(WORK, STOP)


@everyone
async def test_who_only_tells_is_heard_too(keeper: Keeper, open):
    _, at_alice = await open()
    bob = keeper.notifier()
    bob.tell([WORK])
    await at_alice.hear(WORK)
    await bob.close()


@everyone
async def test_several_may_listen_at_one_notifier(open):
    alice, first = await open()
    second = Ears()
    await alice.listen(second)
    alice.tell([WORK])
    await first.hear(WORK)
    await second.hear(WORK)


@everyone
async def test_who_left_hears_no_more_and_the_others_do(open):
    alice, first = await open()
    second, stranger = Ears(), Ears()
    await alice.listen(second)
    alice.leave(second)
    alice.leave(second)
    alice.leave(stranger)
    alice.tell([WORK])
    await first.hear(WORK)
    alice.tell([LAST])  # what was told before has been passed on to all
    await first.hear(LAST)
    assert second.heard == []


@everyone
async def test_many_tells_are_few_messages_and_nothing_is_missed(open):
    (alice, _), (_, at_bob) = await open(), await open()
    hints = [Hint(kind, f"name{i}") for kind in ("work", "cancel") for i in range(50)]
    for turn in range(10_000):
        alice.tell([hints[turn % len(hints)]])
        if turn % 500 == 0:
            await asyncio.sleep(0)
    alice.tell([LAST])
    await at_bob.hear(*hints, LAST)
    assert len(at_bob.heard) <= 21 * len(hints) + 1


@everyone
async def test_what_is_told_in_one_go_arrives_once(open):
    (alice, _), (_, at_bob) = await open(), await open()
    for _ in range(1000):
        alice.tell([WORK])
    await at_bob.hear(WORK)
    alice.tell([LAST])
    await at_bob.hear(LAST)
    assert at_bob.heard == [WORK, LAST]


@everyone
async def test_as_many_as_can_be_named_are_named(open):
    (alice, _), (_, at_bob) = await open(), await open()
    hints = [Hint("cancel", f"0192f0c1-2345-7000-8000-{i:012}") for i in range(CAP)]
    alice.tell(hints)
    await at_bob.hear(*hints)
    assert at_bob.heard == hints


@everyone
async def test_more_than_can_be_named_are_everything(open):
    (alice, _), (_, at_bob) = await open(), await open()
    alice.tell(Hint("work", f"name{i}") for i in range(CAP + 1))
    await at_bob.hear(EVERYTHING)
    assert at_bob.heard == [EVERYTHING]


@everyone
async def test_everything_stands_for_all_others(open):
    (alice, _), (_, at_bob) = await open(), await open()
    alice.tell([WORK, EVERYTHING, STOP])
    await at_bob.hear(EVERYTHING)
    alice.tell([LAST])
    await at_bob.hear(LAST)
    assert at_bob.heard == [EVERYTHING, LAST]


@with_a_carrier
@pytest.mark.parametrize("name", ["long" * 20_000, "two\nlines", "nul\0", "half\ud800"])
async def test_what_cannot_be_carried_is_everything(open, name):
    (alice, _), (_, at_bob) = await open(), await open()
    alice.tell([Hint("work", name), LAST])
    await at_bob.hear(EVERYTHING, LAST)


@with_a_carrier
async def test_junk_is_ignored(keeper: Keeper, open):
    _, ears = await open()
    for junk in (b"junk", b"\xff\xfe\x00", b"x" * 7000, b"work:", b"\n\n", b"new:kind\nwork:good"):
        await keeper.shout(junk)
    await keeper.shout(str(LAST).encode())
    await ears.hear(LAST)
    assert ears.heard == [Hint("work", "good"), LAST]


@everyone
async def test_hints_of_another_place_are_not_heard(open):
    (alice, at_alice), (bob, at_bob) = await open("here"), await open("there")
    alice.tell([WORK])
    await at_alice.hear(WORK)
    bob.tell([LAST])
    await at_bob.hear(LAST)
    assert at_bob.heard == [LAST]
    assert at_alice.heard == [WORK]


@everyone
async def test_a_listener_that_fails_hears_the_next_hint(keeper: Keeper, caplog):
    alice, ears = keeper.notifier(), Ears()

    def heard(hint: Hint) -> None:
        ears(hint)
        if hint == WORK:
            raise LookupError

    await alice.listen(heard)
    alice.tell([WORK, LAST])
    await ears.hear(WORK, LAST)
    await alice.close()
    assert "listener failed" in caplog.text


@with_a_carrier
async def test_who_was_cut_off_says_everything_and_hears_again(keeper: Keeper, open, caplog):
    caplog.set_level(logging.INFO, "holdfast.notifiers")
    soon = 0.05 if isinstance(keeper, DatagramKeeper) else 20.0  # servers hang up audibly
    _, at_alice = await open(check_every=soon)
    await keeper.break_ears()
    await at_alice.hear(EVERYTHING)
    bob, _ = await open()
    bob.tell([WORK])
    await at_alice.hear(WORK)
    assert at_alice.heard == [EVERYTHING, WORK]
    assert any("works again" in message for message in caplog.messages)


@with_a_server
async def test_a_hint_told_over_a_broken_connection_is_sent_again(keeper: Keeper, open):
    (alice, _), (_, at_bob) = await open(), await open()
    alice.tell([WORK])
    await at_bob.hear(WORK)
    await keeper.break_mouths()
    alice.tell([LAST])
    await at_bob.hear(LAST)


@with_a_server
async def test_a_hint_told_over_a_connection_that_hangs_is_sent_again(keeper: Any, hasty, open):
    _, ears = await open()
    async with Wire(keeper.port) as wire:
        bob = keeper.notifier(port=wire.port)
        bob.tell([WORK])
        await ears.hear(WORK)
        wire.freeze()
        bob.tell([LAST])
        await ears.hear(LAST)
        await bob.close()


@with_a_carrier
@pytest.mark.usefixtures("patient")
async def test_with_nobody_there_nothing_raises_blocks_or_tells_secrets(keeper: Keeper, caplog):
    alone = keeper.lonely()
    async with asyncio.timeout(60):
        await alone.listen(Ears())
    for i in range(100):
        alone.tell([Hint("work", f"name{i}")])
        await asyncio.sleep(0)
    await until(lambda: "telling" in caplog.text and "listening" in caplog.text)
    async with asyncio.timeout(60):
        await alone.close()
    assert len(caplog.messages) == 2  # one for telling, one for listening
    assert SECRET not in caplog.text


@everyone
async def test_close_leaves_nothing_behind(keeper: Keeper):
    before = _held()
    alice, bob = keeper.notifier(), keeper.notifier()
    ears = Ears()
    await alice.listen(ears)
    bob.tell([WORK])
    await ears.hear(WORK)
    await asyncio.gather(alice.close(), bob.close(), alice.close())
    await alice.close()
    await until(lambda: _held() == before)


@everyone
@pytest.mark.usefixtures("patient")
async def test_what_was_told_just_before_close_still_leaves(keeper: Keeper, open):
    _, ears = await open()
    bob = keeper.notifier()
    bob.tell([WORK])
    await bob.close()
    await ears.hear(WORK)


@everyone
async def test_after_close_nothing_is_heard_told_or_begun(keeper: Keeper, open):
    (alice, at_alice), (bob, at_bob) = await open(), await open()
    await alice.close()
    alice.tell([WORK])
    bob.tell([LAST])
    await at_bob.hear(LAST)
    assert at_bob.heard == [LAST]
    assert at_alice.heard == []
    with pytest.raises(InvalidInput, match="closed"):
        await alice.listen(at_alice)


@with_a_carrier
async def test_a_tell_outside_of_the_loop_is_dropped_with_a_word(keeper: Keeper, open, caplog):
    alice, ears = await open()
    alice.tell([WORK])
    await ears.hear(WORK)
    await asyncio.to_thread(lambda: [alice.tell([STOP]) for _ in range(3)])
    alice.tell([LAST])
    await ears.hear(LAST)
    assert ears.heard == [WORK, LAST]
    assert len(caplog.messages) == 1


@pytest.mark.timeout(120)
@everyone
def test_it_works_on_uvloop(keeper: Any):
    async def scene() -> None:
        async with listeners(keeper) as open:
            (alice, _), (_, at_bob) = await open(check_every=0.05), await open(check_every=0.05)
            alice.tell([WORK])
            await at_bob.hear(WORK)
            if hasattr(keeper, "break_ears"):
                await keeper.break_ears()
                await at_bob.hear(EVERYTHING)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(scene())


@with_a_server
async def test_a_connection_that_hangs_is_noticed(keeper: Any, hasty):
    async with Wire(keeper.port) as wire:
        alice, bob, ears = (
            keeper.notifier(port=wire.port, check_every=0.1),
            keeper.notifier(),
            Ears(),
        )
        await alice.listen(ears)
        wire.freeze()
        await ears.hear(EVERYTHING)
        bob.tell([WORK])
        await ears.hear(WORK)
        await alice.close()
        await bob.close()


@with_a_server
async def test_a_connection_that_is_only_quiet_is_left_alone(keeper: Any):
    async with Wire(keeper.port) as wire:
        alice, ears = keeper.notifier(port=wire.port, check_every=0.01), Ears()
        await alice.listen(ears)
        passed = wire.passed
        await until(lambda: wire.passed > passed + 20)
        assert wire.connections == 1
        assert ears.heard == []
        await alice.close()


def _held() -> tuple[int, int, int]:
    """Tasks, threads, and open files of this process."""
    fds = Path("/proc/self/fd")
    files = len(os.listdir(fds)) if fds.exists() else 0
    return len(asyncio.all_tasks()), threading.active_count(), files
