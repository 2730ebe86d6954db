"""Bringing tasks in: one statement for many drafts; callers that come together share one commit."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from operator import attrgetter
from typing import Any
from uuid import UUID
from weakref import WeakKeyDictionary

import msgspec

from holdfast.errors import InvalidInput, KeyConflict
from holdfast.stores.base import Base, policy_bytes, stands_twice
from holdfast.stores.driver import Driver, DuplicateTask, MisplacedTask
from holdfast.stores.sharing import MOST_SHARED, Accepted, Sharing
from holdfast.tasks.lane import Lane
from holdfast.tasks.task import Draft

__all__ = ["Producing"]

MOST_DRAFTS = 100_000
_MOST_LANES = 1000  # in one statement: others who bring new lanes wait for it
_PARTS = attrgetter("queue", "type", "version", "tags", "requires", "tenant")
_WISHES = attrgetter(
    "max_tries", "retry", "delay", "run_at", "expires", "key", "concurrency_key", "parent"
)
_NO_WISHES = (None,) * 8
_REST = (
    "max_tries", "policies", "delays", "run_ats", "expires", "keys", "tenants", "fingerprints",
    "while_pendings", "concurrency_keys", "parents",
)  # fmt: skip


class Producing(Base):
    """Keeps `holdfast.store.Producing`."""

    def __init__(self, driver: Driver, *, share_commits: bool = True) -> None:
        super().__init__(driver)
        self._share = share_commits
        self._sharings: WeakKeyDictionary[asyncio.AbstractEventLoop, Sharing] = WeakKeyDictionary()

    async def enqueue(self, drafts: Sequence[Draft], *, conn: Any = None) -> list[UUID]:
        if len(drafts) > MOST_DRAFTS:
            raise InvalidInput(
                f"at most {MOST_DRAFTS:,} tasks go in one call, got {len(drafts):,}; "
                "send them in parts"
            )
        if not drafts:
            return []
        if conn is not None or not self._share or len(drafts) >= MOST_SHARED:
            return await self._accept_alone(drafts, conn)
        return await self._sharing().enqueue(drafts)

    def _sharing(self) -> Sharing:
        """The callers of this event loop: a future is of no use in another one."""
        loop = asyncio.get_running_loop()
        found = self._sharings.get(loop)
        if found is None:
            found = self._sharings[loop] = Sharing(self._accept)
        return found

    async def _accept_alone(self, drafts: Sequence[Draft], conn: Any = None) -> list[UUID]:
        accepted = await self._accept(drafts, conn)
        for conflict in accepted.conflicts.values():
            raise conflict
        return accepted.ids

    async def _accept(self, drafts: Sequence[Draft], conn: Any = None) -> Accepted:
        parameters = _columns(drafts, await self._lanes_of(drafts, conn))
        try:
            if conn is not None:
                rows = await self._driver.call_on(conn, "accept", **parameters)
            else:
                rows = await self._call("accept", **parameters)
        except DuplicateTask:
            if conn is not None:  # whose transaction may be lost by now: no answer would be true
                raise _used_before() from None
            return Accepted(await self._written_before(drafts), {})
        except MisplacedTask:  # on the caller's connection
            raise stands_twice() from None
        return self._answer(drafts, *rows[0])

    async def _written_before(self, drafts: Sequence[Draft]) -> list[UUID]:
        """The answer of this very call, which was lost; where an id is other work's: a refusal."""
        ids = [draft.id for draft in drafts]
        rows = await self._call("known", ids=ids)
        known = {self._driver.uuid(id): mark for id, mark in rows}
        if any(known.get(draft.id, draft.fingerprint) != draft.fingerprint for draft in drafts):
            raise _used_before()
        keyed = [draft for draft in drafts if draft.id not in known and draft.key is not None]
        holders = await self._holders(keyed) if keyed else {}
        if len(set(ids)) < len(ids) or not (known.keys() | holders.keys()).issuperset(ids):
            raise _used_before()
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

    def _answer(self, drafts: Sequence[Draft], taken: Any, by: Any, conflicts: Any) -> Accepted:
        if not taken:
            return Accepted([draft.id for draft in drafts], {})
        late = self._uuids(taken)
        holders = dict(zip(late, self._uuids(by), strict=True))
        refused = {id for id, conflict in zip(late, conflicts, strict=True) if conflict}
        return Accepted(
            [holders.get(draft.id, draft.id) for draft in drafts],
            {
                draft.id: KeyConflict(draft.key or "", draft.tenant, holders[draft.id])
                for draft in drafts
                if draft.id in refused
            },
        )

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
        columns = {
            "queues": [lane.queue for lane in lanes],
            "types": [lane.type for lane in lanes],
            "versions": [lane.version for lane in lanes],
            "tags": [_json(lane.tags) for lane in lanes],
            "requires": [_json(lane.requires) for lane in lanes],
            "tenants": [lane.tenant for lane in lanes],
        }
        if conn is not None and self._driver.one_writer:
            rows = await self._driver.call_on(conn, "intern_lanes", **columns)
        else:  # on a connection of ours
            rows = await self._call("intern_lanes", **columns)
        return list(rows[0][0])


def _json(labels: tuple[str, ...]) -> str:
    return msgspec.json.encode(labels).decode()


def _columns(drafts: Sequence[Draft], lanes: list[int]) -> dict[str, Any]:
    """One list per column; None where nobody asked for it."""
    columns = {
        "ids": [draft.id for draft in drafts],
        "lanes": lanes,
        "nps": [-draft.priority for draft in drafts],
        "payloads": [draft.payload for draft in drafts],
    }
    if list(map(_WISHES, drafts)).count(_NO_WISHES) == len(drafts):
        return {**columns, **dict.fromkeys(_REST)}
    keys = _column(drafts, "key")
    return {
        **columns,
        "max_tries": _max_tries(drafts),
        "policies": _column(drafts, "retry", policy_bytes),
        "delays": _column(drafts, "delay", timedelta.total_seconds),
        "run_ats": _column(drafts, "run_at"),
        "expires": _column(drafts, "expires", timedelta.total_seconds),
        "keys": keys,
        "tenants": keys and [draft.tenant for draft in drafts],
        "fingerprints": keys and [draft.fingerprint for draft in drafts],
        "while_pendings": keys and [draft.unique == "while_pending" for draft in drafts],
        "concurrency_keys": _column(drafts, "concurrency_key"),
        "parents": _column(drafts, "parent"),
    }


def _column(
    drafts: Sequence[Draft], field: str, to: Callable[[Any], Any] | None = None
) -> list[Any] | None:
    values = list(map(attrgetter(field), drafts))
    if values.count(None) == len(values):
        return None
    return [None if value is None else to(value) for value in values] if to else values


def _max_tries(drafts: Sequence[Draft]) -> list[int | None] | None:
    own, policies = _column(drafts, "max_tries"), _column(drafts, "retry")
    if own is None and policies is None:
        return None
    return [d.max_tries or (d.retry.max_attempts if d.retry else None) for d in drafts]


def _used_before() -> InvalidInput:
    return InvalidInput("some of these task ids were used before; make a new id for each task")
