"""Mixed requests from another process while workers drain the queues: no error, no lost task, and
memory that does not grow. Prints how long they took."""

import asyncio
import random
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.cli.shell import Shell, shell_in
from tests.http.test_serving import address

SECONDS = 60.0
CLIENTS = 16
ROOM = 48 * 1024  # KiB that the server may have more in the last third than after the first


@pytest.fixture(params=["sqlite", "postgres"])
def shell(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shell]:
    environ = {}
    if request.param == "postgres":
        fresh = request.getfixturevalue("fresh_database")
        environ["HOLDFAST_STORE"] = fresh(request.getfixturevalue("postgres_current"))
    with shell_in(tmp_path, **environ) as found:
        yield found


class Load:
    """What the clients did, and how long each took."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self._http = http
        self.took: dict[str, list[float]] = defaultdict(list)
        self.ids: list[str] = []
        self.wrong: list[str] = []

    async def ask(self, name: str, method: str, path: str, **more: Any) -> Any:
        began = time.monotonic()
        answer = await self._http.request(method, path, **more)
        self.took[name].append(time.monotonic() - began)
        if answer.status_code >= 400:
            self.wrong.append(f"{name}: {answer.status_code} {answer.text:.200}")
        return answer.json()

    async def client(self, number: int, over: float) -> None:
        chance = random.Random(number)
        while time.monotonic() < over:
            match chance.choice(["make", "make", "batch", "see", "list", "stats", "wait", "page"]):
                case "make":
                    wish = {"type": "add", "args": [number, 1]}
                    self.ids.append((await self.ask("make", "POST", "/v1/tasks", json=wish))["id"])
                case "batch":
                    wishes = [{"type": "add", "args": [n, 1]} for n in range(10)]
                    made = await self.ask(
                        "batch", "POST", "/v1/tasks/batch", json={"tasks": wishes}
                    )
                    self.ids += [one["task"]["id"] for one in made["data"]]
                case "see" if self.ids:
                    await self.ask("see", "GET", f"/v1/tasks/{chance.choice(self.ids)}")
                case "wait" if self.ids:
                    await self.ask("wait", "GET", f"/v1/tasks/{self.ids[-1]}/result?wait=5")
                case "list":
                    await self.ask("list", "GET", "/v1/tasks?limit=50&status=done")
                case "page":
                    await self.ask("events", "GET", "/v1/events?format=json&limit=100")
                case _:
                    await self.ask("stats", "GET", "/distributed/stats")

    def table(self) -> str:
        lines = [f"{'request':>8} {'count':>7} {'p50 ms':>8} {'p99 ms':>8}"]
        for name, took in sorted(self.took.items()):
            took.sort()
            half, most = took[len(took) // 2] * 1000, took[int(len(took) * 0.99)] * 1000
            lines.append(f"{name:>8} {len(took):>7} {half:>8.1f} {most:>8.1f}")
        return "\n".join(lines)


def memory(pid: int) -> int:
    """KiB that the process has in memory."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0])


@pytest.mark.long
@pytest.mark.timeout(300)
async def test_a_minute_of_everything_loses_nothing(
    shell: Shell, capsys: pytest.CaptureFixture[str]
):
    shell.says("migrate", "up")
    for name in ("w-1", "w-2"):
        shell.worker("--worker-id", name, "--concurrency", "10")
    api = shell.start("api", "--app", "shop:app", "--port", "0", "--log-level", "warning")
    base = address(api.line("api is ready"))
    async with httpx.AsyncClient(base_url=base, timeout=60) as http:
        load, sizes = Load(http), list[int]()
        over = time.monotonic() + SECONDS
        clients = [asyncio.create_task(load.client(n, over)) for n in range(CLIENTS)]
        for _ in range(3):
            await asyncio.sleep(SECONDS / 3)
            sizes.append(memory(api.process.pid))
        await asyncio.gather(*clients)
        async with asyncio.timeout(120):
            while (await load.ask("stats", "GET", "/distributed/stats"))["totals"]["load"]:
                await asyncio.sleep(0.2)
        ended = [
            await load.ask("see", "GET", f"/v1/tasks/{id}")
            for id in random.Random(7).sample(load.ids, min(300, len(load.ids)))
        ]
    with capsys.disabled():
        print(f"\n{load.table()}\nmemory: {', '.join(f'{s // 1024} MiB' for s in sizes)}")
    assert load.wrong == []
    assert {task["status"] for task in ended} == {"done"}
    (counted,) = shell.rows("select count(*) as n from tasks where status = 'done'")
    assert counted["n"] == len(load.ids)
    assert sizes[-1] - sizes[0] < ROOM
