"""Events over HTTP: pages, and streams on real connections that break and go on."""

import asyncio
import json
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from holdfast import Holdfast
from holdfast.desk.caller import Caller
from holdfast.http import hub as hubs
from holdfast.http import streaming
from holdfast.http.hub import Hub
from holdfast.http.serving import serve
from tests.http.conftest import SomeKeys, asking, code

PAY = {"type": "pay", "kwargs": {"order": 1}}


class Server:
    """The API of an app on a real port, in this process."""

    def __init__(self, base: str) -> None:
        self.base, url = base, httpx.URL(base)
        assert url.port
        self.host, self.port = url.host, url.port
        self.streams: list[Stream] = []

    async def stream(self, query: str = "", **headers: str) -> "Stream":
        reader, writer = await asyncio.open_connection(self.host, self.port)
        lines = [f"GET /v1/events{query} HTTP/1.1", "Host: localhost"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        writer.write("\r\n".join([*lines, "", ""]).encode())
        head = await reader.readuntil(b"\r\n\r\n")
        self.streams.append(Stream(reader, writer, head.decode()))
        return self.streams[-1]


class Stream:
    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, head: str
    ) -> None:
        self._reader, self._writer, self.head = reader, writer, head

    async def events(self) -> AsyncIterator[dict[str, Any]]:
        id = None
        while line := await self.line():
            name, _, value = line.decode().rstrip("\r\n").partition(": ")
            if name == "id":
                id = int(value)
            elif name == "data":
                event = json.loads(value)
                assert event["seq"] == id
                yield event

    async def line(self) -> bytes:
        """Nothing at the end: its connection may go on."""
        line = await self._reader.readline()
        return b"" if line == b"0\r\n" else line

    def kill(self) -> None:
        self._writer.transport.abort()


@asynccontextmanager
async def served(app: Holdfast, **options: Any) -> AsyncIterator[Server]:
    ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    serving = asyncio.create_task(serve(app, port=0, ready=ready.set_result, **options))
    server = Server(await ready)
    try:
        yield server
    finally:
        for stream in server.streams:
            stream.kill()
        serving.cancel()
        await asyncio.wait({serving})


@asynccontextmanager
async def working(app: Holdfast) -> AsyncIterator[None]:
    lifecycle = app.create_worker_lifecycle("w-1")
    work = asyncio.create_task(app.serve(lifecycle=lifecycle, max_concurrency=20))
    try:
        yield
    finally:
        lifecycle.request_drain()
        await work


async def all_events(http: httpx.AsyncClient) -> list[int]:
    found: list[int] = []
    while page := (await http.get(f"/v1/events?format=json&after={max(found, default=0)}")).json():
        if not page["data"]:
            break
        found += [event["seq"] for event in page["data"]]
    return found


async def test_a_page_of_events_goes_on_after_its_last(app: Holdfast):
    async with asking(app) as http, working(app):
        id = ""
        for _ in range(3):
            id = (await http.post("/v1/tasks", json=PAY)).json()["id"]
            await http.get(f"/v1/tasks/{id}?wait=50", timeout=60)
        first = (await http.get("/v1/events?format=json&limit=2")).json()
        rest = (await http.get(f"/v1/events?format=json&after={first['last']}")).json()
        assert [e["type"] for e in first["data"] + rest["data"]] == ["task.done"] * 3
        assert rest["data"][-1]["task_id"] == id
        assert rest["data"][-1]["worker_id"] == "w-1"
        none = (await http.get("/v1/events?format=json&types=task.failed")).json()
        assert none["data"] == []


async def test_the_newest_number_is_told(app: Holdfast):
    async with asking(app) as http, working(app):
        desk = await app.desk()
        assert await desk.newest_event() == 0
        for _ in range(5):
            id = (await http.post("/v1/tasks", json=PAY)).json()["id"]
            await http.get(f"/v1/tasks/{id}?wait=50", timeout=60)
            assert await desk.newest_event() == (await all_events(http))[-1]


async def follow(server: Server, wanted: asyncio.Future[int], breaks: random.Random) -> list[int]:
    """All events from the first on, over connections that break again and again."""
    seen: list[int] = []
    while not wanted.done() or not seen or seen[-1] < wanted.result():
        headers = {"Last_Event_ID": str(seen[-1])} if seen else {}
        stream = await server.stream("" if seen else "?after=0", **headers)
        left = breaks.randint(30, 150)

        async def read(stream: Stream = stream, left: int = left) -> None:
            async for event in stream.events():
                seen.append(event["seq"])
                if len(seen) % left == 0 or (wanted.done() and seen[-1] >= wanted.result()):
                    return

        reading = asyncio.create_task(read())
        both: set[asyncio.Future[Any]] = {reading, wanted}
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        if wanted.done() and seen and seen[-1] >= wanted.result():
            reading.cancel()
        await asyncio.wait({reading})
        stream.kill()
    return seen


