"""What is particular about hints between processes that share a file."""

import asyncio
import os
import pwd
import socket
import stat
import sys

import pytest

from holdfast.notifier import EVERYTHING, Hint
from holdfast.notifiers import datagram
from holdfast.notifiers.datagram import DatagramNotifier
from tests.notifiers.keepers import Ears, until

WORK = Hint("work", "mail")
LAST = Hint("work", "last")

CHILD = """
import asyncio, sys
from holdfast.notifier import Hint
from holdfast.notifiers.datagram import DatagramNotifier

async def main():
    notifier, heard = DatagramNotifier(sys.argv[1], parent=sys.argv[2]), asyncio.Queue()
    await notifier.listen(heard.put_nowait)
    notifier.tell([Hint("work", "from-the-child")])
    while (await heard.get()).name != "from-the-parent":
        pass
    if sys.argv[3] == "tidy":
        await notifier.close()
    print("heard", flush=True)
    sys.stdin.read()

asyncio.run(main())
"""


@pytest.fixture
def path(short_folder):
    return short_folder / "holdfast.db"


@pytest.fixture
async def alice(path):
    notifier = DatagramNotifier(path, parent=path.parent, check_every=0.05)
    yield notifier
    await notifier.close()


@pytest.mark.parametrize("end", ["tidy", "killed"])
async def test_two_processes_hear_each_other_and_the_dead_are_forgotten(alice, path, end):
    ears = Ears()
    await alice.listen(ears)
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", CHILD, str(path), str(path.parent), end),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert child.stdout is not None
    try:
        await ears.hear(Hint("work", "from-the-child"))
        alice.tell([Hint("work", "from-the-parent")])
        assert await child.stdout.readline() == b"heard\n"
        assert len(os.listdir(alice.folder)) == (1 if end == "tidy" else 2)
    finally:
        child.kill()
        await child.wait()
    alice.tell([LAST])
    await ears.hear(LAST)
    await until(lambda: len(os.listdir(alice.folder)) == 1)
    alice.tell([WORK])
    await ears.hear(WORK)
    assert list(alice._senders) == os.listdir(alice.folder)


async def test_the_folder_is_private_and_goes_with_the_last_listener(alice):
    await alice.listen(Ears())
    assert stat.S_IMODE(alice.folder.stat().st_mode) == 0o700
    await alice.close()
    assert not alice.folder.exists()


async def test_where_nobody_listens_nothing_is_made(alice, caplog):
    alice.tell([WORK])
    await alice.close()
    assert not alice.folder.exists()
    assert caplog.messages == []


@pytest.mark.parametrize("fault", ["open to others", "a link", "of another user"])
async def test_a_folder_that_others_control_is_refused(alice, path, fault, caplog):
    folder = alice.folder
    match fault:
        case "open to others":
            folder.mkdir()
            folder.chmod(0o750)
        case "a link":
            (path.parent / "elsewhere").mkdir(mode=0o700)
            folder.symlink_to(path.parent / "elsewhere")
        case "of another user":
            if os.geteuid() != 0:
                pytest.skip("only root can give a folder away")
            folder.mkdir(mode=0o700)
            os.chown(folder, pwd.getpwnam("nobody").pw_uid, -1)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as spy:
        spy.bind(str(folder / "spy.sock"))
        spy.setblocking(False)
        ears = Ears()
        await alice.listen(ears)
        alice.tell([WORK])
        await until(lambda: "telling" in caplog.text)
        assert os.listdir(folder) == ["spy.sock"]
        with pytest.raises(BlockingIOError):
            spy.recv(100)
    assert str(folder) in caplog.text


async def test_by_another_name_it_is_the_same_file(alice, path):
    path.touch()
    link = path.with_name("link.db")
    link.symlink_to(path)
    bob, ears = DatagramNotifier(link, parent=path.parent), Ears()
    await alice.listen(ears)
    bob.tell([WORK])
    await ears.hear(WORK)
    await bob.close()


async def test_who_was_too_busy_to_hear_is_told_everything(alice):
    """A queue in the kernel holds few datagrams; the hint that did not fit is not forgotten."""
    await alice.listen(Ears())
    slow, heard = _deaf(alice), []
    for i in range(2000):
        alice.tell([Hint("work", f"name{i}")])
        await asyncio.sleep(0)
        if alice._full:
            break
    assert alice._full
    reminder = alice._reminder
    await until(lambda: alice._reminder is not reminder)  # it was in vain

    def read() -> bool:
        while True:
            try:
                heard.append(slow.recv(65_536).decode())
            except BlockingIOError:
                return str(EVERYTHING) in heard

    await until(read)
    slow.close()


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere datagrams are small")
async def test_one_who_does_not_read_does_not_keep_others_from_hearing(alice):
    with _deaf(alice):
        while not alice._full:
            alice.tell([Hint("work", "x" * 50_000)])
            await asyncio.sleep(0)
        ears = Ears()
        await alice.listen(ears)
        alice.tell([WORK])
        await ears.hear(WORK)


async def test_without_unix_datagrams_it_says_so_once(path, monkeypatch, caplog):
    monkeypatch.setattr(datagram, "AVAILABLE", False)
    notifier, ears = DatagramNotifier(path, parent=path.parent), Ears()
    await notifier.listen(ears)
    notifier.tell([WORK])
    await notifier.close()
    assert len(caplog.messages) == 1
    assert not notifier.folder.exists()


def _deaf(notifier: DatagramNotifier) -> socket.socket:
    """Bound, and never read."""
    notifier.folder.mkdir(mode=0o700, exist_ok=True)
    ear = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    ear.setblocking(False)
    ear.bind(str(notifier.folder / "1-deaf.sock"))
    return ear
