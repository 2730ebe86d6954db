"""What an operator does: cancel, retry, discard, pause, limit; and what functions declare."""

from collections.abc import Sequence
from typing import Any, Literal
from uuid import UUID

import msgspec

from holdfast.answers import Cancelling, LimitKind, LimitRecord
from holdfast.errors import InvalidInput
from holdfast.stores.base import Base
from holdfast.tasks.limits import Limit, Rate
from holdfast.tasks.names import check_name, check_type

__all__ = ["Steering"]

MOST_AT_ONCE = 10_000


class Steering(Base):
    """Keeps `holdfast.steering.Steering`."""

    async def cancel(self, tasks: Sequence[UUID], *, left: bool = False) -> dict[UUID, Cancelling]:
        ids = _bounded(tasks)
        states, withdrawn = await self._cancel(ids, "left" if left else "asked")
        # Looked for once the request stands: whoever makes more children now hears of it.
        await self.cancel_below(ids, left=left)
        return {id: _answer(id, states, withdrawn) for id in ids}

    async def cancel_below(self, tasks: Sequence[UUID], *, left: bool = False) -> None:
        rows = await self._call("open_descendants", ids=_bounded(tasks), left=left)
        below = [self._driver.uuid(id) for (id,) in rows]
        for start in range(0, len(below), MOST_AT_ONCE):
            await self._cancel(sorted(below[start : start + MOST_AT_ONCE]), "below")

    async def _cancel(
        self, ids: list[UUID], rule: Literal["asked", "left", "below"]
    ) -> tuple[dict[UUID, str | None], set[UUID]]:
        """`left`: only those whose parents have ended; `below`: or are being cancelled."""
        # The request is committed first: nothing can slip through between it and the withdrawal.
        rows = await self._call("request_cancel", ids=ids, rule=rule)
        states = {self._driver.uuid(id): state for id, state in rows}
        open_ids = [id for id, state in states.items() if state is None]
        withdrawn = set(await self._withdraw(open_ids)) if open_ids else set()
        if missed := [id for id in open_ids if id not in withdrawn]:
            # Held by a worker; or ended by now, perhaps by this very call, asked before.
            rows = await self._call("ended_as", ids=missed)
            states |= {self._driver.uuid(id): state for id, state in rows}
        return states, withdrawn

    async def retry(self, tasks: Sequence[UUID]) -> frozenset[UUID]:
        return frozenset(self._uuids(await self._value("retry", ids=_bounded(tasks))))

    async def discard(self, tasks: Sequence[UUID]) -> frozenset[UUID]:
        return frozenset(self._uuids(await self._value("discard", ids=_bounded(tasks))))

    async def pause(self, queue: str) -> None:
        await self._call("pause", queue=check_name("queue", queue), paused=True)

    async def resume(self, queue: str) -> None:
        await self._call("pause", queue=check_name("queue", queue), paused=False)

    async def drain(self, worker: int) -> bool:
        return bool(await self._call("request_drain", id=worker))

    async def limit(
        self, kind: LimitKind, name: str, limit: Limit, *, declared: bool = False
    ) -> None:
        match kind:
            case "type":
                check_type(name)
            case "queue" | "tenant":
                check_name(kind, name)
                if limit.max_per_key is not None:
                    raise InvalidInput(f"a limit per key belongs to a function, not to a {kind}")
                if declared:
                    raise InvalidInput(f"code declares limits of functions, not of a {kind}")
            case _:
                raise InvalidInput(f"a limit is set on a type, queue or tenant, not on a {kind!r}")
        await self._call(
            "set_limit", kind=kind, name=name, limit=_written(limit), declared=declared
        )

    async def limits(self) -> list[LimitRecord]:
        return [
            LimitRecord(
                kind=kind,
                name=name,
                limit=_read(said),
                declared=_read(declared),
                held=bool(held),
                running=running,
            )
            for kind, name, said, declared, held, running in await self._call("limits")
        ]

    async def _withdraw(self, ids: list[UUID]) -> list[UUID]:
        ((withdrawn, parents),) = await self._call(
            "withdraw", ids=ids, state="cancelled", error_type=None, error=None
        )
        if parents:
            await self._call("wake_up", ids=sorted(set(self._uuids(parents))))
        ended = self._uuids(withdrawn)
        if ended:
            await self.wake_watchers(ended)
        return ended


def _bounded(tasks: Sequence[UUID]) -> list[UUID]:
    if len(tasks) > MOST_AT_ONCE:
        raise InvalidInput(f"at most {MOST_AT_ONCE:,} tasks in one call, got {len(tasks):,}")
    return sorted(set(tasks))


def _answer(id: UUID, states: dict[UUID, str | None], withdrawn: set[UUID]) -> Cancelling:
    if id not in states:
        return "unknown"
    if states[id] == "cancelled" or id in withdrawn:
        return "cancelled"
    return "requested" if states[id] is None else "ended"


def _written(limit: Limit) -> str | None:
    """With all that a gate needs to keep it."""
    if limit == Limit():
        return None
    said: dict[str, Any] = {"max_running": limit.max_running, "max_per_key": limit.max_per_key}
    if rate := limit.rate:
        said |= {**msgspec.structs.asdict(rate), "interval": rate.interval}
    return msgspec.json.encode(said).decode()


def _read(said: str | None) -> Limit:
    if said is None:
        return Limit()
    found = msgspec.json.decode(said)
    rate = found.get("interval") and msgspec.convert(found, Rate, strict=False)
    return Limit(
        max_running=found["max_running"], max_per_key=found["max_per_key"], rate=rate or None
    )
