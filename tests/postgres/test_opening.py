"""From a URL to a store: what it may say, and that no error tells the password."""

import asyncio
import struct
import traceback
from collections.abc import AsyncIterator
from urllib.parse import urlsplit

import pytest

from holdfast.errors import HoldfastError, InvalidInput, StoreError, StoreUnreachable
from holdfast.stores.opening import open_store
from holdfast.stores.postgres.address import where
from holdfast.stores.postgres.driver import PostgresDriver
from tests.contract.acts import draft, put_one
from tests.postgres.test_under_way import until

SECRET = "s3cr3t"
MALFORMED = [
    "postgresql://app:{}#1@db/x",
    "postgresql://app:{}/1@db/x",
    "postgresql://app:{}?1@db/x",
    "postgresql://app:{}?a=1@db/x",
    "postgresql://app:12{}@1@db/x",
    "postgresql://app:12#{}@db/x",
    "postgresql://app:12/{}@db/x",
    "postgresql://app:12?{}@db/x",
    "postgresql://app:12?a={}@db/x",
    "postgresql://app:[{}@db/x",
    "postgresql://app:{}\u2100@db/x",
    "postgresql://app@db:{}/x",
    "postgresql://app:pw@db:70000,{}:5432x/x",
    "postgresql://app@db/x?{}",
]


async def _told(url: str) -> tuple[HoldfastError, str]:
    """The error, and all that a log would show of it."""
    with pytest.raises(HoldfastError) as told:
        await open_store(url)
    return told.value, "".join(traceback.format_exception(told.value))


@pytest.mark.parametrize("pattern", MALFORMED)
async def test_a_malformed_url_is_refused_and_not_quoted(pattern):
    error, shown = await _told(pattern.format(SECRET))
    assert isinstance(error, InvalidInput)
    assert "percent-encode" in str(error)
    assert SECRET not in shown


@pytest.mark.parametrize(
    "pattern",
    [
        "postgresql://app:{}@127.0.0.1:1/x",
        "postgresql://app@127.0.0.1:1/x?password={}",
        "postgresql://app:{}@no.such.host.invalid/x",
        "postgresql://app:{}@127.0.0.1:1,127.0.0.1:2/x",
        "postgresql://app:{}@" + "h" * 70 + "/x",
        "postgresql://app:{}@127.0.0.1:1/x?sslmode=sometimes",
    ],
)
async def test_a_server_that_is_not_there_is_told_without_the_password(pattern):
    error, shown = await _told(pattern.format(SECRET))
    assert isinstance(error, StoreUnreachable | InvalidInput)
    assert SECRET not in shown


@pytest.fixture
async def gatekeeper() -> AsyncIterator[int]:
    """A server that lets nobody in; its port."""

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        (length,) = struct.unpack("!I", await reader.readexactly(4))
        if await reader.readexactly(length - 4) == struct.pack("!I", 80877103):
            writer.write(b"N")  # no TLS
            (length,) = struct.unpack("!I", await reader.readexactly(4))
            await reader.readexactly(length - 4)
        fields = b'SFATAL\0C28P01\0Mpassword authentication failed for user "app"\0\0'
        writer.write(b"E" + struct.pack("!I", len(fields) + 4) + fields)
        writer.close()

    async with await asyncio.start_server(refuse, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1]


async def test_a_wrong_password_is_told_without_it(gatekeeper):
    error, shown = await _told(f"postgresql://app:{SECRET}@127.0.0.1:{gatekeeper}/x")
    assert isinstance(error, StoreUnreachable)
    assert "Check user, password and database" in str(error)
    assert SECRET not in shown


async def test_a_password_may_have_every_character_when_it_is_encoded(url):
    netloc = urlsplit(url).netloc.rpartition("@")[2]
    store = await open_store(url.replace(netloc, f":a%23%2F%3F%40%3Ab@{netloc}").replace("@:", ":"))
    await put_one(store)
    await store.close()


async def test_several_hosts_are_tried_one_after_the_other(url):
    netloc = urlsplit(url).netloc.rpartition("@")[2]
    store = await open_store(url.replace(netloc, f"127.0.0.1:1,{netloc}"))
    await put_one(store)
    await store.close()


@pytest.mark.parametrize(
    ("url", "shown"),
    {
        "postgresql://a:b@h/x": "h:5432/x",
        "postgresql://a:b@h1:1,h2/x?password=c": "h1:1,h2:5432/x",
        "postgresql://a:b@[::1]:9/x": "[::1]:9/x",
        "postgresql://a@%2Frun%2Fpg/x": "/run/pg/x",
        "postgresql:///x?host=h3": "h3:5432/x",
        "postgresql://": "localhost:5432",
    }.items(),
)
def test_hosts_and_database_are_shown_and_nothing_else(url, shown):
    assert where(url) == shown


async def test_how_many_connections_may_be_opened_is_said_in_the_url(url, conn):
    store = await open_store(f"{url}?connections=2")
    await asyncio.gather(*(store.lanes() for _ in range(20)))
    held = await conn.fetchval(
        "select count(*) from pg_stat_activity where datname = current_database()"
    )
    await store.close()
    assert held <= 2 + 1 + 1  # this one, and that of the store that the fixture opened


@pytest.mark.parametrize(
    "option", ["connections=0", "connections=many", "connections=1001", "public_views=perhaps"]
)
async def test_options_that_make_no_sense_are_refused(url, option):
    with pytest.raises(InvalidInput, match=option.partition("=")[0]):
        await open_store(f"{url}?{option}")


async def test_a_store_that_was_closed_says_so(url, conn):
    store = await open_store(url)
    await store.close()
    await store.close()
    for ask in (store.lanes, store.migrate, lambda: store.enqueue([draft()], conn=conn)):
        with pytest.raises(StoreError, match="the store is closed; open a new one"):
            await ask()


async def test_a_connection_that_comes_back_after_the_end_is_closed(url, store, conn):
    driver = PostgresDriver(url, connections=1)
    async with conn.transaction():
        await conn.execute("lock table holdfast.lane")
        under_way = asyncio.create_task(driver.call("lanes"))
        await until(conn, "select count(*) from pg_locks where not granted")
        await driver.close()
    await under_way
    assert driver._pool._idle == []
