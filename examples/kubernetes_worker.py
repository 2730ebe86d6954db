"""A worker for Kubernetes: SIGTERM drains it, and the pod ends when its tasks have ended.

`terminationGracePeriodSeconds` must be longer than the drain timeout; what is not done by then is
handed back, without spending an attempt.
"""

import asyncio
import os
import signal

from holdfast import Holdfast


@Holdfast.durable
async def slow(seconds: float) -> str:
    await asyncio.sleep(seconds)
    return "finished"


async def kubernetes_worker() -> None:
    async with Holdfast() as app:
        lifecycle = app.create_worker_lifecycle(name=os.environ["HOSTNAME"])
        worker = asyncio.create_task(app.serve(lifecycle=lifecycle, drain_timeout="25s"))
        await lifecycle.wait_until_ready()

        def handle_sigterm() -> None:
            app.request_worker_drain(lifecycle)

        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, handle_sigterm)
        print(f"{lifecycle.name} is {lifecycle.state}", flush=True)

        await worker
        print(f"{lifecycle.name} is {lifecycle.state}", flush=True)


if __name__ == "__main__":
    asyncio.run(kubernetes_worker())
