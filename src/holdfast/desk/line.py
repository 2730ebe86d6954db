"""The line to an API: one request at a time over the standard library's HTTP, in threads. Says in
our own errors what goes wrong, and never what key it carries."""

import asyncio
import http.client
import socket
import ssl
from contextlib import suppress
from typing import Any, NamedTuple
from urllib.parse import urlencode, urlsplit

import msgspec

from holdfast.errors import InvalidInput, NotAStore, StoreUnreachable
from holdfast.version import __version__

__all__ = ["Answer", "Line", "ProblemAnswer"]

_CONNECT, _PATIENCE = 10.0, 35.0
_LONGEST = 256 << 20


class ProblemAnswer(msgspec.Struct, frozen=True):
    """As RFC 9457 has it, and as proxies may say less of it."""

    status: int = 0
    title: str = ""
    detail: str = ""
    code: str = ""


class Answer(NamedTuple):
    status: int
    media: str
    body: bytes

    def problem(self) -> ProblemAnswer:
        if "json" in self.media:
            with suppress(msgspec.DecodeError):
                return msgspec.json.decode(self.body, type=ProblemAnswer)
        return ProblemAnswer(status=self.status)


class Line:
    """`url`: http://host:8000, or with a path where the API is mounted. `token`: the key."""

    def __init__(self, url: str, token: str | None) -> None:
        parts = urlsplit(url if isinstance(url, str) else "")
        try:
            host, self._port = parts.hostname, parts.port
        except ValueError:
            host = None
        if parts.scheme not in ("http", "https") or not host:
            raise InvalidInput("an API is given by a URL such as http://127.0.0.1:8000")
        if parts.username or parts.password or parts.query:
            raise InvalidInput(
                "the URL of an API holds no key: put it into a file, and name it with --token-file "
                "or HOLDFAST_TOKEN_FILE"
            )
        if token is not None and not (token.isascii() and token.isprintable() and token):
            raise InvalidInput("the key is no line of ASCII characters; check its file")
        self._scheme, self._host, self._token = parts.scheme, host, token
        self._prefix = parts.path.rstrip("/")
        self.name = f"{parts.scheme}://{parts.netloc}{self._prefix}"

    async def ask(
        self,
        method: str,
        path: str,
        *,
        query: dict[str, Any] | None = None,
        body: bytes | None = None,
        patience: float = 0.0,
        key: str | None = None,
    ) -> Answer:
        """`patience`: seconds that the other side may take beyond the usual."""
        if key is not None and not (key.isascii() and key.isprintable() and key):
            raise InvalidInput("an idempotency key is a line of ASCII characters")
        given = {name: _word(value) for name, value in (query or {}).items() if value is not None}
        target = f"{self._prefix}{path}" + (f"?{urlencode(given)}" if given else "")
        conn = self._connection()
        asked = asyncio.get_running_loop().run_in_executor(
            None, self._exchange, conn, method, target, body, patience, key
        )
        try:
            return await asked
        except asyncio.CancelledError:
            _hang_up(conn)  # the thread would wait for an answer that nobody wants
            raise

    def _connection(self) -> http.client.HTTPConnection:
        if self._scheme == "http":
            return http.client.HTTPConnection(self._host, self._port, timeout=_CONNECT)
        context = ssl.create_default_context()
        return http.client.HTTPSConnection(
            self._host, self._port, timeout=_CONNECT, context=context
        )

    def _exchange(
        self,
        conn: http.client.HTTPConnection,
        method: str,
        target: str,
        body: bytes | None,
        patience: float,
        key: str | None,
    ) -> Answer:
        headers = {"Accept": "application/json", "User-Agent": f"holdfast/{__version__}"}
        if body is not None:
            headers["Content-Type"] = "application/json"
        if key is not None:
            headers["Idempotency-Key"] = key
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        try:
            conn.connect()
            conn.sock.settimeout(_PATIENCE + patience)
            conn.request(method, target, body, headers)
            response = conn.getresponse()
            read = response.read(_LONGEST + 1)
        except (OSError, http.client.HTTPException) as error:
            raise StoreUnreachable(
                f"the API at {self.name} does not answer: {_why(error)}; check that it runs and "
                "that its address is right"
            ) from None
        finally:
            conn.close()
        if len(read) > _LONGEST:
            raise NotAStore(f"{self.name} answers more than a Holdfast API would; check --api")
        return Answer(response.status, response.headers.get("Content-Type", ""), read)


def _word(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _why(error: Exception) -> str:
    match error:
        case TimeoutError():
            return "no answer in time"
        case ssl.SSLCertVerificationError():
            return f"its certificate is not trusted ({error.verify_message})"
        case OSError():
            return error.strerror or type(error).__name__
        case _:
            return f"it speaks no HTTP ({type(error).__name__})"


def _hang_up(conn: http.client.HTTPConnection) -> None:
    sock: socket.socket | None = conn.sock
    if sock is not None:
        with suppress(OSError):
            sock.shutdown(socket.SHUT_RDWR)
