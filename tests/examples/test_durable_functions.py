"""The examples of durable functions, on both databases, and one of them with a real kill."""

import asyncio
import json
from collections import Counter
from pathlib import Path

import pytest

from holdfast import Holdfast
from tests.examples.conftest import Start, example
from tests.waiting import eventually


@pytest.mark.usefixtures("on_store")
async def test_checkout(capsys):
    await example("checkout").main()
    said = capsys.readouterr().out.splitlines()
    assert [line for line in said if line.startswith("order 13")] == [
        "order 13: payment 13 is paid back",
        "order 13: shelf 13 is free again",
        "order 13 is off: nobody ships to the moon",
    ]
    assert [line for line in said if line.startswith("order 12")] == [
        "order 12 is on its way: parcel 12"
    ]


@pytest.mark.usefixtures("on_store")
async def test_approval(capsys):
    await example("approval").main()
    assert capsys.readouterr().out.splitlines() == [
        "to the manager: please approve a chair",
        "a chair: approved by the manager",
        "to the manager: please approve a yacht",
        "to the director: please approve a yacht",
        "a yacht: nobody answered",
    ]


@pytest.mark.usefixtures("on_store")
async def test_wordcount(capsys, tmp_path: Path):
    for n, words in enumerate(["sea sea sail", "Sea wind", "wind sea sail"]):
        (tmp_path / f"{n}.txt").write_text(words)
    await example("wordcount").main(str(tmp_path))
    assert capsys.readouterr().out.splitlines() == ["4 sea", "2 sail", "2 wind"]


@pytest.mark.usefixtures("on_store")
async def test_agent(capsys):
    await example("agent").main()
    assert capsys.readouterr().out == "Take a coat.\n"


async def test_no_duplicate_orders(on_store: str, start: Start, tmp_path: Path):
    """A worker is killed while orders are under way. What it had recorded does not happen again,
    nothing is bought twice, and everything is shipped by the next worker."""
    ledger = tmp_path / "orders.jsonl"
    often = {"HOLDFAST_RECOVERY_INTERVAL": "0.2s"}

    def happened() -> list[tuple[int, str]]:
        lines = ledger.read_text().splitlines() if ledger.exists() else []
        return [(one["order"], one["what"]) for one in map(json.loads, lines)]

    async def bought() -> bool:
        return any(what == "buy" for _, what in happened())

    async with Holdfast(on_store) as app:
        await asyncio.to_thread(start("orders.py", "place", "3").communicate, timeout=60)
        doomed = start("orders.py", "worker", **often)
        await eventually(bought)
        doomed.kill()
        await asyncio.to_thread(doomed.wait)
        before = happened()
        store = (await app.home.client()).store
        for lease in await app.active_leases():  # as if its lease had lapsed by now
            assert await store.revoke(lease.task, lease.fence)
        start("orders.py", "worker", **often)
        for task in (await app.list_tasks(queue="orders")).tasks:
            ending = await app.wait_for(task.id, timeout=60)
            assert ending.status == "done"
        shown, _ = await asyncio.to_thread(start("orders.py", "show").communicate, timeout=60)
        assert "order 2: buy x 1\n" in shown
    counts, order_of = Counter(happened()), ("check", "buy", "copy", "ship")
    assert {counts[order, "buy"] for order in range(3)} == {1}
    assert {counts[order, "ship"] for order in range(3)} <= {1, 2}
    for order, what in before:  # whose next step had begun was recorded
        if any((order, later) in before for later in order_of[order_of.index(what) + 1 :]):
            assert counts[order, what] == 1, (order, what)
    assert sum(counts.values()) <= 4 * 3 + 3  # at most the one under way of each order
