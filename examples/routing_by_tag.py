"""Tags: a worker with `tags=` takes tasks that share a tag with it, and untagged ones."""

import asyncio

from holdfast import Holdfast, current


@Holdfast.durable(tags=["billing"])
async def charge_customer() -> str:
    return f"charge_customer ran on {current().worker_id}"


@Holdfast.durable(tags=["billing", "notifications"])
async def send_invoice() -> str:
    return f"send_invoice ran on {current().worker_id}"


@Holdfast.durable(tags=["notifications"])
async def send_alert() -> str:
    return f"send_alert ran on {current().worker_id}"


async def main() -> None:
    async with Holdfast() as app:
        workers = [
            asyncio.create_task(app.serve(worker_id="billing-worker", tags=["billing"])),
            asyncio.create_task(app.serve(worker_id="notification-worker", tags=["notifications"])),
        ]
        for function in (charge_customer, send_invoice, send_alert):
            task = await app.dispatch(function)
            print(await task.result(timeout=30))
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)


if __name__ == "__main__":
    asyncio.run(main())
