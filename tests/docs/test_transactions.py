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

from holdfast import Holdfast, current, durable
from holdfast.stores.opening import open_store
from tests.contract.acts import DONE, claim, draft, status_of

PAGE = Path(__file__).parents[2] / "docs/howto/transactions.md"
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
NAMES: dict[str, Any] = {
    "AsyncSession": AsyncSession,
    "Session": Session,
    "asyncpg": asyncpg,
    "current": current,
    "durable": durable,
    "psycopg": psycopg,
    "text": text,
}
# As an application: set up for one database, and a view that is called.
DJANGO = """
import sys
from urllib.parse import urlsplit
import django
from django.conf import settings
parts = urlsplit(sys.argv[1])
settings.configure(USE_TZ=True, DATABASES={"default": {
    "ENGINE": "django.db.backends.postgresql", "NAME": parts.path[1:], "USER": parts.username,
    "PASSWORD": parts.password or "", "HOST": parts.hostname, "PORT": str(parts.port)}})
django.setup()
from django.db import connection, transaction
from holdfast import Holdfast

app = Holdfast(sys.argv[1])

@app.durable(name="mail")
async def mail(order: int) -> None: ...

{example}

place_order(app, mail)
app.run_sync(app.home.close())
"""


def example(number: int) -> Any:
    """What an example of the page defines."""
    names = {**NAMES}
    exec(EXAMPLES[number], names)
    (defined,) = names.keys() - NAMES.keys() - {"__builtins__"}
    return names[defined]


@pytest.fixture
async def app(url):
    async with Holdfast(url) as app:
        yield app


@pytest.fixture
def mail(app):
    @app.durable(name="mail")
    async def mail(order: int) -> None: ...

    return mail


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


async def waiting(app):
    return [(task.type, task.status) for task in (await app.list_tasks()).tasks]


def test_the_page_has_the_examples_that_are_run():
    assert len(EXAMPLES) == 7


@pytest.mark.parametrize("number", [0, 1])
async def test_asyncpg_and_psycopg(app, mail, url, orders, number):
    await example(number)(app, mail, url)
    assert orders() == [(7,)]
    assert await waiting(app) == [("mail", "pending")]


async def test_sqlalchemy(app, mail, url, orders):
    engine = create_async_engine(url.replace("postgresql://", "postgresql+asyncpg://"))
    await example(2)(app, mail, engine)
    await engine.dispose()
    assert orders() == [(7,)]
    blocking = sqlalchemy.create_engine(url.replace("postgresql://", "postgresql+psycopg://"))
    await asyncio.to_thread(example(3), app, mail, blocking)
    blocking.dispose()
    assert orders() == [(7,), (7,)]
    assert await waiting(app) == [("mail", "pending")] * 2


async def test_django(app, url, orders):
    program = DJANGO.replace("{example}", EXAMPLES[4])
    view = [sys.executable, "-c", program, url]
    await asyncio.to_thread(subprocess.run, view, check=True, timeout=60)
    assert orders() == [(7,)]
    assert await waiting(app) == [("mail", "pending")]


async def test_rows_and_completion_by_a_function(url, orders):
    charge = example(5)
    async with Holdfast.bootstrap(url, serve=True, poll_interval=0.02) as app:
        assert await (await app.dispatch(charge, 7)).result(timeout=60) == "paid"
    assert orders() == [(7,)]


async def test_completion(store, orders):
    await store.enqueue([task := draft()])
    (held,) = await claim(store)
    await example(6)(store, held.lease, DONE)
    assert orders() == [(7,)]
    assert await status_of(store, task.id) == "done"
