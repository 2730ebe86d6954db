"""The desk's verbs about keys, the audit, logs and time series, over a store."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from uuid import UUID

from holdfast.desk import keys
from holdfast.desk.base import Base
from holdfast.desk.caller import ROLES, SCOPES
from holdfast.desk.papers import (
    AuditPage,
    AuditQuery,
    KeyView,
    KeyWish,
    LogPage,
    NewKey,
    SeriesView,
)
from holdfast.desk.views import audit_view, key_view, log_view, series_point
from holdfast.errors import InvalidInput, UnknownKey
from holdfast.records import BOUNDS, AuditRecord
from holdfast.tasks.durations import duration
from holdfast.tasks.names import check_name

__all__ = ["Office"]

_PAGE, _PAGES = 500, 20  # of the audit, that one question looks through
_SLACK = timedelta(hours=1)  # by which a clock may have been set back
_NEWEST = AuditQuery()


class Office(Base):
    """Keeps its part of `holdfast.desk.desk.Desk`."""

    # ── keys ─────────────────────────────────────────────────────────────────────────────────

    async def create_key(self, wish: KeyWish) -> NewKey:
        name, scopes = check_name("key", wish.name), self._scopes(wish.scopes)
        tenant = self._tenant_of_key(wish.tenant_id)
        expires = None if wish.expires is None else duration("expires", wish.expires)
        id, key, digest = keys.make()
        await self._note("key.create", id, name=name, scopes=scopes, tenant=tenant)
        await self._store.add_key(
            id,
            name=name,
            scopes=scopes,
            digest=digest,
            created_by=self._caller.name,
            tenant=tenant,
            expires=expires,
        )
        return NewKey(key=key, record=await self.key(id))

    async def keys(self) -> list[KeyView]:
        found = await self._store.keys()
        return [key_view(record) for record in found if self._is_ours(record.tenant)]

    async def key(self, id: str) -> KeyView:
        record = await self._store.key(id)
        if record is None or not self._is_ours(record.tenant):
            raise UnknownKey(id)
        return key_view(record)

    async def revoke_key(self, id: str) -> KeyView:
        await self.key(id)
        await self._note("key.revoke", id)
        await self._store.revoke_key(id)
        return await self.key(id)

    def _scopes(self, wanted: Sequence[str]) -> list[str]:
        """Nobody gives away more than they have."""
        found = sorted({scope for name in wanted for scope in ROLES.get(name, (name,))})
        if not found:
            raise InvalidInput(f"a key needs scopes: {', '.join(SCOPES)}; or a role: {_ROLES}")
        if unknown := [scope for scope in found if scope not in SCOPES]:
            raise InvalidInput(
                f"no such scope: {', '.join(unknown)!s:.200}; there are {', '.join(SCOPES)}, and "
                f"the roles {_ROLES}"
            )
        if beyond := [scope for scope in found if not self._caller.may(scope)]:
            raise InvalidInput(f"you cannot give away what you lack: {', '.join(beyond)}")
        return found

    def _tenant_of_key(self, wanted: str | None) -> str | None:
        own = self._caller.tenant
        if own is not None and wanted not in (None, own):
            raise InvalidInput(f"this key makes keys of tenant {own!r} only, not of {wanted!r:.80}")
        return own if wanted is None else check_name("tenant", wanted)

    # ── the audit, and logs ──────────────────────────────────────────────────────────────────

    async def audits(self, query: AuditQuery = _NEWEST) -> AuditPage:
        """Filters are looked for among so many records at a time."""
        if self._is_anothers(query.tenant_id):
            return _page([], None)
        found: list[AuditRecord] = []
        tenant, before = self._tenant_to_see(query.tenant_id), query.before
        for _ in range(_PAGES):
            page = await self._store.audits(before=before, tenant=tenant, limit=_PAGE)
            for record in page:
                if _is_meant(query, record):
                    if len(found) == query.limit:
                        return _page(found, before)
                    found.append(record)
                before = record.seq
            if len(page) < _PAGE or (query.since and page[-1].at < query.since - _SLACK):
                return _page(found, None)
        return _page(found, before)

    async def _logs(self, id: UUID, cursor: str | None, limit: int) -> LogPage:
        found = await self._store.logs(id, after=_place(cursor), limit=limit)
        last = found[-1] if len(found) == limit else None
        if last and not await self._store.logs(id, after=(last.fence, last.position), limit=1):
            last = None  # a full page may be the last
        return LogPage(
            data=[log_view(line) for line in found],
            next_cursor=f"{last.fence}.{last.position}" if last else None,
        )

    # ── time series ──────────────────────────────────────────────────────────────────────────

    async def series(
        self,
        since: datetime,
        until: datetime,
        *,
        step: timedelta = timedelta(minutes=1),
        queue: str | None = None,
        type: str | None = None,
    ) -> SeriesView:
        if step < timedelta(minutes=1) or (until - since) / step > 10_000:
            raise InvalidInput("a series has steps of a minute or more, and at most 10,000 of them")
        found = await self._store.rollups(
            since, until, step=step, queue=queue, type=type, tenant=self._caller.tenant
        )
        return SeriesView(
            bounds=list(BOUNDS),
            step_seconds=step.total_seconds(),
            data=[series_point(one) for one in found],
        )


_ROLES = ", ".join(ROLES)


def _place(cursor: str | None) -> tuple[int, int]:
    fence, dot, position = (cursor or "0.0").partition(".")
    if not (dot and fence.isdecimal() and position.isdecimal() and len(fence + position) < 20):
        raise InvalidInput(f"cursor {cursor!r:.80} is not one of ours; begin again without it")
    return int(fence), int(position)


def _is_meant(query: AuditQuery, record: AuditRecord) -> bool:
    return (
        query.actor in (None, record.actor)
        and query.subject in (None, record.subject)
        and (query.verb is None or _names(query.verb, record.verb))
        and (query.since is None or record.at >= query.since)
        and (query.until is None or record.at < query.until)
    )


def _names(wanted: str, verb: str) -> bool:
    """`task.*` names all verbs of tasks."""
    return verb.startswith(wanted[:-1]) if wanted.endswith("*") else verb == wanted


def _page(found: list[AuditRecord], before: int | None) -> AuditPage:
    return AuditPage(data=[audit_view(record) for record in found], next_before=before)
