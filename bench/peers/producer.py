"""The process that enqueues for a peer, in the peer's own environment: it reads a request a line
and answers a line, both JSON. `python -m bench.peers.producer MODULE`."""

import asyncio
import importlib
import json
import os
import random
import sys
import time
import traceback
from importlib.metadata import version
from pathlib import Path
from typing import Any

import uvloop

from bench.peers import ledger

CHUNK = 500


class Producer:
    """The verbs of one peer, and what is measured from the side of whoever enqueues."""

    def __init__(self, module: str) -> None:
        self._peer: Any = importlib.import_module(module)

    async def setup(self, package: str) -> dict[str, str]:
        await self._peer.setup(os.environ["BENCH_URL"])
        return {"settings": self._peer.SETTINGS, "version": version(package)}

    async def command(self, slots: int) -> list[str]:
        found: list[str] = self._peer.command(slots)
        return found

    async def enqueue(self, task: str, count: int) -> None:
        await self._peer.enqueue(task, list(range(count)))

    async def fill(self, count: int, seconds: float) -> int:
        """No-op tasks, as many as go in within that time; tells how many did."""
        done, deadline = 0, time.monotonic() + seconds
        while done < count and time.monotonic() < deadline:
            numbers = list(range(done, min(done + CHUNK, count)))
            await self._peer.enqueue("noop", numbers)
            done += len(numbers)
        return done

    async def latency(self, folder: str, samples: int, seconds: float) -> list[float]:
        """From before the call to the first line of the task, one task at a time."""
        place, deadline = Path(folder), time.monotonic() + seconds
        start, sent = ledger.lines(place), list[float]()
        while len(sent) < samples and time.monotonic() < deadline:
            await asyncio.sleep(random.uniform(0.02, 0.05))
            sent.append(time.time())
            await self._peer.enqueue("noop", [0])
            while ledger.lines(place) < start + len(sent):
                if time.monotonic() > deadline + 5:
                    raise TimeoutError(f"the {len(sent)}th lone task was not picked up")
                await asyncio.sleep(0.005)
        (records,) = ledger.read(place).values()
        seen = [record.when for record in records[start:]]
        return [(when - before) * 1e3 for before, when in zip(sent, seen, strict=True)]


async def main(module: str) -> None:
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # whatever a library prints goes to the log
    loop = asyncio.get_running_loop()
    producer = Producer(module)
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        request = json.loads(line)
        try:
            answer = {"value": await getattr(producer, request["verb"])(**request["with"])}
        except Exception as error:
            traceback.print_exc()
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), file=answers)
    os._exit(0)  # some libraries leave threads behind


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1]))
