"""A worker as in production: PostgreSQL, wake-ups through Redis, every option spelled out.

DATABASE_URL=postgresql://user@host/db REDIS_URL=redis://host python production_worker.py
"""

import asyncio
import os
from datetime import timedelta

from holdfast import Holdfast


@Holdfast.durable(queue="high_priority", tags=["billing"])
async def charge(order_id: int) -> str:
    return f"order {order_id} is paid"


async def run_production_worker() -> None:
    backend = Holdfast.backends.PostgresBackend(os.environ["DATABASE_URL"])
    await backend.init_db()

    app = Holdfast(
        backend=backend,
        notification_backend=Holdfast.notifications.RedisBackend(os.environ["REDIS_URL"]),
        poll_min_interval=0.1,
        poll_max_interval=3.0,
        poll_backoff_factor=1.5,
    )
    lifecycle = app.create_worker_lifecycle(name="worker-1")

    async with app:
        await app.serve(
            worker_id="worker-1",
            queues=["default", "high_priority"],
            tags=["billing", "notifications"],
            max_concurrency=50,
            poll_interval=0.5,
            poll_interval_max=5.0,
            poll_backoff_factor=2.0,
            lease_duration=timedelta(minutes=10),
            heartbeat_interval=timedelta(minutes=4),
            cleanup_interval=7200.0,  # every two hours, on one worker of all
            retention_period=timedelta(days=30),
            lifecycle=lifecycle,
        )


if __name__ == "__main__":
    asyncio.run(run_production_worker())
