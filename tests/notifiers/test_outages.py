"""A carrier that fails is tried again, with one word about it, however long it takes."""

import asyncio
import contextlib
import logging

import pytest

from holdfast.notifier import EVERYTHING, Hint
from holdfast.notifiers import ending, outage, outbox
from holdfast.notifiers.ear import Ear
from holdfast.notifiers.gathered import CAP
from holdfast.notifiers.outage import Outage
from holdfast.notifiers.outbox import Outbox
from tests.notifiers.keepers import Ears, until

WORK = Hint("work", "mail")
LAST = Hint("work", "last")


@pytest.fixture(autouse=True)
def in_a_hurry(monkeypatch, caplog):
    monkeypatch.setattr(outage, "_FIRST", 0.0001)
    caplog.set_level(logging.INFO, "holdfast.notifiers")


class Carrier:
    """Fails until it is mended."""

    ear: Ear

    def __init__(self) -> None:
        self.tries = 0
        self.sent: list[list[Hint]] = []
        self.mended = asyncio.Event()
        self.broken = asyncio.Event()

    async def send(self, hints: list[Hint]) -> None:
        self.tries += 1
        if not self.mended.is_set():
            raise ConnectionError("down")
        self.sent.append(hints)

    async def hear(self) -> None:
        self.tries += 1
        if not self.mended.is_set():
            raise ConnectionError("down")
        self.ear.ready()
        await self.broken.wait()
        self.broken.clear()
        raise ConnectionError("down again")


@pytest.fixture
def carrier():
    return Carrier()


async def test_what_was_told_during_an_outage_is_sent_once_it_is_over(carrier, caplog):
    outbox = Outbox(carrier.send, Outage("telling"))
    outbox.tell([WORK])
    await until(lambda: carrier.tries > 5)
    outbox.tell([LAST, WORK])
    carrier.mended.set()
    await until(lambda: carrier.sent)
    assert carrier.sent == [[LAST, WORK]] or carrier.sent == [[WORK, LAST]]
    assert [message.partition(":")[2][:8] for message in caplog.messages] == [
        " Connect",
        " works a",
    ]
    await outbox.close()


async def test_what_waits_during_an_outage_is_bounded(carrier):
    outbox = Outbox(carrier.send, Outage("telling"))
    for i in range(3 * CAP):
        outbox.tell([Hint("work", f"name{i}")])
        if i % 100 == 0:
            await asyncio.sleep(0)
    carrier.mended.set()
    await until(lambda: carrier.sent)
    assert carrier.sent == [[EVERYTHING]]
    await outbox.close()


async def test_each_outage_is_told_once_and_each_gap_is_owned_up_to(carrier, caplog):
    ears = Ears()
    ear = carrier.ear = Ear(carrier.hear, Outage("listening"))
    await ear.listen(ears)
    await until(lambda: carrier.tries > 5)
    carrier.mended.set()
    await until(lambda: ears.heard == [EVERYTHING])
    carrier.broken.set()
    await until(lambda: ears.heard == [EVERYTHING, EVERYTHING])
    levels = [record.levelname for record in caplog.records]
    assert levels == ["WARNING", "INFO", "WARNING", "INFO"]
    await ear.close()


async def test_who_heard_from_the_start_is_not_told_of_a_gap(carrier):
    ears = Ears()
    carrier.mended.set()
    ear = carrier.ear = Ear(carrier.hear, Outage("listening"))
    await ear.listen(ears)
    assert ears.heard == []
    await ear.close()


async def test_who_listens_while_the_first_try_is_under_way_waits_for_it_too(carrier):
    carrier.mended.set()
    ear = carrier.ear = Ear(carrier.hear, Outage("listening"))
    await asyncio.gather(ear.listen(Ears()), ear.listen(Ears()))
    assert carrier.tries == 1
    await ear.close()


async def test_an_error_that_may_quote_a_url_is_not_quoted(caplog):
    Outage("telling").began(ValueError("redis://:hunter2@host"))
    assert "ValueError" in caplog.text
    assert "hunter2" not in caplog.text


async def _deaf_to_the_first_cancellation(begun: asyncio.Event) -> None:
    """As a driver is that uses `wait_for` of Python 3.11, and whose answer has just come."""
    begun.set()
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.Event().wait()
    await asyncio.Event().wait()


@pytest.mark.timeout(30)
async def test_close_ends_a_listener_whose_driver_swallowed_its_cancellation(monkeypatch):
    monkeypatch.setattr(ending, "_PATIENCE", 0.01)
    begun = asyncio.Event()

    async def hear() -> None:
        ear.ready()
        await _deaf_to_the_first_cancellation(begun)

    ear = Ear(hear, Outage("listening"))
    await ear.listen(Ears())
    await begun.wait()
    async with asyncio.timeout(20):
        await ear.close()


@pytest.mark.timeout(30)
async def test_close_ends_a_sender_whose_driver_swallowed_its_cancellation(monkeypatch):
    monkeypatch.setattr(ending, "_PATIENCE", 0.01)
    monkeypatch.setattr(outbox, "_FAREWELL", 0.01)
    begun = asyncio.Event()

    async def send(_: list[Hint]) -> None:
        await _deaf_to_the_first_cancellation(begun)

    box = Outbox(send, Outage("telling"))
    box.tell([WORK])
    await begun.wait()
    async with asyncio.timeout(20):
        await box.close()
