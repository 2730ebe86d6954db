"""A store in which things have happened, for commands to look at."""

import asyncio
import json
import re
from datetime import timedelta
from typing import Any
from uuid import UUID

from holdfast.answers import WorkerRecord
from holdfast.stores.opening import open_store
from holdfast.stores.sql import SqlStore
from holdfast.tasks.lifecycle import Settlement, Verdict
from holdfast.tasks.task import Failure
from tests.cli.shell import Shell
from tests.contract.acts import DONE, claim_one, draft, finish, put_one, waiting
from tests.waiting import eventually

LONG, SHORT = timedelta(minutes=10), timedelta(milliseconds=30)
WEB = WorkerRecord(
    id=1, name="web:1", host="web", pid=1, version="1.0", queues=("default", "mail"),
    types=("shop:charge",), slots=8, active=1, tasks_acquired=4,
)  # fmt: skip
GONE = WorkerRecord(id=2, name="gone:2", host="gone", pid=2, version="1.0", slots=4)

# As somebody would have it who wants a spreadsheet to calculate, and a terminal to obey.
BOOM = Failure(
    type="Boom", message="=it \x1b[31mbroke", detail=b'{"traceback": "  File shop.py\\n    boom()"}'
)
FAILED = Settlement(verdict=Verdict.FAILED, failure=BOOM)


class Scene:
    """Tasks by the name of what became of them."""

    def __init__(self, shell: Shell, tasks: dict[str, UUID]) -> None:
        self.shell, self.tasks = shell, tasks

    def __getitem__(self, name: str) -> str:
        return str(self.tasks[name])

    def says(self, *args: str) -> str:
        return self.shell.says(*args)

    def masked(self, *args: str) -> str:
        """With names for ids, no times that differ from run to run, and bars for tabs."""
        return self.mask(self.says(*args))

    def mask(self, text: str) -> str:
        for name, id in self.tasks.items():
            text = text.replace(str(id), name.upper())
        text = re.sub(r"\t", "|", text)
        text = re.sub(r"\d{4}-\d\d-\d\dT[\d:.]+Z", "TIME", text)
        text = re.sub(r"\d\d:\d\d:\d\d", "CLOCK", text)
        return re.sub(r"-?\b(\d+(\.\d+)?(ms|[smhd]| ms)\b ?)+", "SPAN", text)


def url_of(shell: Shell) -> str:
    return shell.environ.get("HOLDFAST_STORE", f"sqlite:///{shell.folder}/holdfast.db")


def played(shell: Shell) -> Scene:
    return Scene(shell, asyncio.run(_play(url_of(shell))))


async def _play(url: str) -> dict[str, UUID]:
    store = await open_store(url)
    try:
        return await _all(store)
    finally:
        await store.close()


async def _all(store: SqlStore) -> dict[str, UUID]:
    await store.register(WEB)
    await store.register(GONE)
    tasks: dict[str, UUID] = {}
    tasks["paid"] = await put_one(store, "shop:charge", payload=_called(1))
    await finish(store, await claim_one(store, worker=1), DONE)
    tasks["broken"] = await put_one(
        store, "shop:refund", payload=_called(2), max_tries=1, user_id="ann"
    )
    await finish(store, await claim_one(store, worker=1), FAILED)
    tasks["lost"] = await put_one(store, "shop:report", max_tries=3)
    await _lose(store)
    tasks["waits"] = await put_one(store, "shop:order")
    await finish(store, await claim_one(store, worker=1), waiting(reason="signal approved"))
    tasks["held"] = await put_one(store, "shop:charge")
    await claim_one(store, worker=1, lease=LONG)
    tasks["next"] = await put_one(store, "shop:charge", queue="mail", tags=("vip",))
    (tasks["later"],) = await store.enqueue(
        [draft("shop:charge", queue="mail", delay=timedelta(hours=1), tenant="acme")]
    )
    return tasks


async def _lose(store: SqlStore) -> None:
    """One worker dies over it, another one ends it, and then the first one writes."""
    late = await claim_one(store, worker=2, lease=SHORT)
    await eventually(store.recover)
    await finish(store, await claim_one(store, worker=1), DONE)
    assert await store.settle([(late.lease, DONE)]) == {late.lease.task}


def _called(*args: Any) -> bytes:
    return json.dumps({"args": args, "kwargs": {}}).encode()
