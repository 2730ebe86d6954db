"""How streams and long answers end: with the key that asked, or since nobody reads them."""

import asyncio
import select
import socket
from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import pytest

from holdfast import Holdfast
from holdfast.desk.caller import Caller
from holdfast.http import hub as hubs
from holdfast.http import streaming
from holdfast.http.hub import Hub, Told
from holdfast.http.patient import Patient
from tests.http.conftest import KEY, SomeKeys, asking, asking_api, code
from tests.http.test_events import PAY, Server, served, working


class Revocable(SomeKeys):
    """Keys that can be taken back."""

    def revoke(self, key: str) -> None:
        del self._callers[key]


def endless(monkeypatch: pytest.MonkeyPatch, size: int = 100_000) -> None:
    """A hub that has more to tell than any buffer holds."""
    line = b"data: " + b"x" * size + b"\n\n"

    async def follow(self: Hub, place: int) -> AsyncIterator[list[Told]]:
        for seq in range(10_000):
            await asyncio.sleep(0)
            yield [Told(seq, "task.done", line)]

    monkeypatch.setattr(Hub, "follow", follow)


def deaf(
    server: Server, path: str, key: str | None = None, *, times: int = 1, window: int = 4096
) -> socket.socket:
    """A client that asks, perhaps for more than any buffer holds, and does not read."""
    wire = socket.socket()
    wire.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, window)
    wire.connect((server.host, server.port))
    lines = [f"GET {path} HTTP/1.1", "Host: localhost"]
    lines += [f"Authorization: Bearer {key}"] if key else []
    wire.sendall("\r\n".join([*lines, "", ""]).encode() * times)
    wire.setblocking(False)
    return wire


def was_hung_up_on(wire: socket.socket) -> bool:
    """Seen without reading."""
    looking = select.poll()
    looking.register(wire, select.POLLRDHUP)
    return bool(looking.poll(0))


async def test_a_stream_ends_within_a_second_of_the_revocation_of_its_key(app: Holdfast):
    async with asking(app, KEY, api_key=KEY) as http, served(app, api_key=KEY) as server:
        wish = {"name": "follower", "scopes": ["tasks:read"]}
        made = (await http.post("/v1/keys", json=wish)).json()
        stream = await server.stream(Authorization=f"Bearer {made['key']}")
        kept = await server.stream(Authorization=f"Bearer {KEY}")
        assert await stream.line()
        await http.post(f"/v1/keys/{made['record']['id']}:revoke")
        async with asyncio.timeout(5):
            while await stream.line():
                pass
        assert " 401 " in (await server.stream(Authorization=f"Bearer {made['key']}")).head
        pay = app.functions.find("pay")
        async with working(app):
            await app.dispatch(pay, 1)
            assert await anext(kept.events())


async def test_nothing_that_happens_after_a_revocation_is_told(local: Holdfast, monkeypatch):
    monkeypatch.setattr(hubs, "_TICK", 60)  # so that only what happens brings anything
    keys = Revocable(one=Caller(name="one"))
    async with served(local, keys=[keys]) as server:
        stream = await server.stream("?after=0", Authorization="Bearer one")
        async with working(local):
            pay = local.functions.find("pay")
            await local.dispatch(pay, 1)
            assert await anext(stream.events())
            keys.revoke("one")
            await local.dispatch(pay, 2)
            async with asyncio.timeout(60):
                assert [event async for event in stream.events()] == []


async def test_a_stream_without_a_key_ends_when_the_door_gets_a_lock(local: Holdfast):
    keys = Revocable()
    async with served(local, keys=[keys]) as server:
        stream = await server.stream()
        assert " 200 " in stream.head
        keys._callers["one"] = Caller(name="one")
        async with asyncio.timeout(60):
            while await stream.line():
                pass


async def test_a_key_that_was_revoked_while_it_waited_is_shown_nothing(local: Holdfast):
    keys = Revocable(one=Caller(name="one"), two=Caller(name="two"))
    api = local.asgi(keys=[keys])
    async with asking_api(api, "one") as one, asking_api(api, "two") as two:
        id = (await two.post("/v1/tasks", json=PAY)).json()["id"]
        waiting = asyncio.create_task(one.get(f"/v1/tasks/{id}/result?wait=50"))
        await asyncio.sleep(0.6)  # long enough to be asked again
        keys.revoke("one")
        await two.post(f"/v1/tasks/{id}:cancel")
        answer = await waiting
        assert (answer.status_code, code(answer)) == (401, "unauthorized")