@pytest.mark.timeout(240)
async def test_200_clients_that_break_and_resume_lose_and_double_nothing(
    app: Holdfast, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(hubs, "_MEMORY", 100)  # so that some fall behind it
    count = 300
    async with served(app, streams=250) as server, working(app):
        wanted: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        clients = [
            asyncio.create_task(follow(server, wanted, random.Random(n))) for n in range(200)
        ]
        async with httpx.AsyncClient(base_url=server.base, timeout=100) as http:
            for _ in range(count // 50):
                await http.post("/v1/tasks/batch", json={"tasks": [PAY] * 50})
            while len(events := await all_events(http)) < count:
                await asyncio.sleep(0.1)
        names = [getattr(task.get_coro(), "__qualname__", "") for task in asyncio.all_tasks()]
        assert names.count("Hub._read") == 1
        wanted.set_result(events[-1])
        for seen in await asyncio.gather(*clients):
            assert seen == events


async def test_a_stream_begins_now_and_may_be_of_some_types(app: Holdfast):
    async with (
        served(app) as server,
        working(app),
        httpx.AsyncClient(base_url=server.base, timeout=100) as http,
    ):
        before = (await http.post("/v1/tasks", json=PAY)).json()["id"]
        await http.get(f"/v1/tasks/{before}?wait=50")
        stream = await server.stream("?types=task.failed")
        assert "text/event-stream" in stream.head
        assert "x-accel-buffering: no" in stream.head.lower()
        await http.post("/v1/tasks", json=PAY)
        after = (await http.post("/v1/tasks", json={"type": "fail", "max_tries": 1})).json()
        event = await anext(stream.events())
        assert (event["type"], event["task_id"]) == ("task.failed", after["id"])
        stream.kill()


async def test_a_quiet_stream_gives_a_sign_of_life(local: Holdfast, monkeypatch):
    monkeypatch.setattr(streaming, "_QUIET", 0.05)
    monkeypatch.setattr(hubs, "_TICK", 0.05)
    async with served(local) as server:
        stream = await server.stream()
        while b": still here" not in await stream.line():
            pass
        stream.kill()


async def test_streams_of_one_key_are_bounded_and_places_come_back(local: Holdfast):
    keys = SomeKeys(one=Caller(name="one"), two=Caller(name="two"))
    async with served(local, keys=[keys], streams=2) as server:
        one = {"Authorization": "Bearer one"}
        streams = [await server.stream(**one) for _ in range(2)]
        assert " 429 " in (await server.stream(**one)).head
        assert " 200 " in (await server.stream(Authorization="Bearer two")).head
        streams[0].kill()
        async with asyncio.timeout(60):
            while " 429 " in (again := await server.stream(**one)).head:
                await asyncio.sleep(0.05)
        assert " 200 " in again.head


async def test_the_reader_rests_when_nobody_listens(local: Holdfast):
    hub = Hub(local.desk)
    following = hub.follow(0)
    waiting = asyncio.ensure_future(anext(following))
    while hub._reading is None:
        await asyncio.sleep(0.01)
    reading = hub._reading
    waiting.cancel()
    await asyncio.wait({waiting, reading})
    assert reading.cancelled()


@pytest.mark.parametrize("value", ["x", "-1", "9" * 30])
async def test_a_wrong_number_is_refused(here, value):
    answer = await here.get("/v1/events?format=json", headers={"Last-Event-ID": value})
    assert (answer.status_code, code(answer)) == (400, "invalid_parameter")
    assert (await here.get(f"/v1/events?format=json&after={value}")).status_code == 422


async def test_a_key_of_one_tenant_sees_no_others_events(app: Holdfast):
    keys = SomeKeys(**{name: Caller(name=name, tenant=name) for name in ("acme", "other")})
    async with served(app, keys=[keys]) as server, working(app):
        stream = await server.stream("?after=0", Authorization="Bearer acme")
        id = ""
        for name in ("other", "acme"):
            async with asking(app, name, keys=[keys]) as http:
                id = (await http.post("/v1/tasks", json=PAY)).json()["id"]
                await http.get(f"/v1/tasks/{id}?wait=50", timeout=60)
                page = (await http.get("/v1/events?format=json")).json()
                assert [event["task_id"] for event in page["data"]] == [id]
        assert (await anext(stream.events()))["task_id"] == id
