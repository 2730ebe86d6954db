"""Drafts in the shape of the statement that accepts them, and what its answer means."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from operator import attrgetter
from typing import Any
from uuid import UUID

from holdfast.errors import InvalidInput, KeyConflict
from holdfast.notifier import Hint
from holdfast.stores.base import policy_bytes, stands_twice
from holdfast.stores.driver import Driver, DuplicateTask, MisplacedTask, Row
from holdfast.stores.sharing import Accepted
from holdfast.tasks.task import Draft

__all__ = ["Prepared", "accepted", "by_itself", "columns", "used_before"]

_WISHES = attrgetter(
    "max_tries", "retry", "delay", "run_at", "expires", "key", "concurrency_key", "user_id",
    "parent",
)  # fmt: skip
_NO_WISHES = (None,) * 9
_WAITS = attrgetter("delay", "run_at", "expires", "key", "concurrency_key")
_AT_ONCE = (None,) * 5
_MOST_BYTES = 256 << 20  # PostgreSQL takes a gigabyte in one statement, and holds it several times
_Column = list[Any] | None
_REST = (
    "max_tries", "policies", "delays", "run_ats", "expires", "keys", "tenants", "fingerprints",
    "lifetimes", "concurrency_keys", "user_ids", "parents",
)  # fmt: skip


class Prepared:
    """Keeps `holdfast.store.Prepared`: all is known but the connection. Of no thread or loop."""

    def __init__(self, driver: Driver, drafts: Sequence[Draft], lanes: list[int]) -> None:
        self._driver, self._drafts = driver, drafts
        self._columns = columns(drafts, lanes)

    @property
    def parameters(self) -> dict[str, Any]:
        """For the verb `accept` on a caller's connection."""
        queues = dict.fromkeys(draft.queue for draft in self._drafts)
        return {**self._columns, "tell": [str(Hint("work", queue)) for queue in queues]}

    def write(self, conn: Any) -> list[UUID]:
        if not self._drafts:
            return []
        with self.explained():
            return self.answer(self._driver.call_on_sync(conn, "accept", **self.parameters))

    def answer(self, rows: Sequence[Row]) -> list[UUID]:
        return accepted(self._driver, self._drafts, rows).all_or_none()

    @contextmanager
    def explained(self) -> Iterator[None]:
        """Nothing is put right on a caller's connection: its transaction may be lost by now."""
        try:
            yield
        except DuplicateTask:
            raise used_before() from None
        except MisplacedTask:
            raise stands_twice() from None


def accepted(driver: Driver, drafts: Sequence[Draft], rows: Sequence[Row]) -> Accepted:
    """What became of each draft."""
    taken, by, conflicts = rows[0][:3]
    if not taken:
        return Accepted([draft.id for draft in drafts], {})
    late = [driver.uuid(id) for id in taken]
    holders = dict(zip(late, map(driver.uuid, by), strict=True))
    refused = {id for id, conflict in zip(late, conflicts, strict=True) if conflict}
    return Accepted(
        [holders.get(draft.id, draft.id) for draft in drafts],
        {
            draft.id: KeyConflict(draft.key or "", draft.tenant, holders[draft.id])
            for draft in drafts
            if draft.id in refused
        },
    )


def columns(drafts: Sequence[Draft], lanes: list[int]) -> dict[str, Any]:
    """One list per column; None where nobody asked for it."""
    _check_weight(drafts)
    columns = {
        "ids": [draft.id for draft in drafts],
        "lanes": lanes,
        "nps": [-draft.priority for draft in drafts],
        "payloads": [draft.payload for draft in drafts],
    }
    wishes = list(map(_WISHES, drafts))
    if wishes.count(_NO_WISHES) == len(drafts):
        return {**columns, **dict.fromkeys(_REST)}
    tries, retries, delays, run_ats, expires, keys, concurrency_keys, user_ids, parents = (
        None if column.count(None) == len(column) else list(column)
        for column in zip(*wishes, strict=True)
    )
    return {
        **columns,
        "max_tries": _max_tries(tries, retries),
        "policies": _each(retries, policy_bytes),
        "delays": _each(delays, timedelta.total_seconds),
        "run_ats": run_ats,
        "expires": _each(expires, timedelta.total_seconds),
        "keys": keys,
        "tenants": keys and [draft.tenant for draft in drafts],
        "fingerprints": keys and [draft.fingerprint for draft in drafts],
        "lifetimes": keys and [draft.lifetime for draft in drafts],
        "concurrency_keys": concurrency_keys,
        "user_ids": user_ids,
        "parents": parents,
    }


def by_itself(draft: Draft, lane: int) -> dict[str, Any] | None:
    """The columns of one child; None where it asks for more than a slot."""
    if _WAITS(draft) != _AT_ONCE:
        return None
    policy = draft.retry
    return {
        "child": draft.id,
        "lane": lane,
        "np": -draft.priority,
        "payload": draft.payload,
        "max_tries": draft.max_tries or (policy and policy.max_attempts),
        "policy": policy and policy_bytes(policy),
        "user_id": draft.user_id,
    }


def _check_weight(drafts: Sequence[Draft]) -> None:
    weight = sum([len(draft.payload) for draft in drafts])
    if weight > _MOST_BYTES:
        raise InvalidInput(
            f"at most {_MOST_BYTES:,} bytes of arguments go in one call, got {weight:,} in "
            f"{len(drafts):,} tasks; send them in parts (in a durable function with at_most=), or "
            "store the data elsewhere and pass its address"
        )


def _each(column: _Column, to: Callable[[Any], Any]) -> _Column:
    return column and [None if value is None else to(value) for value in column]


def _max_tries(own: _Column, retries: _Column) -> _Column:
    """Their own, or those of their policies."""
    policies = _each(retries, attrgetter("max_attempts"))
    if own is None or policies is None:
        return own or policies
    return [tries or most for tries, most in zip(own, policies, strict=True)]


def used_before() -> InvalidInput:
    return InvalidInput("some of these task ids were used before; make a new id for each task")
