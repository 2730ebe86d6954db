"""One worker process of the benchmark: `python -m bench.served URL SLOTS [lease]`. Drained by
SIGTERM, it prints what it did as JSON."""

import asyncio
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from uuid import UUID

import msgspec
import uvloop

from bench import functions
from holdfast import Holdfast, Observer
from holdfast.observer import Ended
from holdfast.tasks.task import Claimed

__all__ = ["Account", "functions"]


class Account(msgspec.Struct):
    """Wall-clock seconds of the first claim and the last settle, and what lay between."""

    first: float = 0.0
    last: float = 0.0
    count: int = 0
    cpu: float = 0.0
    memory: int = 0  # bytes


class Counting(Observer):
    def __init__(self) -> None:
        self.account = Account()
        self._cpu = 0.0

    def claimed(self, tasks: Sequence[Claimed]) -> None:
        if not self.account.first:
            self.account.first, self._cpu = time.time(), time.process_time()

    def settled(self, ended: Sequence[Ended], refused: frozenset[UUID]) -> None:
        account = self.account
        account.count += len(ended)
        account.last, account.cpu = time.time(), time.process_time() - self._cpu


async def main(url: str, slots: int, lease: str) -> None:
    counting = Counting()
    app = Holdfast(url, observers=[counting])
    async with app:
        lifecycle = app.create_worker_lifecycle()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, lifecycle.request_drain)
        serving = asyncio.create_task(
            app.serve(lifecycle=lifecycle, max_concurrency=slots, lease_duration=lease)
        )
        await lifecycle.wait_until_ready()
        print("ready", flush=True)
        await serving
    counting.account.memory = _peak()
    print(msgspec.json.encode(counting.account).decode(), flush=True)


def _peak() -> int:
    """Bytes. Not by getrusage: its peak counts what this process was forked from."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


if __name__ == "__main__":
    sys.path.insert(0, str(Path.cwd()))
    uvloop.run(main(sys.argv[1], int(sys.argv[2]), sys.argv[3] if len(sys.argv) > 3 else "5m"))
