"""Bringing tasks in: one statement for many drafts; callers that come together share one commit."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any
from uuid import UUID
from weakref import WeakKeyDictionary

import msgspec

from holdfast.errors import InvalidInput
from holdfast.stores.base import Base
from holdfast.stores.driver import Driver, DuplicateTask
from holdfast.stores.prepared import Prepared, accepted, columns, used_before
from holdfast.stores.sharing import MOST_SHARED, Accepted, Sharing
from holdfast.tasks.lane import Lane
from holdfast.tasks.names import check_expires_after
from holdfast.tasks.task import Draft, fingerprint

__all__ = ["Producing"]

MOST_DRAFTS = 100_000
_MOST_LANES = 1000  # in one statement: others who bring new lanes wait for it
_PARTS = attrgetter("queue", "type", "version", "tags", "requires", "tenant")


class Producing(Base):
    """Keeps `holdfast.store.Producing`."""

    def __init__(self, driver: Driver, *, share_commits: bool = True) -> None:
        super().__init__(driver)
        self._share = share_commits
        self._sharings: WeakKeyDictionary[asyncio.AbstractEventLoop, Sharing] = WeakKeyDictionary()

    async def enqueue(self, drafts: Sequence[Draft], *, conn: Any = None) -> list[UUID]:
        _check_number(drafts)
        if not drafts:
            return []
        await self._check_times(drafts, conn)
        if conn is not None:
            return await self._accept_on(conn, drafts)
        if not self._share or len(drafts) >= MOST_SHARED:
            return (await self._accept(drafts)).all_or_none()
        return await self._sharing().enqueue(drafts)

    async def prepare(self, drafts: Sequence[Draft]) -> Prepared:
        _check_number(drafts)
        await self._driver.get_ready()
        await self._check_times(drafts, None)
        lanes = await self._lanes_of(drafts, None) if drafts else []
        return Prepared(self._driver, tuple(drafts), lanes)

    async def _check_times(self, drafts: Sequence[Draft], conn: Any) -> None:
        """A time to run at is far away by the database's clock alone, which few have to ask for."""
        if both := [(d.expires, d.run_at) for d in drafts if d.run_at and d.expires is not None]:
            rows = await (
                self._driver.call_on(conn, "now") if conn is not None else self._call("now")
            )
            now = self._at(rows[0][0])
            for expires, run_at in both:
                check_expires_after(expires, run_at, now)

    def _sharing(self) -> Sharing:
        """The callers of this event loop: a future is of no use in another one."""
        loop = asyncio.get_running_loop()
        found = self._sharings.get(loop)
        if found is None:
            found = self._sharings[loop] = Sharing(self._accept)
        return found

    async def _accept_on(self, conn: Any, drafts: Sequence[Draft]) -> list[UUID]:
        asked = Prepared(self._driver, drafts, await self._lanes_of(drafts, conn))
        with asked.explained():
            return asked.answer(await self._driver.call_on(conn, "accept", **asked.parameters))

    async def _accept(self, drafts: Sequence[Draft]) -> Accepted:
        parameters = columns(drafts, await self._lanes_of(drafts, None))
        try:
            rows = await self._call("accept", **parameters)
        except DuplicateTask:
            return Accepted(await self._written_before(drafts), {})
        return accepted(self._driver, drafts, rows)

    async def _written_before(self, drafts: Sequence[Draft]) -> list[UUID]:
        """The answer of this very call, which was lost; where an id is other work's: a refusal."""
        ids = [draft.id for draft in drafts]
        rows = await self._call("known", ids=ids)
        known = {self._driver.uuid(id): mark for id, mark in rows}
        marks = {draft.id: fingerprint(draft.type, draft.payload) for draft in drafts}
        if any(known.get(id, mark) != mark for id, mark in marks.items()):
            raise used_before()
        keyed = [draft for draft in drafts if draft.id not in known and draft.key is not None]
        holders = await self._holders(keyed) if keyed else {}
        if len(set(ids)) < len(ids) or not (known.keys() | holders.keys()).issuperset(ids):
            raise used_before()
        return [holders.get(id, id) for id in ids]

    async def _holders(self, drafts: Sequence[Draft]) -> dict[UUID, UUID]:
        """By draft, the task that has its key for the same work."""
        rows = await self._call(
            "key_holders",
            tenants=[draft.tenant for draft in drafts],
            keys=[draft.key for draft in drafts],
        )
        found = {(tenant, key, mark): self._driver.uuid(id) for tenant, key, id, mark in rows}
        places = ((draft, (draft.tenant, draft.key, draft.fingerprint)) for draft in drafts)
        return {draft.id: found[place] for draft, place in places if place in found}

    async def _lanes_of(self, drafts: Sequence[Draft], conn: Any) -> list[int]:
        parts = list(map(_PARTS, drafts))
        if parts.count(parts[0]) == len(parts):
            lane = drafts[0].lane
            return [(await self._intern([lane], conn))[lane]] * len(parts)
        first = dict(zip(reversed(parts), reversed(drafts), strict=True))
        lanes = {part: draft.lane for part, draft in first.items()}
        ids = await self._intern(lanes.values(), conn)
        numbers = {part: ids[lane] for part, lane in lanes.items()}
        return [numbers[part] for part in parts]

    async def _intern(self, lanes: Iterable[Lane], conn: Any) -> Mapping[Lane, int]:
        """The numbers of these lanes, and of others."""
        new = list(dict.fromkeys(lane for lane in lanes if lane not in self._lane_ids))
        if not new:
            return self._lane_ids
        ids: dict[Lane, int] = {}
        for start in range(0, len(new), _MOST_LANES):
            page = new[start : start + _MOST_LANES]
            ids |= zip(page, await self._numbers(page, conn), strict=True)
        # Where the caller's transaction holds the only writer, they came inside it: after its
        # rollback a remembered number would lead nowhere.
        if conn is None or not self._driver.one_writer:
            self._lane_ids |= ids
            self._lanes |= {id: lane for lane, id in ids.items()}
        return self._lane_ids | ids

    async def _numbers(self, lanes: Sequence[Lane], conn: Any) -> list[int]:
        parts = {
            "queues": [lane.queue for lane in lanes],
            "types": [lane.type for lane in lanes],
            "versions": [lane.version for lane in lanes],
            "tags": [_json(lane.tags) for lane in lanes],
            "requires": [_json(lane.requires) for lane in lanes],
            "tenants": [lane.tenant for lane in lanes],
        }
        if conn is not None and self._driver.one_writer:
            rows = await self._driver.call_on(conn, "intern_lanes", **parts)
        else:  # on a connection of ours
            rows = await self._call("intern_lanes", **parts)
        return list(rows[0][0])


def _json(labels: tuple[str, ...]) -> str:
    return msgspec.json.encode(labels).decode()


def _check_number(drafts: Sequence[Draft]) -> None:
    if len(drafts) > MOST_DRAFTS:
        raise InvalidInput(
            f"at most {MOST_DRAFTS:,} tasks go in one call, got {len(drafts):,}; send them in parts"
        )
