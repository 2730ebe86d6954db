"""The servers that hold the queues, and an empty place on them for every measurement."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

import redis
from tests.servers import Postgres, Valkey, ask, fresh_database

from bench.peers.roster import Store

__all__ = ["DurableValkey", "Stores", "settle"]


class DurableValkey(Valkey):
    """With `appendfsync always`, what it acknowledges is on disk, as with the databases."""

    name = "valkey-durable"

    def __init__(self, *, appendfsync: str) -> None:
        super().__init__()
        self._appendfsync = appendfsync

    def command(self) -> list[str]:
        return [
            *super().command(),
            *("--appendonly", "yes"),
            *("--appendfsync", self._appendfsync),
            *("--auto-aof-rewrite-percentage", "0"),
        ]


class Stores:
    """All servers, for the length of a run."""

    def __init__(self, *, appendfsync: str) -> None:
        self._postgres = Postgres.current()
        self._valkey = DurableValkey(appendfsync=appendfsync)

    def __enter__(self) -> Self:
        self._postgres.start()
        try:
            self._valkey.start()
        except BaseException:
            self._postgres.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._valkey.stop()
        self._postgres.stop()

    @contextmanager
    def fresh(self, store: Store) -> Iterator[str]:
        """The URL of an empty queue."""
        match store:
            case "postgres":
                with fresh_database(self._postgres) as url:
                    yield url
            case "redis":
                with redis.Redis.from_url(self._valkey.url) as client:
                    client.flushall()
                yield self._valkey.url
            case "sqlite":
                with tempfile.TemporaryDirectory() as folder:
                    yield f"sqlite:///{Path(folder) / 'queue.db'}"


def settle(url: str) -> None:
    """A store that has digested the backlog: the planner knows it, and its pages are written."""
    if url.startswith("postgres"):
        ask(url, "vacuum analyze")
        ask(url, "checkpoint")
