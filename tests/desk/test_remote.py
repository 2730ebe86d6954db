"""The desk over HTTP, where the other side is not what it should be. That both desks answer alike
is shown by the tests of the command line, which run over both."""

import asyncio
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from uuid import UUID

import pytest

from holdfast.desk.remote import RemoteDesk
from holdfast.desk.shapes import NewTask, TaskQuery
from holdfast.errors import (
    HoldfastError,
    InvalidInput,
    KeyConflict,
    NotAStore,
    Refused,
    StoreError,
    StoreUnreachable,
    UnknownTask,
    UnknownType,
    UnknownWorker,
)

SECRET = "hf_0123456789ab_s3cret"
ID = UUID("01890000-0000-7000-8000-000000000000")
PROBLEM = "application/problem+json"


class Other:
    """The other side: answers everything the same way, and remembers what it was asked."""

    def __init__(self) -> None:
        self.status, self.media, self.body = 200, "application/json", b"{}"
        self.asked: list[tuple[str, str, dict[str, str], bytes]] = []
        self.waits = threading.Event()
        self.waits.set()
        other = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                other.asked.append((self.command, self.path, dict(self.headers), body))
                other.waits.wait(60)
                self.send_response(other.status)
                self.send_header("Content-Type", other.media)
                self.send_header("Content-Length", str(len(other.body)))
                self.end_headers()
                self.wfile.write(other.body)

            do_POST = do_GET  # noqa: N815

            def log_message(self, *_: Any) -> None: ...

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def problem(self, status: int, code: str, detail: str) -> None:
        self.status, self.media = status, PROBLEM
        self.body = f'{{"code": "{code}", "detail": "{detail}", "status": {status}}}'.encode()


@pytest.fixture
def other() -> Iterator[Other]:
    other = Other()
    thread = threading.Thread(target=other.server.serve_forever, args=(0.01,))
    thread.start()
    yield other
    other.waits.set()
    other.server.shutdown()
    thread.join()
    other.server.server_close()


@pytest.mark.parametrize(
    ("status", "code", "error"),
    [
        (404, "not_found", UnknownTask),
        (401, "unauthenticated", Refused),
        (403, "forbidden", Refused),
        (422, "invalid_input", InvalidInput),
        (400, "invalid_parameter", InvalidInput),
        (429, "too_many", StoreUnreachable),
        (503, "store_unreachable", StoreUnreachable),
        (500, "internal", StoreError),
    ],
)
async def test_problems_are_our_own_errors_again(
    other: Other, status: int, code: str, error: type[HoldfastError]
):
    other.problem(status, code, "what to do")
    with pytest.raises(error) as raised:
        await RemoteDesk(other.url, token=SECRET).task(ID)
    assert SECRET not in str(raised.value)
    if error is not UnknownTask:
        assert "what to do" in str(raised.value)


async def test_errors_say_what_they_are_about(other: Other):
    desk = RemoteDesk(other.url)
    other.problem(404, "not_found", "there is no such thing here")
    with pytest.raises(UnknownWorker, match="no worker is known as 'web:1'"):
        await desk.worker("web:1")
    with pytest.raises(UnknownTask, match=str(ID)):
        await desk.cancel([ID])
    other.problem(409, "key_conflict", f"this key belongs to task {ID}")
    with pytest.raises(KeyConflict) as taken:
        await desk.submit([NewTask(type="t", idempotency_key="k")])
    assert (taken.value.key, taken.value.existing) == ("k", str(ID))
    other.problem(422, "unknown_type", "no function is registered as 't'; known are: u")
    with pytest.raises(UnknownType, match="known are: u") as unknown:
        await desk.submit([NewTask(type="t")])
    assert unknown.value.type == "t"
    other.problem(409, "not_possible", "the function has ended")
    assert await desk.signal(ID, "approved") is False


@pytest.mark.parametrize(
    ("status", "media", "body"),
    [
        (200, "text/html", b"<html>"),
        (200, "application/json", b'{"nothing": 1}'),
        (404, "text/html", b"<html>no such page</html>"),
        (302, "text/html", b""),
    ],
)
async def test_what_is_no_api_is_called_so(other: Other, status: int, media: str, body: bytes):
    other.status, other.media, other.body = status, media, body
    with pytest.raises(NotAStore, match="is no Holdfast API"):
        await RemoteDesk(other.url, token=SECRET).task(ID)


async def test_an_api_that_is_not_there_or_hangs_up(other: Other):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(StoreUnreachable, match=rf"127.0.0.1:{port} does not answer") as raised:
        await RemoteDesk(f"http://127.0.0.1:{port}", token=SECRET).queues()
    assert SECRET not in str(raised.value)
    with socket.create_server(("127.0.0.1", 0)) as rude:
        threading.Thread(target=lambda: rude.accept()[0].close()).start()
        with pytest.raises(StoreUnreachable, match="does not answer"):
            await RemoteDesk(f"http://127.0.0.1:{rude.getsockname()[1]}").queues()


async def test_the_key_goes_in_a_header_and_names_are_quoted(other: Other):
    other.problem(422, "invalid_input", "no")
    desk = RemoteDesk(f"{other.url}/mounted/", token=SECRET)
    with pytest.raises(InvalidInput):
        await desk.queue("a/b ?#é")
    with pytest.raises(InvalidInput):
        await desk.tasks(TaskQuery(queue="a&b", limit=9))
    (_, first, headers, _), (_, second, _, _) = other.asked
    assert first == "/mounted/v1/queues/a%2Fb%20%3F%23%C3%A9"
    assert second == "/mounted/v1/tasks?queue=a%26b&limit=9"
    assert headers["Authorization"] == f"Bearer {SECRET}"


@pytest.mark.parametrize("url", ["", "ftp://x", "http://", "http://x:port", "127.0.0.1:8000"])
def test_what_is_no_address_is_refused(url: str):
    with pytest.raises(InvalidInput, match="such as http"):
        RemoteDesk(url)


@pytest.mark.parametrize("url", [f"http://me:{SECRET}@x", f"http://x?key={SECRET}"])
def test_a_key_in_an_address_is_refused_and_not_repeated(url: str):
    with pytest.raises(InvalidInput, match="holds no key") as raised:
        RemoteDesk(url)
    assert SECRET not in str(raised.value)


@pytest.mark.parametrize("token", [f"{SECRET}\r\nX: y", "", f"{SECRET}é"])
def test_a_key_that_would_break_the_header_is_refused_and_not_repeated(token: str):
    with pytest.raises(InvalidInput) as raised:
        RemoteDesk("http://x", token=token)
    assert SECRET not in str(raised.value)


async def test_whoever_stops_waiting_does_not_wait_for_the_thread(other: Other):
    other.waits.clear()
    asking = asyncio.create_task(RemoteDesk(other.url).result(ID, wait=30))
    while not other.asked:
        await asyncio.sleep(0.01)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    async with asyncio.timeout(20):  # the thread hears of it: the line was cut
        await asyncio.get_running_loop().shutdown_default_executor()
