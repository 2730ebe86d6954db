"""Bringing tasks in: one statement for many drafts; callers that come together share one commit."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, TypeVar
from uuid import UUID

from holdfast.errors import InvalidInput, KeyConflict
from holdfast.stores.base import Base, policy_bytes
from holdfast.stores.driver import Driver, DuplicateTask
from holdfast.tasks.lane import Lane
from holdfast.tasks.task import Draft

__all__ = ["Producing"]

MOST_DRAFTS = 100_000
_SHARED = 500  # drafts that share a commit

T = TypeVar("T")


class Producing(Base):
    """Keeps `holdfast.store.Producing`."""

    def __init__(self, driver: Driver, *, share_commits: bool = True) -> None:
        super().__init__(driver)
        self._share = share_commits
        self._waiting: list[tuple[Sequence[Draft], asyncio.Future[list[UUID]]]] = []
        self._sharing: asyncio.Task[None] | None = None

    async def enqueue(self, drafts: Sequence[Draft], *, conn: Any = None) -> list[UUID]:
        if len(drafts) > MOST_DRAFTS:
            raise InvalidInput(
                f"at most {MOST_DRAFTS:,} tasks go in one call, got {len(drafts):,}; "
                "send them in parts"
            )
        if not drafts:
            return []
        if conn is not None:
            return await self._accept(drafts, conn)
        if not self._share or len(drafts) >= _SHARED:
            return await self._accept(drafts)
        done: asyncio.Future[list[UUID]] = asyncio.get_running_loop().create_future()
        self._waiting.append((drafts, done))
        if self._sharing is None or self._sharing.done():
            self._sharing = asyncio.create_task(self._share_commits())
        return await done

    async def _share_commits(self) -> None:
        """Whatever came while the last commit was in flight goes into the next: no timer."""
        while self._waiting:
            size = 0
            together = []
            for drafts, done in self._waiting:
                if size and size + len(drafts) > _SHARED:
                    break
                size += len(drafts)
                together.append((drafts, done))
            del self._waiting[: len(together)]
            await self._accept_together([w for w in together if not w[1].done()])

    async def _accept_together(
        self, together: list[tuple[Sequence[Draft], asyncio.Future[list[UUID]]]]
    ) -> None:
        try:
            ids = await self._accept([draft for drafts, _ in together for draft in drafts])
        except Exception as error:
            # One caller's fault must not be another's: each on its own.
            for drafts, done in together:
                try:
                    answer = await self._accept(drafts) if len(together) > 1 else _raise(error)
                except Exception as own:
                    if not done.done():
                        done.set_exception(own)
                else:
                    if not done.done():
                        done.set_result(answer)
            return
        start = 0
        for drafts, done in together:
            if not done.done():
                done.set_result(ids[start : start + len(drafts)])
            start += len(drafts)

    async def _accept(self, drafts: Sequence[Draft], conn: Any = None) -> list[UUID]:
        parameters = _columns(drafts, await self._lanes_of(drafts, conn))
        try:
            if conn is not None:
                rows = await self._driver.call_on(conn, "accept", **parameters)
            else:
                rows = await self._driver.call("accept", **parameters)
        except DuplicateTask:
            ids = [draft.id for draft in drafts]
            if len(self._uuids(r[0] for r in await self._driver.call("known", ids=ids))) < len(ids):
                raise InvalidInput(
                    "some of these task ids were used before; make a new id for each task"
                ) from None
            return ids  # this very call was written before, and its answer was lost
        return self._answer(drafts, *rows[0])

    def _answer(self, drafts: Sequence[Draft], taken: Any, by: Any, conflicts: Any) -> list[UUID]:
        if not taken:
            return [draft.id for draft in drafts]
        holders = dict(zip(self._uuids(taken), self._uuids(by), strict=True))
        for id, conflict in zip(self._uuids(taken), conflicts, strict=True):
            if conflict:
                draft = next(draft for draft in drafts if draft.id == id)
                raise KeyConflict(draft.key or "", draft.tenant, holders[id])
        return [holders.get(draft.id, draft.id) for draft in drafts]

    async def _lanes_of(self, drafts: Sequence[Draft], conn: Any) -> list[int]:
        found: list[int] = []
        last: tuple[Any, ...] | None = None
        lane_id = 0
        for draft in drafts:
            parts = (
                draft.queue,
                draft.type,
                draft.version,
                draft.tags,
                draft.requires,
                draft.tenant,
            )
            if parts != last:
                last = parts
                lane_id = await self._intern(draft.lane, conn)
            found.append(lane_id)
        return found

    async def _intern(self, lane: Lane, conn: Any) -> int:
        known = self._lane_ids.get(lane)
        if known is not None:
            return known
        # On a connection of ours: after the caller's rollback a remembered id would lead nowhere.
        id: int = await self._value(
            "intern_lane",
            queue=lane.queue,
            type=lane.type,
            version=lane.version,
            tags=list(lane.tags),
            requires=list(lane.requires),
            tenant=lane.tenant,
        )
        self._lane_ids[lane] = id
        self._lanes[id] = lane
        return id


def _columns(drafts: Sequence[Draft], lanes: list[int]) -> dict[str, Any]:
    """One list per column; None where nobody asked for it."""
    keyed = any(draft.key is not None for draft in drafts)
    return {
        "ids": [draft.id for draft in drafts],
        "lanes": lanes,
        "nps": [-draft.priority for draft in drafts],
        "payloads": [draft.payload for draft in drafts],
        "max_tries": _column(
            drafts, lambda d: d.max_tries or (d.retry.max_attempts if d.retry else None)
        ),
        "policies": _column(drafts, lambda d: policy_bytes(d.retry) if d.retry else None),
        "delays": _column(drafts, lambda d: d.delay.total_seconds() if d.delay else None),
        "run_ats": _column(drafts, lambda d: d.run_at),
        "expires": _column(drafts, lambda d: d.expires.total_seconds() if d.expires else None),
        "keys": _column(drafts, lambda d: d.key),
        "tenants": [draft.tenant for draft in drafts] if keyed else None,
        "fingerprints": [draft.fingerprint for draft in drafts] if keyed else None,
        "while_pendings": [d.unique == "while_pending" for d in drafts] if keyed else None,
        "concurrency_keys": _column(drafts, lambda d: d.concurrency_key),
        "parents": _column(drafts, lambda d: d.parent),
    }


def _column(drafts: Sequence[Draft], field: Callable[[Draft], T | None]) -> list[T | None] | None:
    values = [field(draft) for draft in drafts]
    return values if any(value is not None for value in values) else None


def _raise(error: Exception) -> Any:
    raise error
