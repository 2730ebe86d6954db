"""An API whose role the database itself keeps to one tenant: all of it works, and a filter that is
forgotten shows nothing."""

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID, uuid4

import asyncpg
import pytest

from holdfast import Holdfast
from holdfast.answers import WorkerRecord
from holdfast.desk.local import LocalDesk
from holdfast.desk.papers import KeyWish
from holdfast.desk.tasks import Tasks
from tests.http.conftest import asking
from tests.servers import Postgres, fresh_database


@pytest.fixture
async def walled(postgres_current: Postgres) -> AsyncIterator[tuple[Holdfast, Holdfast]]:
    """The owner's app, and the API's."""
    role = f"api_{uuid4().hex[:8]}"
    with fresh_database(postgres_current) as url:
        parts = urlsplit(url)
        as_role = parts._replace(netloc=f"{role}@{parts.netloc.rpartition('@')[2]}").geturl()
        async with Holdfast(url) as owner:
            conn = await asyncpg.connect(url)
            await conn.execute(f"create role {role} login")
            await (await owner.home.client()).store.wall(role)
            api = Holdfast(as_role)
            try:
                for app in (owner, api):
                    app.durable(name="pay")(pay)
                async with api:
                    yield owner, api
            finally:
                await conn.execute(f"drop owned by {role}; drop role {role}")
                await conn.close()


async def pay(order: int) -> str:
    return f"paid {order}"


async def key_of(app: Holdfast, tenant: str | None) -> dict[str, str]:
    wish = KeyWish(name=f"of-{tenant or 'all'}", scopes=["admin"], tenant_id=tenant)
    made = await (await app.desk()).create_key(wish)
    return {"Authorization": f"Bearer {made.key}"}


async def test_the_api_works_behind_the_wall(walled: tuple[Holdfast, Holdfast]) -> None:
    owner, api = walled
    acme, other, admin = [await key_of(owner, tenant) for tenant in ("acme", "other", None)]
    async with asking(api) as http:
        made = await http.post("/tasks", json={"type": "pay", "args": [7]}, headers=acme)
        assert made.status_code == 201, made.text
        path = f"/v1/tasks/{made.json()['id']}"
        assert (await http.get(path, headers=acme)).json()["tenant_id"] == "acme"
        assert (await http.get(path, headers=other)).status_code == 404
        assert (await http.get(path, headers=admin)).status_code == 200
        assert (await http.get("/v1/tasks", headers=other)).json()["data"] == []
        assert len((await http.get("/v1/tasks", headers=admin)).json()["data"]) == 1
        once = {**acme, "Idempotency-Key": "k"}
        for _ in range(2):
            assert (await http.post(f"{path}:cancel", headers=once)).status_code == 200
        audit = (await http.get("/v1/audit", headers=acme)).json()["data"]
        assert [one["verb"] for one in audit] == ["task.cancel", "task.enqueue"]
        assert (await http.get("/distributed/stats", headers=admin)).status_code == 200
        assert (await http.get("/health")).status_code == 200
        worker = {"worker_id": "w", "types": ["pay"]}
        assert (await http.post("/v1/workers", json=worker, headers=admin)).status_code == 201


async def test_a_filter_that_is_forgotten_shows_nothing(
    walled: tuple[Holdfast, Holdfast], monkeypatch: pytest.MonkeyPatch
) -> None:
    owner, api = walled
    acme = await key_of(owner, "acme")
    theirs = await owner.dispatch(owner.functions.find("pay").options(tenant="other"), 7)

    async def unguarded(self: Any, ids: list[UUID]) -> Any:
        return await self._store.get_many(ids)

    monkeypatch.setattr(Tasks, "_own_all", unguarded)
    monkeypatch.setattr(Tasks, "_tenant_to_see", lambda self, wanted: None)
    async with asking(api) as http:
        listed = await http.get("/v1/tasks", headers=acme)
        assert listed.json()["data"] == []
    desk = await api.desk(None, (await api.home.client()).as_tenant("acme"))
    assert isinstance(desk, LocalDesk)
    with pytest.raises(KeyError):
        await desk.task(theirs.id)
    assert (await (await owner.desk()).task(theirs.id)).tenant_id == "other"


async def test_what_dead_workers_held_is_taken_back_behind_the_wall(
    walled: tuple[Holdfast, Holdfast],
) -> None:
    owner, api = walled
    acme, admin = await key_of(owner, "acme"), await key_of(owner, None)
    store = (await owner.home.client()).store
    async with asking(api) as http:
        await http.post("/tasks", json={"type": "pay", "args": [7]}, headers=acme)
        await store.register(WorkerRecord(id=7, name="w"))
        lanes, long = list((await store.lanes()).lanes), timedelta(minutes=5)
        (held,) = (await store.claim(worker=7, lanes=lanes, want=1, lease=long)).tasks
        stats = (await http.get("/distributed/stats", headers=admin)).json()
        assert stats["by_worker"]["w"]["active_leases"] == 1
        await store.revoke(held.lease.task, held.lease.fence)
        done = await http.post("/distributed/recover-orphans", headers=admin)
        assert done.json()["recovered"] == 1, done.text
        stats = (await http.get("/distributed/stats", headers=admin)).json()
        assert stats["by_worker"]["w"]["active_leases"] == 0
        assert stats["recovery"] == {"recovered_total": 1}
