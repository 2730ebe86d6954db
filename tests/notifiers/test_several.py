"""What is particular about hints by several ways: nobody is left out, and nobody hears twice."""

import pytest

from holdfast.notifier import EVERYTHING, Hint
from holdfast.notifiers import several
from tests.notifiers.conftest import listeners
from tests.notifiers.keepers import Ears, PostgresKeeper, SeveralKeeper
from tests.notifiers.wire import Wire

WORK = Hint("work", "mail")
LAST = Hint("work", "last")

pytestmark = pytest.mark.parametrize("keeper", ["several"], indirect=True)


async def plain_ears(own: PostgresKeeper):
    """Those of somebody who has no Redis."""
    notifier, ears = own.notifier(), Ears()
    await notifier.listen(ears)
    return notifier, ears


async def test_who_has_no_redis_hears_too_and_the_others_hear_it_once(keeper: SeveralKeeper, open):
    (alice, at_alice), (_, at_bob) = await open(), await open()
    plain, at_plain = await plain_ears(keeper.own)
    alice.tell([WORK])
    await at_plain.hear(WORK)
    plain.tell([LAST])  # after all that was told before it
    for ears in (at_alice, at_bob, at_plain):
        await ears.hear(LAST)
        assert ears.heard == [WORK, LAST]
    await plain.close()


async def test_two_of_one_process_hear_each_other_once(keeper: SeveralKeeper, open):
    (alice, at_alice), (_, at_bob) = await open(process="one"), await open(process="one")
    plain, at_plain = await plain_ears(keeper.own)
    alice.tell([WORK])
    await at_plain.hear(WORK)
    plain.tell([LAST])
    for ears in (at_alice, at_bob):
        await ears.hear(LAST)
        assert ears.heard == [WORK, LAST]
    await plain.close()


async def test_without_redis_two_of_one_process_hear_each_other_at_once(
    keeper: SeveralKeeper, monkeypatch
):
    monkeypatch.setattr(several, "_AHEAD", 600.0)
    alice, bob, ears = keeper.lonely(process="two"), keeper.lonely(process="two"), Ears()
    await bob.listen(ears)
    alice.tell([WORK])
    await ears.hear(WORK)
    await alice.close()
    await bob.close()


async def test_who_cannot_reach_redis_is_heard_by_those_who_do(keeper: SeveralKeeper, open):
    _, ears = await open()
    alone = keeper.lonely("here")
    for hint in (WORK, LAST):
        alone.tell([hint])
        await ears.hear(hint)
    await alone.close()


async def test_who_cannot_hear_redis_hears_those_who_tell_it(keeper: SeveralKeeper, open):
    alone, ears = keeper.lonely("here"), Ears()
    await alone.listen(ears)
    alice, _ = await open()
    alice.tell([WORK])
    await ears.hear(WORK)
    await alone.close()


async def test_a_redis_that_hangs_delays_nobody(keeper: SeveralKeeper, open):
    """Whoever waited for it would wait for five seconds, and then say it twice."""
    _, ears = await open()
    async with Wire(keeper.port) as wire:
        bob = keeper.notifier(port=wire.port)
        bob.tell([WORK])
        await ears.hear(WORK)
        wire.freeze()
        bob.tell([LAST])
        await ears.hear(LAST)
        assert not bob._quick.has_told_all  # type: ignore[attr-defined]
        assert ears.heard.count(LAST) == 1
        await bob.close()


async def test_after_an_outage_of_redis_copies_are_passed_over_again(keeper: SeveralKeeper):
    async with listeners(keeper) as open:
        (alice, _), (_, at_bob) = await open(), await open()
        plain, at_plain = await plain_ears(keeper.own)
        await keeper.break_ears()
        await at_bob.hear(EVERYTHING)
        alice.tell([WORK])
        await at_plain.hear(WORK)
        plain.tell([LAST])
        await at_bob.hear(LAST)
        assert at_bob.heard == [EVERYTHING, WORK, LAST]
        await plain.close()
