"""A store for the bench alone, gone afterwards."""

import contextlib
import os
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from holdfast.stores.opening import open_store

__all__ = ["place"]

_NAME = "holdfast_bench"


@contextlib.asynccontextmanager
async def place(store: str | None) -> AsyncIterator[str]:
    """The URL of an empty store beside the given one."""
    if store is not None and not store.startswith("sqlite:"):
        async with _schema(store) as url:
            yield url
    else:
        with _file(store) as url:
            yield url


@contextlib.asynccontextmanager
async def _schema(store: str) -> AsyncIterator[str]:
    parts, schema = urlsplit(store), f"{_NAME}_{os.getpid()}"
    query = {**dict(parse_qsl(parts.query)), "schema": schema, "public_views": "0"}
    url = urlunsplit(parts._replace(query=urlencode(query)))
    try:
        yield url
    finally:
        own = await open_store(url)
        async with own.transaction() as conn:
            await conn.execute(f'drop schema "{schema}" cascade')
        await own.close()


@contextlib.contextmanager
def _file(store: str | None) -> Iterator[str]:
    """In the folder of the given file: disks differ."""
    path, _, query = (store or "").removeprefix("sqlite:///").partition("?")
    beside = Path(path).parent if store and not path.startswith("sqlite:") else None
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-", dir=beside) as folder:
        yield f"sqlite:///{folder}/bench.db" + (f"?{query}" if query else "")
