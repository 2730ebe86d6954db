"""A worker inside your own program: wait until it is ready, drain it when you are done."""

import asyncio

from holdfast import Holdfast


@Holdfast.durable
async def work(n: int) -> int:
    await asyncio.sleep(0.05)
    return n * n


async def managed_worker() -> None:
    async with Holdfast() as app:
        lifecycle = app.create_worker_lifecycle(name="worker-1")
        worker = asyncio.create_task(app.serve(lifecycle=lifecycle))

        await lifecycle.wait_until_ready()
        print("Worker is ready to accept tasks")

        tasks = await app.dispatch_many([work.call(n) for n in range(5)])
        await tasks[0].result(timeout=30)

        app.request_worker_drain(lifecycle)
        print("Draining - finishing in-flight tasks")

        await lifecycle.wait_until_stopped()
        print("Worker stopped cleanly")
        await worker


if __name__ == "__main__":
    asyncio.run(managed_worker())
