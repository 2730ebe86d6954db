"""What the workers of the demo do: pretend to render, and say how far they are."""

import asyncio

from holdfast.app import Holdfast
from holdfast.context import current

__all__ = ["app", "render"]

app = Holdfast()


@app.durable(name="demo:render", queue="demo")
async def render(job: int, seconds: float, steps: int = 10) -> str:
    """Goes on where an earlier attempt got to: that was saved with its progress."""
    context = current()
    done = await context.saved(int) or 0
    if context.attempt > 1 or done:
        context.logger.info("job %d goes on at %d %%", job, 100 * done // steps)
    else:
        context.logger.info("job %d begins", job)
    for step in range(done + 1, steps + 1):
        await asyncio.sleep(seconds / steps)
        await context.progress(100 * step / steps, f"page {step} of {steps}", save=step)
        context.logger.info("job %d: page %d of %d", job, step, steps)
    context.logger.info("job %d is done", job)
    return f"job {job}, rendered by {context.worker_id}"
