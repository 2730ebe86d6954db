"""The desk's verbs about keys, the audit, logs, bulk operations and time series, over a store."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from uuid import UUID

import msgspec

from holdfast.answers import TaskFilter
from holdfast.desk import keys
from holdfast.desk.base import Base
from holdfast.desk.caller import ROLES, SCOPES
from holdfast.desk.papers import (
    AuditPage,
    AuditView,
    KeyView,
    KeyWish,
    LogPage,
    LogView,
    NewKey,
    OperationView,
    OperationWish,
    SeriesPoint,
    SeriesView,
    TaskSelection,
)
from holdfast.errors import InvalidInput, UnknownKey, UnknownOperation
from holdfast.ids import new_id
from holdfast.records import BOUNDS, AuditRecord, KeyRecord, LogRecord, Operation, Rollup
from holdfast.tasks.durations import duration
from holdfast.tasks.names import check_name
from holdfast.tasks.task import TaskStatus

__all__ = ["Office"]

_CAP = 10_000  # matches are counted up to here
_SAMPLE = 10
_MOST_CONFIRMED = 1_000_000
_PAGE = 500


class Office(Base):
    """Keeps the last part of `holdfast.desk.desk.Desk`."""

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
        return [_key_view(record) for record in found if self._is_ours(record.tenant)]

    async def key(self, id: str) -> KeyView:
        record = await self._store.key(id)
        if record is None or not self._is_ours(record.tenant):
            raise UnknownKey(id)
        return _key_view(record)

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

    def _is_ours(self, tenant: str | None) -> bool:
        return self._caller.tenant in (None, tenant)

    # ── the audit, and logs ──────────────────────────────────────────────────────────────────

    async def audits(self, *, before: int | None = None, limit: int = 100) -> AuditPage:
        tenant = self._caller.tenant
        found = await self._store.audits(before=before, tenant=tenant, limit=limit)
        more = found[-1].seq if len(found) == limit else None
        return AuditPage(data=[_audit_view(record) for record in found], next_before=more)

    async def _logs(self, id: UUID, cursor: str | None, limit: int) -> LogPage:
        found = await self._store.logs(id, after=_place(cursor), limit=limit)
        last = found[-1] if len(found) == limit else None
        return LogPage(
            data=[_log_view(line) for line in found],
            next_cursor=f"{last.fence}.{last.position}" if last else None,
        )

    # ── bulk operations ──────────────────────────────────────────────────────────────────────

    async def start_operation(self, wish: OperationWish) -> OperationView:
        filter = self._filter(wish.filter)
        if wish.rate is not None and not 0.01 <= wish.rate <= 100_000:
            raise InvalidInput(f"rate must be from 0.01 to 100,000 a second, got {wish.rate}")
        if wish.confirm_count is not None and not 0 <= wish.confirm_count <= _MOST_CONFIRMED:
            raise InvalidInput(f"confirm_count must be from 0 to {_MOST_CONFIRMED:,}")
        matched, sample = await self._match(filter, max(_CAP, (wish.confirm_count or 0) + 1))
        if wish.dry_run:
            return _plan(wish, matched, sample, self._caller.name, filter.tenant)
        if wish.confirm_count is not None and matched > wish.confirm_count:
            raise InvalidInput(
                f"{matched:,} tasks match, and {wish.confirm_count:,} were confirmed; "
                "look at a dry run, then confirm what it says"
            )
        id, named = new_id(), msgspec.to_builtins(filter)
        await self._note(
            "operation.start", str(id), action=wish.action, filter=named, matched=matched
        )
        await self._store.start_operation(
            id,
            wish.action,
            named,
            actor=self._caller.name,
            rate=wish.rate,
            matched=matched,
            tenant=self._caller.tenant,
            reason=wish.reason,
        )
        return await self.operation(id)

    async def operation(self, id: UUID) -> OperationView:
        found = await self._store.operation(id)
        if found is None or not self._is_ours(found.tenant):
            raise UnknownOperation(id)
        return _operation_view(found)

    async def operations(self, limit: int = 50) -> list[OperationView]:
        found = await self._store.operations(tenant=self._caller.tenant, limit=limit)
        return [_operation_view(one) for one in found]

    async def cancel_operation(self, id: UUID) -> OperationView:
        await self.operation(id)
        await self._note("operation.cancel", str(id))
        await self._store.cancel_operation(id)
        return await self.operation(id)

    def _filter(self, wanted: TaskSelection) -> TaskFilter:
        try:
            status = TaskStatus(wanted.status)
        except ValueError:
            known = ", ".join(TaskStatus)
            raise InvalidInput(f"status {wanted.status!r:.80} is none of {known}") from None
        own = self._caller.tenant
        if own is not None and wanted.tenant_id not in (None, own):
            raise InvalidInput(f"this key reaches tasks of tenant {own!r} only")
        return TaskFilter(
            status=status,
            queue=wanted.queue,
            type=wanted.type,
            tag=wanted.tag,
            tenant=wanted.tenant_id or own,
        )

    async def _match(self, filter: TaskFilter, most: int) -> tuple[int, list[UUID]]:
        count, sample, cursor = 0, list[UUID](), None
        while count < most:
            page = await self._store.list_tasks(filter, cursor=cursor, limit=_PAGE)
            count += len(page.tasks)
            sample += [task.id for task in page.tasks[: _SAMPLE - len(sample)]]
            if (cursor := page.next) is None:
                break
        return count, sample

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
            data=[_point(one) for one in found],
        )


_ROLES = ", ".join(ROLES)


def _key_view(record: KeyRecord) -> KeyView:
    return KeyView(
        id=record.id,
        name=record.name,
        tenant_id=record.tenant,
        scopes=list(record.scopes),
        created_at=record.created_at,
        created_by=record.created_by,
        expires_at=record.expires_at,
        last_used_at=record.last_used_at,
        revoked_at=record.revoked_at,
        valid=record.is_valid,
    )


def _audit_view(record: AuditRecord) -> AuditView:
    return AuditView(
        seq=record.seq,
        at=record.at,
        actor=record.actor,
        tenant_id=record.tenant,
        verb=record.verb,
        subject=record.subject,
        detail=record.detail,
    )


def _log_view(line: LogRecord) -> LogView:
    return LogView(**msgspec.structs.asdict(line))


def _place(cursor: str | None) -> tuple[int, int]:
    fence, dot, position = (cursor or "0.0").partition(".")
    if not (dot and fence.isdecimal() and position.isdecimal() and len(fence + position) < 20):
        raise InvalidInput(f"cursor {cursor!r:.80} is not one of ours; begin again without it")
    return int(fence), int(position)


def _operation_view(found: Operation) -> OperationView:
    return OperationView(
        id=found.id,
        action=found.action,
        filter={name: value for name, value in found.filter.items() if value is not None},
        rate=found.rate,
        state=found.state,
        matched=found.matched,
        done=found.done,
        failed=found.failed,
        actor=found.actor,
        tenant_id=found.tenant,
        reason=found.reason,
        error=found.error,
        created_at=found.created_at,
        ended_at=found.ended_at,
    )


def _plan(
    wish: OperationWish, matched: int, sample: list[UUID], actor: str, tenant: str | None
) -> OperationView:
    filter = msgspec.to_builtins(wish.filter)
    return OperationView(
        id=None,
        action=wish.action,
        filter={name: value for name, value in filter.items() if value is not None},
        rate=wish.rate,
        state="planned",
        matched=matched,
        done=0,
        failed=0,
        actor=actor,
        tenant_id=tenant,
        reason=wish.reason,
        error=None,
        created_at=None,
        ended_at=None,
        sample=sample,
    )


def _point(found: Rollup) -> SeriesPoint:
    return SeriesPoint(
        at=found.at,
        done=found.done,
        failed=found.failed,
        cancelled=found.cancelled,
        retried=found.retried,
        lost=found.lost,
        wait=list(found.wait),
        wait_seconds=found.wait_seconds,
        run=list(found.run),
        run_seconds=found.run_seconds,
    )
