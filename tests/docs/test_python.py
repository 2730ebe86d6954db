"""The examples of docs/reference/python.md run as they stand; the page names all that is there."""

import ast
import asyncio
import inspect
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import Context, Holdfast
from holdfast.app.serving import Served
from holdfast.function import Function
from holdfast.registry import Durable

PAGE = (Path(__file__).parents[2] / "docs/reference/python.md").read_text()
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
WORDS = set(re.findall(r"\w+", PAGE))
# Not for those who write programs: executors and keepers use them.
INSIDE = {
    "claimed", "clock", "effects", "family", "flow", "inside_step", "keeper", "may_ask", "once",
    "release", "scrub", "secrets", "since", "watched", "when_cancelled",
}  # fmt: skip


@pytest.fixture(params=["sqlite", "postgres"])
def url(request, tmp_path, fresh_database):
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/holdfast.db"
    return fresh_database(request.getfixturevalue("postgres_current"))


async def test_the_examples_run_from_top_to_bottom(url, monkeypatch):
    monkeypatch.setenv("HOLDFAST_STORE", url)
    names: dict[str, Any] = {"__name__": "page"}
    await run(EXAMPLES[0], names)
    app: Holdfast = names["app"]
    assert app.home.url == url
    async with app, asyncio.timeout(100):
        lifecycle = app.create_worker_lifecycle()
        working = asyncio.create_task(app.serve(lifecycle=lifecycle, poll_interval=0.02))
        await lifecycle.wait_until_ready()
        for example in EXAMPLES[1:]:
            await run(example, names)
        if url.startswith("postgresql"):
            await booked(app, names["book"])
        app.request_worker_drain(lifecycle)
        await working


async def booked(app: Holdfast, book: Any) -> None:
    import asyncpg

    conn = await asyncpg.connect(app.home.url)
    await conn.execute("create table booking (seat int)")
    assert await (await app.dispatch(book, 7)).result(timeout=60) == 7
    assert [row[0] for row in await conn.fetch("select seat from booking")] == [7]
    await conn.close()


async def run(example: str, names: dict[str, Any]) -> None:
    code = compile(example, "python.md", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    if inspect.isawaitable(answer := eval(code, names)):
        await answer


def public(owner: Any) -> set[str]:
    return {name for name in dir(owner) if not name.startswith("_")}


def parameters(function: Any) -> set[str]:
    names = set(inspect.signature(function).parameters)
    return names - {"self", "cls", "function", "options"}


def durable_options() -> set[str]:
    from typing import get_overloads

    return {name for one in get_overloads(Durable.__call__) for name in parameters(one)}


@pytest.mark.parametrize(
    ("what", "names"),
    [
        ("holdfast", set(holdfast.__all__) - {"__version__"}),
        ("the app", public(Holdfast)),
        ("its constructor", parameters(Holdfast.__init__)),
        ("durable()", durable_options()),
        ("options()", parameters(Function.options)),
        ("current()", (public(Context) | {"worker_id", "max_tries"}) - INSIDE),
    ],
    ids=lambda given: given if isinstance(given, str) else "",
)
def test_the_page_names_every_part(what: str, names: Iterable[str]):
    assert sorted(set(names) - WORDS) == [], what


def test_the_page_of_workers_names_every_option_of_serve():
    workers = (Path(__file__).parents[2] / "docs/howto/workers.md").read_text()
    asked = set(inspect.signature(Holdfast.serve).parameters) - {"self"}
    assert asked - {"lifecycle"} == set(Served.__struct_fields__) - {"functions"}
    assert sorted(name for name in asked if name not in workers) == []
