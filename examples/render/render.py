"""Charts rendered by several workers; kill one, and its charts are rendered by another.

python render.py worker worker-1 &
python render.py worker worker-2 &
python render.py submit 8
python render.py watch
"""

import asyncio
import logging
import sys
from collections import Counter

from holdfast import Holdfast, current

SLICES = 10
app = Holdfast()


@app.durable(queue="render", max_tries=5)
async def render(chart: int) -> str:
    for n in range(SLICES):
        await asyncio.sleep(0.05)
        await current().progress(100 * (n + 1) / SLICES)
    return f"chart-{chart}.png by {current().worker_id}"


async def submit(count: int) -> None:
    async with app:
        for task in await app.dispatch_many([render.call(n) for n in range(count)]):
            print(task.id)


async def work(name: str) -> None:
    logging.basicConfig(level=logging.INFO)  # claims, renewals and recoveries
    async with app:
        await app.serve(worker_id=name, queues=["render"], max_concurrency=3)


async def watch() -> None:
    """Who holds how many, until all are done."""
    async with app:
        seen = ""
        while True:
            held = Counter(lease.worker_name for lease in await app.active_leases())
            charts = (await app.list_tasks(queue="render", limit=1000)).tasks
            status = Counter(chart.status for chart in charts)
            line = f"waiting {status['pending']}, held {dict(sorted(held.items()))}, "
            line += f"done {status['done']}"
            if line != seen:
                print(seen := line, flush=True)
            if status["done"] == len(charts):
                return
            await asyncio.sleep(0.05)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["submit", count] if count.isdecimal():
            asyncio.run(submit(int(count)))
        case ["worker", name]:
            asyncio.run(work(name))
        case ["watch"]:
            asyncio.run(watch())
        case _:
            sys.exit(__doc__)
