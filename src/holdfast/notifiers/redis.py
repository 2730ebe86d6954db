"""Hints through Redis or Valkey: publish and subscribe."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from holdfast.errors import InvalidInput
from holdfast.notifier import Hint
from holdfast.notifiers.address import where
from holdfast.notifiers.ear import Ear, Heard
from holdfast.notifiers.messages import Marks, pack
from holdfast.notifiers.outage import Outage
from holdfast.notifiers.outbox import Outbox

if TYPE_CHECKING:
    from redis.asyncio import Redis
    from redis.asyncio.client import PubSub

__all__ = ["RedisNotifier"]

_PATIENCE = 5.0
_LIMIT = 60_000
_SCHEMES = ("redis", "rediss", "unix")


class RedisNotifier:
    """`name`: who shares it hears each other; the number of the database in `url` does not
    matter for that. `check_every`: seconds of quiet after which the server is asked whether it
    still lives."""

    def __init__(
        self,
        url: str,
        *,
        name: str = "holdfast",
        check_every: float = 20.0,
        marks: Marks | None = None,
    ) -> None:
        place = where(url, *_SCHEMES)
        self._channel = f"holdfast:{name}"
        self._check_every = check_every
        self._marks = marks or Marks()
        self._client = _client(url)
        self._outbox = Outbox(self._send, Outage(f"telling hints through Redis at {place}"))
        self._ear = Ear(self._hear, Outage(f"listening to Redis at {place}"), self._marks)

    @property
    def hears(self) -> bool:
        """What is published now is heard."""
        return self._ear.hears

    @property
    def has_told_all(self) -> bool:
        return self._outbox.is_empty

    @property
    def fails(self) -> bool:
        """The last try to tell did."""
        return self._outbox.fails

    def tell(self, hints: Iterable[Hint]) -> None:
        self._outbox.tell(hints)

    async def listen(self, heard: Heard) -> None:
        await self._ear.listen(heard)

    def leave(self, heard: Heard) -> None:
        self._ear.leave(heard)

    async def close(self) -> None:
        await self._ear.close()
        await self._outbox.close()
        await self._client.aclose()

    async def _send(self, hints: list[Hint]) -> None:
        for message in pack(hints, _LIMIT, self._marks.write()):
            await self._client.publish(self._channel, message)

    async def _hear(self) -> None:
        ear = self._client.pubsub()
        try:
            await ear.subscribe(self._channel)
            await self._attend(ear)
        finally:
            await ear.aclose()  # type: ignore[no-untyped-call]

    async def _attend(self, ear: "PubSub") -> None:
        """Until the server falls silent: it must answer `subscribe`, and then every ping."""
        asked = True
        while True:
            said = await ear.get_message(timeout=_PATIENCE if asked else self._check_every)
            match said:
                case {"type": "subscribe"}:
                    self._ear.ready()
                case {"type": "message", "data": str() | bytes() as data}:
                    self._ear.take(data)
                case None if asked:
                    raise TimeoutError("the server does not answer")
                case None:
                    await ear.ping()
            asked = said is None


def _client(url: str) -> "Redis":
    """One that reports every break: if it mended them itself, nobody would know of the gap."""
    try:
        from redis.asyncio import Redis
        from redis.asyncio.retry import Retry
        from redis.backoff import NoBackoff
    except ImportError:
        raise InvalidInput(
            "hints through Redis need a client; pip install 'holdfast[redis]'"
        ) from None
    try:
        return Redis.from_url(
            url,
            socket_timeout=_PATIENCE,
            socket_connect_timeout=_PATIENCE,
            health_check_interval=0,
            retry=Retry(NoBackoff(), 0),
        )
    except ValueError:  # may quote any part of the URL
        raise InvalidInput(
            "the URL for hints through Redis cannot be used; write redis://user:password@host:port"
        ) from None
