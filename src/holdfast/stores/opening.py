"""From a URL to a store."""

from pathlib import Path
from urllib.parse import parse_qsl, urlencode, urlunsplit

from holdfast.clock import Clock, SystemClock
from holdfast.errors import InvalidInput
from holdfast.stores.driver import Driver
from holdfast.stores.sql import SqlStore

__all__ = ["open_store", "postgres_parts"]

_OURS = ("schema", "public_views", "connections", "transactions", "listen_url")

_SCHEMES = "sqlite:///file.db, sqlite:////absolute/file.db, sqlite://:memory: or postgresql://…"


async def open_store(
    url: str,
    *,
    clock: Clock | None = None,
    migrate: bool = True,
    check: bool = True,
    public_views: bool = True,
    connections: int = 8,
    transactions: int | None = None,
) -> SqlStore:
    """Open the store at `url` and bring its schema up to date, or check that it fits; or neither,
    for those who only want to look at the schema.

    `sqlite:///holdfast.db` is a file in the working directory; `?synchronous=normal` trades the
    last moments before a power cut for speed. `postgresql://user:password@host/db?schema=name`
    takes what asyncpg takes, and the schema to live in. For PostgreSQL only, also in the URL
    (`?public_views=0&connections=4`): whether the views for people also go into `public`, and how
    many connections the store may open, how many functions may have a transaction open at once
    (`transactions`), and where to listen for hints (`listen_url`, past a pooler).
    """
    driver = _driver(url, clock or SystemClock(), public_views, connections, transactions)
    store = SqlStore(driver)
    try:
        if migrate:
            await driver.migrate()
        elif check:
            await driver.check()
    except BaseException:
        await store.close()
        raise
    return store


def _driver(
    url: str, clock: Clock, public_views: bool, connections: int, transactions: int | None
) -> Driver:
    if not isinstance(url, str) or "://" not in url:
        raise InvalidInput(f"a store is given by a URL such as {_SCHEMES}")
    scheme = url.split("://", 1)[0]
    match scheme:
        case "sqlite":
            return _sqlite(url, clock)
        case "postgresql" | "postgres":
            return _postgres(url, public_views, connections, transactions)
        case _:
            raise InvalidInput(f"no store speaks {scheme}://; use {_SCHEMES}")


def _sqlite(url: str, clock: Clock) -> Driver:
    from holdfast.stores.sqlite.driver import SqliteDriver

    place, _, query = url.removeprefix("sqlite://").partition("?")
    synchronous = _options(query, {"synchronous"}).get("synchronous", "full")
    if place == ":memory:":
        return SqliteDriver(":memory:", clock=clock, synchronous=synchronous)
    if not place.startswith("/") or place == "/":
        raise InvalidInput(f"{url!r} names no file; use {_SCHEMES}")
    return SqliteDriver(str(Path(place[1:])), clock=clock, synchronous=synchronous)


def _postgres(url: str, public_views: bool, connections: int, transactions: int | None) -> Driver:
    from holdfast.stores.postgres.driver import PostgresDriver

    plain, own = postgres_parts(url)
    return PostgresDriver(
        plain,
        schema=own.get("schema", "holdfast"),
        public_views=_yes_or_no("public_views", own.get("public_views", str(int(public_views)))),
        connections=_number("connections", own.get("connections", str(connections))),
        transactions=transactions or _number("transactions", own.get("transactions", "32")),
    )


def postgres_parts(url: str) -> tuple[str, dict[str, str]]:
    """The URL as asyncpg takes it, and the options in it that are ours."""
    from holdfast.stores.postgres.address import check_url

    parts = check_url(url)
    query = dict(parse_qsl(parts.query))
    own = {name: query.pop(name) for name in _OURS if name in query}
    return urlunsplit(parts._replace(query=urlencode(query))), own


def _options(query: str, known: set[str]) -> dict[str, str]:
    options = dict(parse_qsl(query, keep_blank_values=True))
    if unknown := options.keys() - known:
        raise InvalidInput(
            f"the store's URL has unknown options {sorted(unknown)}; known: {sorted(known)}"
        )
    return options


def _yes_or_no(name: str, text: str) -> bool:
    if text not in ("0", "1", "false", "true", "no", "yes"):
        raise InvalidInput(f"{name} in the store's URL is 0 or 1, not {text!r:.80}")
    return text in ("1", "true", "yes")


def _number(name: str, text: str) -> int:
    if not text.isdecimal():
        raise InvalidInput(f"{name} in the store's URL must be a whole number, not {text!r:.80}")
    return int(text)
