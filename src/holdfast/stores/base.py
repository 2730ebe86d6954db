"""What all parts of the store share: its driver, and the lanes that it has seen."""

import logging
from collections.abc import Iterable, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any
from uuid import UUID
from weakref import WeakKeyDictionary

import msgspec

from holdfast.errors import InvalidInput, StoreError
from holdfast.stores.driver import Driver, MisplacedTask, Row
from holdfast.tasks.lane import Lane
from holdfast.tasks.retry import RetryPolicy
from holdfast.tasks.task import Failure, Lease

__all__ = ["Base", "check_limit", "failure_of", "policy_bytes", "policy_of", "stands_twice"]

logger = logging.getLogger("holdfast.store")
_LONGEST_PAGE = 1000


class Base:
    """Holds the driver. Lanes never change, so what was seen once is remembered."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._lane_ids: dict[Lane, int] = {}
        self._lanes: dict[int, Lane] = {}
        self._roots: dict[UUID, UUID] = {}  # by parent
        self._owed: WeakKeyDictionary[Any, frozenset[UUID]] = WeakKeyDictionary()

    async def _call(self, verb: str, /, **parameters: Any) -> Sequence[Row]:
        """Where a task stands in two places: take the doubles out and ask again."""
        for _ in range(2):
            try:
                return await self._driver.call(verb, **parameters)
            except MisplacedTask:
                await self._look_up_lanes()
                await self._driver.call("repair", lanes=[0, *self._lanes])
        raise stands_twice()

    async def _value(self, verb: str, /, **parameters: Any) -> Any:
        rows = await self._call(verb, **parameters)
        return rows[0][0] if rows else None

    async def wake_watchers(self, ended: Sequence[UUID]) -> list[UUID]:
        found = self._uuids(row[0] for row in await self._call("watchers", ids=sorted(ended)))
        for start in range(0, len(found), _LONGEST_PAGE):
            await self._call("wake_up", ids=sorted(found[start : start + _LONGEST_PAGE]))
        return found

    def _uuids(self, values: Iterable[Any] | None) -> list[UUID]:
        return [self._driver.uuid(value) for value in values or ()]

    def _at(self, value: Any) -> datetime:
        instant = self._driver.instant(value)
        assert instant is not None
        return instant

    async def _look_up_lanes(self) -> frozenset[int]:
        """Remember all lanes; answers those that pass a limit, which may change."""
        limited = []
        rows = await self._call("lanes")
        for id, queue, type, version, tags, requires, tenant, is_limited in rows:
            lane = Lane(
                queue=queue,
                type=type,
                version=version,
                tags=tuple(tags),
                requires=tuple(requires),
                tenant=tenant,
            )
            self._lanes[id] = lane
            self._lane_ids[lane] = id
            if is_limited:
                limited.append(id)
        return frozenset(limited)

    async def _refuse(self, verb: str, leases: Sequence[Lease]) -> None:
        """Put a late write that was refused on record."""
        await self._call(
            "refuse",
            verb=verb,
            ids=[lease.task for lease in leases],
            grants=[lease.grant for lease in leases],
            fences=[lease.fence for lease in leases],
        )


def check_limit(limit: int) -> None:
    if not 1 <= limit <= _LONGEST_PAGE:
        raise InvalidInput(f"a page holds 1 to {_LONGEST_PAGE} rows, got {limit}")


def stands_twice() -> StoreError:
    return StoreError(
        "a task stands in two places and could not be put right; look for one that is in several "
        "of the tables ready, later, blocked, lease and outcome, and delete what is too much"
    )


@lru_cache(1024)
def policy_bytes(policy: RetryPolicy) -> bytes:
    return msgspec.json.encode(msgspec.structs.replace(policy, retry_for=()))


@lru_cache(1024)
def policy_of(data: bytes) -> RetryPolicy | None:
    """None, as if there were none, where another release wrote what this one cannot read."""
    try:
        return msgspec.json.decode(data, type=RetryPolicy)
    except (msgspec.MsgspecError, ValueError) as error:
        logger.warning("a task's retry policy cannot be read (%s): the default counts", error)
        return None


def failure_of(type: str | None, message: str | None, detail: bytes | None) -> Failure | None:
    return None if type is None else Failure(type=type, message=message or "", detail=detail)
