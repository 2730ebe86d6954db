"""The desk's verbs about limits, over a store."""

from holdfast.answers import LimitKind, LimitRecord
from holdfast.desk.base import Base
from holdfast.desk.papers import LimitPlace, LimitTerms, LimitView, LimitWish
from holdfast.errors import InvalidInput
from holdfast.notifier import Hint
from holdfast.tasks.limits import Limit
from holdfast.tasks.names import check_name, check_type

__all__ = ["Limits"]

Place = tuple[LimitKind, str]


class Limits(Base):
    """Keeps the part about limits of `holdfast.desk.desk.Desk`."""

    async def limits(self) -> list[LimitView]:
        return [_view(record) for record in await self._store.limits()]

    async def set_limit(self, wish: LimitWish) -> LimitView:
        limit = Limit.of(wish.max_concurrent, wish.max_concurrent_per_key, wish.rate_limit)
        if limit == Limit():
            raise InvalidInput("say what to limit: max_concurrent or rate_limit; or lift the limit")
        if wish.kind != "type" and wish.max_concurrent_per_key is not None:
            raise InvalidInput(f"a limit per key belongs to a function, not to a {wish.kind}")
        place = self._place(wish.kind, wish.name)
        said = {"max_concurrent": wish.max_concurrent, "rate_limit": wish.rate_limit}
        per_key = wish.max_concurrent_per_key
        await self._limit("limit.set", place, limit, **said, max_concurrent_per_key=per_key)
        if found := await self._at(place):
            return found
        kind, name = place  # somebody lifted it meanwhile
        return _view(
            LimitRecord(
                kind=kind, name=name, limit=limit, declared=Limit(), held=True, running=None
            )
        )

    async def lift_limit(self, place: LimitPlace) -> LimitView | None:
        where = self._place(place.kind, place.name)
        await self._limit("limit.lift", where, Limit())
        return await self._at(where)

    async def _at(self, place: Place) -> LimitView | None:
        return next((one for one in await self.limits() if (one.kind, one.name) == place), None)

    async def _limit(self, verb: str, place: Place, limit: Limit, **said: str | int | None) -> None:
        kind, name = place
        await self._note(verb, f"{kind} {name}", **said)
        await self._store.limit(kind, name, limit)
        self._client.tell([Hint("work", name if kind == "queue" else "*")])

    def _place(self, kind: LimitKind, name: str) -> Place:
        """Checked; a function may be named by the last part of its name, where it is known here."""
        match kind:
            case "type":
                return kind, check_type(self._functions.full_name(name))
            case "queue" | "tenant":
                return kind, check_name(kind, name)
            case _:
                raise InvalidInput(f"a limit is set on a type, queue or tenant, not on a {kind!r}")


def _view(record: LimitRecord) -> LimitView:
    declared = None if record.declared == Limit() else _terms(record.declared)
    terms = _terms(record.limit)
    return LimitView(
        kind=record.kind,
        name=record.name,
        max_concurrent=terms.max_concurrent,
        max_concurrent_per_key=terms.max_concurrent_per_key,
        rate_limit=terms.rate_limit,
        running=record.running,
        set_by="operator" if record.held or record.kind != "type" else "code",
        declared=declared,
    )


def _terms(limit: Limit) -> LimitTerms:
    return LimitTerms(
        max_concurrent=limit.max_running,
        max_concurrent_per_key=limit.max_per_key,
        rate_limit=None if limit.rate is None else str(limit.rate),
    )
