"""The keepers of the promise, as the contract needs them: to use, to disturb, to cut off."""

import asyncio
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import redis.asyncio

from holdfast.notifier import Hint, Notifier, channel_of
from holdfast.notifiers.datagram import DatagramNotifier
from holdfast.notifiers.local import LocalNotifier
from holdfast.notifiers.messages import Marks
from holdfast.notifiers.postgres import PostgresNotifier
from holdfast.notifiers.redis import RedisNotifier
from holdfast.notifiers.several import SeveralNotifier
from tests.servers import Valkey, ask, free_port

SECRET = "hunter2"
WITHIN = 60.0


class Ears:
    """What was heard, in order."""

    def __init__(self) -> None:
        self.heard: list[Hint] = []
        self._more = asyncio.Event()

    def __call__(self, hint: Hint) -> None:
        self.heard.append(hint)
        self._more.set()

    async def hear(self, *hints: Hint) -> None:
        """Wait until all of these were heard."""
        async with asyncio.timeout(WITHIN):
            while not set(hints) <= set(self.heard):
                self._more.clear()
                await self._more.wait()


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(WITHIN):
        while not condition():
            await asyncio.sleep(0.005)


class Keeper(Protocol):
    def notifier(self, place: str = "here", *, check_every: float = 20.0) -> Notifier: ...

    def lonely(self) -> Notifier:
        """One whose server is down, at an address with a password."""
        ...

    async def shout(self, message: bytes) -> None:
        """Send anything on the channel of the place `here`."""
        ...

    async def break_ears(self) -> None:
        """Cut off whoever listens."""
        ...

    async def break_mouths(self) -> None:
        """Cut off whoever tells."""
        ...


class LocalKeeper:
    def __init__(self, name: str) -> None:
        self._name = name

    def notifier(self, place: str = "here", *, check_every: float = 20.0) -> Notifier:
        return LocalNotifier(f"{self._name}/{place}")

    def lonely(self) -> Notifier:
        return self.notifier("nobody")


class PostgresKeeper:
    def __init__(self, url: str, name: str) -> None:
        self._url = url
        self._name = name
        self.port = urlsplit(url).port or 5432

    def notifier(
        self,
        place: str = "here",
        *,
        check_every: float = 20.0,
        port: int | None = None,
        marks: Marks | None = None,
    ) -> PostgresNotifier:
        return PostgresNotifier(
            _through(self._url, port),
            schema=f"{self._name}_{place}",
            check_every=check_every,
            marks=marks,
        )

    def lonely(self) -> Notifier:
        return PostgresNotifier(f"postgresql://me:{SECRET}@127.0.0.1:{free_port()}/db")

    async def shout(self, message: bytes) -> None:
        text = message.decode("latin-1").replace("\0", "").replace("'", "''")
        self._ask(f"select pg_notify('{channel_of(f'{self._name}_here')}', '{text}')")

    async def break_ears(self) -> None:
        self._terminate("ilike 'listen%' or query = 'select 1'")

    async def break_mouths(self) -> None:
        self._terminate("like '%; notify %'")

    def _terminate(self, query: str) -> None:
        gone = self._ask(
            "select pg_terminate_backend(pid, 5000) from pg_stat_activity "
            f"where datname = current_database() and pid <> pg_backend_pid() and (query {query})"
        )
        assert gone
        assert all(row == (True,) for row in gone)

    def _ask(self, sql: str) -> list[tuple[Any, ...]]:
        return ask(self._url, sql)


class RedisKeeper:
    def __init__(self, server: Valkey, name: str) -> None:
        self._url = server.url
        self._name = name
        self.port = server.port

    def notifier(
        self,
        place: str = "here",
        *,
        check_every: float = 20.0,
        port: int | None = None,
        marks: Marks | None = None,
    ) -> RedisNotifier:
        return RedisNotifier(
            _through(self._url, port),
            name=f"{self._name}:{place}",
            check_every=check_every,
            marks=marks,
        )

    def lonely(self, marks: Marks | None = None) -> RedisNotifier:
        return RedisNotifier(f"redis://:{SECRET}@127.0.0.1:{free_port()}/0", marks=marks)

    async def shout(self, message: bytes) -> None:
        await self._do("publish", f"holdfast:{self._name}:here", message)

    async def break_ears(self) -> None:
        assert await self._do("client", "kill", "type", "pubsub") > 0

    async def break_mouths(self) -> None:
        assert await self._do("client", "kill", "type", "normal", "skipme", "yes") > 0

    async def _do(self, *words: str | bytes) -> Any:
        async with redis.asyncio.Redis.from_url(self._url) as client:
            return await client.execute_command(*words)


class SeveralKeeper:
    """Disturbed where it hurts: at Redis. Each notifier is like one of another process."""

    def __init__(self, quick: RedisKeeper, own: PostgresKeeper) -> None:
        self.quick, self.own = quick, own
        self.port = quick.port
        self.shout, self.break_ears = quick.shout, quick.break_ears
        self.break_mouths = quick.break_mouths

    def notifier(
        self,
        place: str = "here",
        *,
        check_every: float = 20.0,
        port: int | None = None,
        process: str | None = None,
    ) -> Notifier:
        return SeveralNotifier(
            process or uuid4().hex,
            quick=lambda marks: self.quick.notifier(
                place, check_every=check_every, port=port, marks=marks
            ),
            own=lambda marks: self.own.notifier(place, check_every=check_every, marks=marks),
        )

    def lonely(self, place: str = "nobody", process: str | None = None) -> Notifier:
        return SeveralNotifier(
            process or uuid4().hex,
            quick=lambda marks: self.quick.lonely(marks),
            own=lambda marks: self.own.notifier(place, marks=marks),
        )


class DatagramKeeper:
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def notifier(self, place: str = "here", *, check_every: float = 20.0) -> DatagramNotifier:
        return DatagramNotifier(
            self._folder / f"{place}.db", parent=self._folder, check_every=check_every
        )

    def lonely(self) -> Notifier:
        """The folder is none of ours."""
        notifier = self.notifier("open to all")
        notifier.folder.mkdir()
        notifier.folder.chmod(0o777)
        return notifier

    async def shout(self, message: bytes) -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as mouth:
            for ear in self.sockets():
                mouth.sendto(message, str(ear))

    async def break_ears(self) -> None:
        for ear in self.sockets():
            ear.unlink()

    def sockets(self) -> list[Path]:
        found = list(self.notifier().folder.glob("*.sock"))
        assert found
        return found


def _through(url: str, port: int | None) -> str:
    """The same by another port, where one is given."""
    if port is None:
        return url
    parts = urlsplit(url)
    login = parts.netloc.rpartition("@")[0]
    return urlunsplit(parts._replace(netloc=f"{login}@127.0.0.1:{port}"))
