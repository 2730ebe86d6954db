"""A worker to be started as often as needed; each start wants a name of its own.

    python worker.py --worker-id=worker-1 &
    python worker.py --worker-id=worker-2 &

The store is HOLDFAST_STORE (`sqlite:///file`, `postgresql://…`), or the file holdfast.db.
"""

import argparse
import asyncio
import signal

from holdfast import Holdfast, current


@Holdfast.durable
async def greet(name: str) -> str:
    await asyncio.sleep(0.1)
    return f"Hello {name}, from {current().worker_id}"


async def main(worker_id: str) -> None:
    async with Holdfast() as app:
        lifecycle = app.create_worker_lifecycle(name=worker_id)
        loop = asyncio.get_running_loop()
        for signal_number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(signal_number, app.request_worker_drain, lifecycle)
        await app.serve(worker_id=worker_id, lifecycle=lifecycle)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--worker-id", required=True)
    asyncio.run(main(parser.parse_args().worker_id))
