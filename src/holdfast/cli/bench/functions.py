"""What the workers of the bench do: nothing, and tell the time."""

from holdfast.app import Holdfast
from holdfast.clock import SystemClock

__all__ = ["app", "nothing", "started_at"]

app = Holdfast()
_clock = SystemClock()


@app.durable(name="bench:nothing", queue="bench")
async def nothing() -> None: ...


@app.durable(name="bench:started_at", queue="bench")
async def started_at() -> int:
    """Microseconds since 1970, when it was called."""
    return _clock.wall()
