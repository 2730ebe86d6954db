"""The API on a port of its own, until a signal ends it."""

import asyncio
import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

import uvicorn
from fastapi import FastAPI

from holdfast.app import Holdfast
from holdfast.errors import InvalidInput
from holdfast.http.api import make_api
from holdfast.http.auth import is_loopback
from holdfast.http.house import House
from holdfast.http.patient import Patient

__all__ = ["check_bind", "serve"]

_HEAD = 32 * 1024  # bytes of a request's line and headers
_CONNECTIONS = 2000
_FAREWELL = 10  # seconds for what is under way


async def check_bind(api: FastAPI, host: str) -> None:
    """Others than this machine are let in only where there are keys."""
    house: House = api.state.house
    if not is_loopback(host) and not await house.door.locked():
        raise InvalidInput(
            f"{host} can be reached from outside, and there is no key: set HOLDFAST_API_KEY (or "
            "HOLDFAST_API_KEY_FILE), or listen on 127.0.0.1"
        )


async def serve(
    app: Holdfast,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    ready: Callable[[str], None] = lambda address: None,
    **options: Any,
) -> bool:
    """Until it is told to end; False: it could not start. `ready` hears the address."""
    api = make_api(app, **options)
    await check_bind(api, host)
    settings = uvicorn.Config(
        api,
        host=host,
        port=port,
        http=Patient,
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,  # whoever sends X-Forwarded-For is not believed
        h11_max_incomplete_event_size=_HEAD,
        limit_concurrency=_CONNECTIONS,
        timeout_keep_alive=15,
        timeout_graceful_shutdown=_FAREWELL,
    )
    server = _Server(settings, api.state.house, ready)
    try:
        await server.serve()
    except asyncio.CancelledError:
        if server.started:
            await server.shutdown()
        raise
    return server.started


class _Server(uvicorn.Server):
    """Streams end before it waits for them; a signal ends it and is not raised again."""

    def __init__(self, config: uvicorn.Config, house: House, ready: Callable[[str], None]) -> None:
        super().__init__(config)
        self._house, self._ready = house, ready

    async def startup(self, sockets: Any = None) -> None:
        await super().startup(sockets)
        if self.started:
            host, port = self.servers[0].sockets[0].getsockname()[:2]
            self._ready(f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}")

    async def shutdown(self, sockets: Any = None) -> None:
        await self._house.close()
        await super().shutdown(sockets)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        numbers = (signal.SIGINT, signal.SIGTERM)
        before = {number: signal.signal(number, self.handle_exit) for number in numbers}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
