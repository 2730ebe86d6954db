"""The examples of docs/howto/transactions.md, run as they stand."""

import asyncio
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import asyncpg
import psycopg
import pytest
import sqlalchemy
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from holdfast.stores.opening import open_store
from tests.contract.acts import DONE, claim, draft, status_of

PAGE = Path(__file__).parents[2] / "docs/howto/transactions.md"
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
NAMES = {
    "AsyncSession": AsyncSession,
    "Session": Session,
    "asyncpg": asyncpg,
    "psycopg": psycopg,
    "text": text,
}
# As an application: set up for one database, and a view that is called.
DJANGO = """
import asyncio, sys
from urllib.parse import urlsplit
import django
from django.conf import settings
parts = urlsplit(sys.argv[1])
settings.configure(USE_TZ=True, DATABASES={"default": {
    "ENGINE": "django.db.backends.postgresql", "NAME": parts.path[1:], "USER": parts.username,
    "PASSWORD": parts.password or "", "HOST": parts.hostname, "PORT": str(parts.port)}})
django.setup()
from django.db import connection, transaction
from holdfast.ids import new_id
from holdfast.stores.opening import open_store
from holdfast.tasks.task import Draft

{example}

async def prepared():
    store = await open_store(sys.argv[1])
    ready = await store.prepare([Draft(id=new_id(), type="shop.orders:mail")])
    await store.close()
    return ready

place_order(asyncio.run(prepared()))
"""


def example(number: int) -> Any:
    """The function that an example of the page defines."""
    found: dict[str, Any] = {}
    exec(EXAMPLES[number], {**NAMES}, found)
    (function,) = found.values()
    return function


@pytest.fixture
async def store(url):
    store = await open_store(url)
    yield store
    await store.close()


@pytest.fixture
def url(postgres_current, fresh_database):
    url = fresh_database(postgres_current)
    with psycopg.connect(url) as conn:
        conn.execute("create table orders (id int)")
    return url


@pytest.fixture
def orders(url):
    def placed() -> list[tuple[Any, ...]]:
        with psycopg.connect(url) as conn:
            return conn.execute("select id from orders").fetchall()

    return placed


def test_the_page_has_the_examples_that_are_run():
    assert len(EXAMPLES) == 6


@pytest.mark.parametrize("number", [0, 1])
async def test_asyncpg_and_psycopg(store, url, orders, number):
    task = draft()
    await example(number)(store, task, url)
    assert orders() == [(7,)]
    assert await status_of(store, task.id) == "pending"


async def test_sqlalchemy(store, url, orders):
    task, other = draft(), draft()
    engine = create_async_engine(url.replace("postgresql://", "postgresql+asyncpg://"))
    await example(2)(store, task, engine)
    await engine.dispose()
    assert orders() == [(7,)]
    blocking = sqlalchemy.create_engine(url.replace("postgresql://", "postgresql+psycopg://"))
    await asyncio.to_thread(example(3), await store.prepare([other]), blocking)
    blocking.dispose()
    assert orders() == [(7,), (7,)]
    assert {c.lease.task for c in await claim(store)} == {task.id, other.id}


async def test_django(store, url, orders):
    program = DJANGO.replace("{example}", EXAMPLES[4])
    view = [sys.executable, "-c", program, url]
    await asyncio.to_thread(subprocess.run, view, check=True, timeout=60)
    assert orders() == [(7,)]
    assert len(await claim(store)) == 1


async def test_completion(store, orders):
    await store.enqueue([task := draft()])
    (held,) = await claim(store)
    await example(5)(store, held.lease, DONE)
    assert orders() == [(7,)]
    assert await status_of(store, task.id) == "done"
