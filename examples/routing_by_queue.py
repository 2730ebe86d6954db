"""Queues: a worker with `queues=` takes from those, one without from all."""

import asyncio

from holdfast import Holdfast, current


@Holdfast.durable(queue="critical")
async def critical_operation() -> str:
    return f"critical_operation ran on {current().worker_id}"


@Holdfast.durable(queue="background")
async def background_job() -> str:
    return f"background_job ran on {current().worker_id}"


@Holdfast.durable  # the queue "default"
async def normal_task() -> str:
    return f"normal_task ran on {current().worker_id}"


async def main() -> None:
    async with Holdfast() as app:
        tasks = [await app.dispatch(f) for f in (critical_operation, background_job, normal_task)]
        workers = [
            asyncio.create_task(
                app.serve(worker_id="critical-worker", queues=["critical"], max_concurrency=10)
            ),
            asyncio.create_task(
                app.serve(worker_id="background-worker", queues=["background"], max_concurrency=100)
            ),
        ]
        for task in tasks[:2]:
            print(await task.result(timeout=30))

        print(f"still waiting: {await app.queue_depth(queue='default')} in the default queue")
        workers.append(asyncio.create_task(app.serve(worker_id="general-worker")))  # all queues
        print(await tasks[2].result(timeout=30))

        for worker in workers:
            worker.cancel()  # it hands back what it holds
        await asyncio.gather(*workers, return_exceptions=True)


if __name__ == "__main__":
    asyncio.run(main())
