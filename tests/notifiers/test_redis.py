"""What is particular about hints through Redis."""

import subprocess
import sys

import pytest

from holdfast.errors import InvalidInput
from holdfast.notifier import EVERYTHING, Hint
from holdfast.notifiers.redis import RedisNotifier
from tests.conftest import need
from tests.notifiers.keepers import SECRET, Ears, until
from tests.servers import Valkey

WORK = Hint("work", "mail")


async def test_after_a_crash_of_the_server_it_hears_again(caplog):
    with need(Valkey) as server:
        alice, bob, ears = RedisNotifier(server.url), RedisNotifier(server.url), Ears()
        await alice.listen(ears)
        bob.tell([WORK])
        await ears.hear(WORK)
        server.crash()
        bob.tell([Hint("work", "meanwhile")])
        await until(lambda: "telling" in caplog.text and "listening" in caplog.text)
        server.restart()
        await ears.hear(EVERYTHING)
        bob.tell([Hint("work", "later")])
        await ears.hear(Hint("work", "later"))
        await alice.close()
        await bob.close()
    assert Valkey.password not in caplog.text
    assert len(caplog.messages) == 2


async def test_a_wrong_password_is_said_and_not_shown(valkey, caplog):
    url = f"redis://:{SECRET}@127.0.0.1:{valkey.port}"
    notifier = RedisNotifier(url)
    await notifier.listen(Ears())
    await notifier.close()
    assert "Auth" in caplog.text
    assert SECRET not in caplog.text


@pytest.mark.parametrize(
    "url",
    [
        f"redis://:{SECRET}@x@host",
        f"redis://:{SECRET}/x@host",
        f"redis://:{SECRET}#x@host",
        f"http://:{SECRET}@host",
        f"redis://host?socket_timeout={SECRET}",
    ],
)
def test_a_url_that_cannot_be_used_is_refused_and_not_quoted(url):
    with pytest.raises(InvalidInput) as refused:
        RedisNotifier(url)
    assert SECRET not in str(refused.value)


def test_the_client_is_imported_only_when_it_is_used():
    script = "import sys, holdfast.notifiers.redis; sys.exit('redis' in sys.modules)"
    subprocess.run([sys.executable, "-c", script], check=True)


def test_without_the_client_it_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "redis.asyncio", None)
    with pytest.raises(InvalidInput, match=r"holdfast\[redis\]"):
        RedisNotifier("redis://localhost")
