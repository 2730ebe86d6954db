"""A worker as a class. Jobs are shown by the view `processing_jobs`."""

import asyncio

from holdfast import Job, ProcessingWorker


class MyWorker(ProcessingWorker):
    async def process_job(self, job: Job) -> None:
        print("Processing job:", job.job_id, "of order", job.order_id)
        await self.app.update_progress(job.id, 50, "Halfway done")

        # Do the work …

        # Returning would do as well; this says it in so many words, and at once.
        await self.app.release_lease(job.id, self.worker_id, "done")


async def main() -> None:
    worker = MyWorker(
        worker_id="my-worker-1",
        lease_duration_seconds=300,  # 5 minutes
        poll_interval_ms=5000,  # a hint wakes it earlier
        max_concurrent_jobs=1,
        lease_extension_threshold_percent=50,
    )
    await worker.start()  # takes back what a dead worker held, first
    job = await worker.create(job_id="my-job-123", order_id="order-456", usb_capacity="32GB")
    await worker.app.wait_for(job.id, timeout=30)

    print(worker.get_status())
    print(f"Active leases: {len(await worker.app.active_leases())}")
    print(f"Reset {await worker.app.reset_expired_leases()} expired leases")
    await worker.stop()


if __name__ == "__main__":
    asyncio.run(main())
