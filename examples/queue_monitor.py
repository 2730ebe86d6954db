"""How many tasks wait, in all and in each queue."""

import asyncio

from holdfast import Holdfast


async def monitor_queues(app: Holdfast, every: float = 60) -> None:
    while True:
        depth = await app.queue_depth()
        print(f"Total pending: {depth}")

        for queue in ["default", "critical", "background"]:
            depth = await app.queue_depth(queue=queue)
            print(f"Queue {queue}: {depth} pending")

        await asyncio.sleep(every)


if __name__ == "__main__":
    asyncio.run(monitor_queues(Holdfast()))
