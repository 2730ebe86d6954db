"""Every log record inside a task says which task it belongs to."""

import asyncio
import logging

from holdfast import Holdfast, install_structured_logging

logging.basicConfig(
    level=logging.INFO,
    format="%(asctime)s %(levelname)s [%(holdfast_task_id)s] %(message)s",
)
install_structured_logging(logging.getLogger())


@Holdfast.durable
async def work() -> None:
    logging.getLogger(__name__).info("inside of a task")


async def main() -> None:
    async with Holdfast.bootstrap(serve=True) as app:
        task = await app.dispatch(work)
        await task.result(timeout=30)


if __name__ == "__main__":
    asyncio.run(main())
