"""Stores and notifications by name, for those who like to spell them out."""

import os

from holdfast.errors import InvalidInput

__all__ = ["Backends", "Notifications", "PostgresBackend", "RedisBackend", "SQLiteBackend"]


class Backend:
    """A store that is not open yet."""

    def __init__(self, url: str) -> None:
        self.url = url

    def __repr__(self) -> str:  # a URL may hold a password
        return f"<{type(self).__name__}>"

    async def init_db(self) -> None:
        """Create the tables, or bring them up to this release. May be done at any time, by many
        at once; the first use does it too."""
        from holdfast.stores.opening import open_store

        if self.url.startswith("sqlite://:memory:"):
            return  # it lives as long as its store
        await (await open_store(self.url)).close()


class SQLiteBackend(Backend):
    """One file, no server. `:memory:` lives as long as its app."""

    def __init__(
        self, path: str | os.PathLike[str] = "holdfast.db", *, synchronous: str = "full"
    ) -> None:
        place = os.fspath(path)
        if "?" in place:
            raise InvalidInput(f"a store's file cannot have a ? in its name, got {place!r:.80}")
        where = place if place == ":memory:" else f"/{place}"
        super().__init__(f"sqlite://{where}?synchronous={synchronous}")


class PostgresBackend(Backend):
    """A PostgreSQL database that many machines share."""

    def __init__(self, url: str) -> None:
        if not url.startswith(("postgresql://", "postgres://")):
            raise InvalidInput("PostgresBackend takes a URL such as postgresql://user@host/db")
        super().__init__(url)


class RedisBackend:
    """Wake-ups through Redis or Valkey."""

    def __init__(self, url: str) -> None:
        if not url.startswith(("redis://", "rediss://", "unix://")):
            raise InvalidInput("RedisBackend takes a URL such as redis://localhost:6379")
        self.url = url

    def __repr__(self) -> str:
        return "<RedisBackend>"


class Backends:
    SQLiteBackend = SQLiteBackend
    PostgresBackend = PostgresBackend


class Notifications:
    RedisBackend = RedisBackend
