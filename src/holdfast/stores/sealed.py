"""A store whose payloads, results, steps, signals and saved state are sealed on their way in."""

import logging
from collections.abc import Sequence
from typing import Any, cast
from uuid import UUID

import msgspec

from holdfast.answers import (
    ClaimAnswer,
    Ending,
    Journal,
    JournalPage,
    News,
    Progress,
    Signal,
    Step,
    Written,
)
from holdfast.errors import Sealed
from holdfast.sealing import KeyRing
from holdfast.store import Prepared, Store
from holdfast.tasks.cron import Cron
from holdfast.tasks.lifecycle import Settlement
from holdfast.tasks.task import Claimed, Draft, Lease

__all__ = ["sealed"]

logger = logging.getLogger("holdfast.store")
replace = msgspec.structs.replace


def sealed(store: Store, ring: KeyRing) -> Store:
    return cast(Store, _SealedStore(store, ring))


class _SealedStore:
    """Whatever carries no data of users goes straight through."""

    def __init__(self, store: Store, ring: KeyRing) -> None:
        self._inner, self._ring = store, ring

    def __getattr__(self, verb: str) -> Any:
        return getattr(self._inner, verb)

    def as_tenant(self, tenant: str | None) -> Store:
        return sealed(self._inner.as_tenant(tenant), self._ring)

    # ── in ───────────────────────────────────────────────────────────────────────────────────

    async def enqueue(self, drafts: Sequence[Draft], *, conn: Any = None) -> list[UUID]:
        return await self._inner.enqueue(self._sealed(drafts), conn=conn)

    async def plan(self, type: str, cron: Cron, *, drafts: Sequence[Draft], **span: Any) -> bool:
        return await self._inner.plan(type, cron, drafts=self._sealed(drafts), **span)

    async def prepare(self, drafts: Sequence[Draft]) -> Prepared:
        return await self._inner.prepare(self._sealed(drafts))

    async def settle(
        self, settlements: Sequence[tuple[Lease, Settlement]], **options: Any
    ) -> frozenset[UUID]:
        hidden = [(lease, self._sealed_end(lease, end)) for lease, end in settlements]
        return await self._inner.settle(hidden, **options)

    async def progress(
        self, lease: Lease, percent: float, message: str | None = None, saved: bytes | None = None
    ) -> None:
        hidden = None if saved is None else self._ring.seal(saved, lease.task, "saved")
        await self._inner.progress(lease, percent, message, hidden)

    async def record(
        self, lease: Lease, steps: Sequence[Step], *, children: Sequence[Draft] = (), **rest: Any
    ) -> Written:
        hidden = [
            step if step.value is None else replace(step, value=self._seal_step(lease.task, step))
            for step in steps
        ]
        return await self._inner.record(lease, hidden, children=self._sealed(children), **rest)

    async def send_signal(self, task: UUID, id: UUID, name: str, payload: bytes) -> bool:
        hidden = self._ring.seal(payload, task, f"signal {id}")
        return await self._inner.send_signal(task, id, name, hidden)

    def _sealed(self, drafts: Sequence[Draft]) -> list[Draft]:
        return [
            replace(
                draft,
                payload=self._ring.seal(draft.payload, draft.id, "payload"),
                work=self._ring.fingerprint(draft.fingerprint),
            )
            for draft in drafts
        ]

    def _sealed_end(self, lease: Lease, end: Settlement) -> Settlement:
        if end.payload is not None:
            return replace(end, payload=self._ring.seal(end.payload, lease.task, "payload"))
        if end.result is None:
            return end
        return replace(end, result=self._ring.seal(end.result, lease.task, "result"))

    def _seal_step(self, task: UUID, step: Step) -> bytes:
        return self._ring.seal(step.value or b"null", task, f"step {step.position}")

    # ── out ──────────────────────────────────────────────────────────────────────────────────

    async def claim(self, **ask: Any) -> ClaimAnswer:
        answer = await self._inner.claim(**ask)
        return replace(answer, tasks=self._opened(answer.tasks))

    async def claimed(self, *, worker: int, grant: UUID) -> list[Claimed]:
        return self._opened(await self._inner.claimed(worker=worker, grant=grant))

    async def payload(self, task: UUID) -> bytes:
        return self._ring.open(await self._inner.payload(task), task, "payload")

    async def ending(self, task: UUID) -> Ending | None:
        ending = await self._inner.ending(task)
        return ending and self._open_end(task, ending)

    async def saved(self, task: UUID) -> Progress | None:
        progress = await self._inner.saved(task)
        if progress is None or progress.saved is None:
            return progress
        return replace(progress, saved=self._ring.open(progress.saved, task, "saved"))

    async def journal(self, task: UUID) -> Journal:
        journal = await self._inner.journal(task)
        return replace(journal, steps=[self._open_step(task, step) for step in journal.steps])

    async def journal_page(
        self, task: UUID, *, after: int = -1, limit: int = 1000, families: bool = False
    ) -> JournalPage:
        page = await self._inner.journal_page(task, after=after, limit=limit, families=families)
        return replace(page, steps=[self._open_step(task, step) for step in page.steps])

    async def news(
        self, task: UUID, children: Sequence[UUID], *, signals: Sequence[str] = ()
    ) -> News:
        news = await self._inner.news(task, children, signals=signals)
        endings = {child: self._open_end(child, end) for child, end in news.endings.items()}
        return replace(news, endings=endings, signals=[self._heard(task, s) for s in news.signals])

    def _opened(self, tasks: Sequence[Claimed]) -> list[Claimed]:
        """One that cannot be opened is handed on as it is: its attempt fails, and says why."""
        return [replace(task, payload=self._open_or_leave(task)) for task in tasks]

    def _open_or_leave(self, task: Claimed) -> bytes:
        try:
            return self._ring.open(task.payload, task.lease.task, "payload")
        except Sealed as error:
            logger.error("task %s cannot be read: %s", task.lease.task, error)
            return task.payload

    def _open_end(self, task: UUID, end: Ending) -> Ending:
        if end.result is None:
            return end
        return replace(end, result=self._ring.open(end.result, task, "result"))

    def _open_step(self, task: UUID, step: Step) -> Step:
        if step.value is None:
            return step
        return replace(step, value=self._ring.open(step.value, task, f"step {step.position}"))

    def _heard(self, task: UUID, signal: Signal) -> Signal:
        opened = self._ring.open(signal.payload, task, f"signal {signal.id}")
        return replace(signal, payload=opened)
