"""No duplicate orders: kill the worker (kill -9) in the middle of its work, and start it again.

python orders.py place 5
python orders.py worker
python orders.py show
"""

import asyncio
import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from holdfast import Holdfast, current

LEDGER = Path("orders.jsonl")  # all that ever happened, in the world outside
PACE = 0.1


def happened() -> list[dict[str, Any]]:
    lines = LEDGER.read_text().splitlines() if LEDGER.exists() else []
    return [json.loads(line) for line in lines]


def note(**entry: Any) -> None:
    with LEDGER.open("a") as ledger:
        ledger.write(json.dumps(entry) + "\n")


async def act(order: int, what: str, key: str = "") -> str:
    """Takes a while before and after; so a crash may also come when it has happened already. With
    a key the other side knows what it did before, and does not do it again."""
    await asyncio.sleep(PACE)
    if not key or all(one["key"] != key for one in happened()):
        note(order=order, what=what, key=key)
    await asyncio.sleep(PACE)
    return f"{what} {order}"


async def buy(order: int) -> str:
    return await act(order, "buy", key=current().effect_key("buy"))


@Holdfast.durable(queue="orders")
async def fulfil(order: int) -> str:
    """A step that is recorded never runs again. One that was under way when its worker died does:
    so what must not happen twice is done with an effect key."""
    await Holdfast.step("check", act, order, "check")
    await Holdfast.step("buy", buy, order)
    await Holdfast.step("copy", act, order, "copy")
    return await Holdfast.step("ship", act, order, "ship")


async def place(count: int) -> None:
    async with Holdfast() as app:
        for task in await app.dispatch_many([fulfil.call(n) for n in range(count)]):
            print(task.id)


async def work() -> None:
    async with Holdfast() as app:
        await app.serve(queues=["orders"])


def show() -> None:
    """How often each thing happened, for each order."""
    for (order, what), count in sorted(
        Counter((o["order"], o["what"]) for o in happened()).items()
    ):
        print(f"order {order}: {what} x {count}")


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["place", count] if count.isdecimal():
            asyncio.run(place(int(count)))
        case ["worker"]:
            asyncio.run(work())
        case ["show"]:
            show()
        case _:
            sys.exit(__doc__)
