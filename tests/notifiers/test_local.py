"""What is particular about hints within one process."""

import asyncio
import threading

from holdfast.notifier import Hint
from holdfast.notifiers import local
from holdfast.notifiers.local import LocalNotifier
from tests.notifiers.keepers import Ears

WORK = Hint("work", "mail")


async def test_a_hint_from_another_thread_is_heard_on_the_listeners_loop():
    alice, ears = LocalNotifier("threads"), Ears()
    threads = set()
    await alice.listen(lambda hint: threads.add(threading.get_ident()))
    await alice.listen(ears)
    await asyncio.to_thread(LocalNotifier("threads").tell, [WORK])
    await ears.hear(WORK)
    assert threads == {threading.get_ident()}
    await alice.close()


def test_a_listener_whose_loop_is_gone_is_forgotten():
    asyncio.run(LocalNotifier("gone").listen(Ears()))
    LocalNotifier("gone").tell([WORK])
    assert "gone" not in local._places


async def test_a_place_is_forgotten_with_its_last_listener():
    alice = LocalNotifier("short")
    await alice.listen(Ears())
    await alice.close()
    assert "short" not in local._places


async def test_many_tells_are_one_call_of_the_loop():
    alice, ears = LocalNotifier("calls"), Ears()
    await alice.listen(ears)
    loop = asyncio.get_running_loop()
    before = len(loop._ready)  # type: ignore[attr-defined]
    for i in range(100):
        alice.tell([Hint("work", f"name{i}")])
    assert len(loop._ready) == before + 1  # type: ignore[attr-defined]
    await alice.close()


async def test_after_close_nothing_is_heard_that_was_told_before():
    alice, ears = LocalNotifier("late"), Ears()
    await alice.listen(ears)
    alice.tell([WORK])
    await alice.close()
    await asyncio.sleep(0)
    assert ears.heard == []