async def test_tasks_are_not_handed_to_a_key_that_was_revoked_while_it_waited(local: Holdfast):
    keys = Revocable(one=Caller(name="one"), two=Caller(name="two"))
    api = local.asgi(keys=[keys])
    async with asking_api(api, "one") as one, asking_api(api, "two") as two:
        wish = {"worker_id": "far", "types": ["pay"]}
        worker = (await one.post("/v1/workers", json=wish)).json()["worker"]
        claim = {"worker": worker, "request_id": str(uuid4()), "wait": 30}
        waiting = asyncio.create_task(one.post("/v1/claims", json=claim))
        while (await two.get("/v1/workers/far")).json()["status"] != "ready":
            await asyncio.sleep(0.01)
        keys.revoke("one")
        id = (await two.post("/v1/tasks", json=PAY)).json()["id"]
        assert (await waiting).json()["data"] == []
        view = (await two.get(f"/v1/tasks/{id}")).json()
        assert (view["status"], view["try_count"]) == ("pending", 0)


async def test_a_stream_that_nobody_reads_is_closed_and_its_place_comes_back(
    local: Holdfast, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(Patient, "READING", 0.3)
    keys = SomeKeys(one=Caller(name="one"))
    one = {"Authorization": "Bearer one"}
    async with served(local, keys=[keys], streams=1) as server:
        endless(monkeypatch)
        with deaf(server, "/v1/events?after=0", "one") as wire:
            async with asyncio.timeout(60):
                while not was_hung_up_on(wire):
                    await asyncio.sleep(0.02)
                while " 429 " in (again := await server.stream(**one)).head:
                    await asyncio.sleep(0.02)
            assert " 200 " in again.head


async def test_a_stream_that_is_read_slowly_goes_on(
    local: Holdfast, monkeypatch: pytest.MonkeyPatch
):
    """As long as it is read at all, also where one part of it takes longer than the patience."""
    monkeypatch.setattr(Patient, "READING", 0.5)
    async with served(local) as server:
        endless(monkeypatch, 4_000_000)
        loop, read = asyncio.get_running_loop(), 0
        with deaf(server, "/v1/events?after=0", window=200_000) as wire:
            until = loop.time() + 3
            while loop.time() < until:
                got = len(await loop.sock_recv(wire, 65_536))
                assert got, "it was closed"
                read += got
                await asyncio.sleep(0.02)
        assert read > 100_000


async def test_an_answer_that_nobody_reads_is_not_kept(
    local: Holdfast, monkeypatch: pytest.MonkeyPatch
):
    """Not only of streams: what was answered is done with, but still in memory."""
    monkeypatch.setattr(Patient, "READING", 0.3)
    task = await local.dispatch(local.functions.find("pay"), 1, "x" * 900_000)
    async with served(local) as server:
        with deaf(server, f"/v1/tasks/{task.id}/arguments", times=10) as wire:
            async with asyncio.timeout(60):
                while not was_hung_up_on(wire):
                    await asyncio.sleep(0.02)


async def test_under_another_server_too_a_stream_that_nobody_reads_ends(
    local: Holdfast, monkeypatch: pytest.MonkeyPatch
):
    """One that has no patience of its own: it only waits until there is room."""
    monkeypatch.setattr(streaming, "_PATIENCE", 0.2)
    api = local.asgi()
    stuck = asyncio.Event()

    async def receive() -> dict[str, Any]:
        await asyncio.Event().wait()
        raise AssertionError

    async def send(message: dict[str, Any]) -> None:
        if message["type"] == "http.response.body":
            stuck.set()
            await asyncio.Event().wait()

    for spec in ("2.3", "2.4"):
        scope = {
            "type": "http", "method": "GET", "path": "/v1/events", "raw_path": b"/v1/events",
            "query_string": b"", "headers": [(b"host", b"localhost")], "client": ("127.0.0.1", 1),
            "http_version": "1.1", "scheme": "http", "server": ("localhost", 80), "root_path": "",
            "asgi": {"version": "3.0", "spec_version": spec},
        }  # fmt: skip
        async with asyncio.timeout(60):
            await api(scope, receive, send)
    assert stuck.is_set()
    assert not api.state.house.hubs._streams
