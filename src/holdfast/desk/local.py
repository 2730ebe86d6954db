"""The desk over a store."""

from collections.abc import Sequence
from hashlib import sha256
from typing import Any
from uuid import UUID

import msgspec

from holdfast.answers import Step
from holdfast.desk.fleet import Fleet
from holdfast.desk.graph import DEEPEST, DEPTH, MOST, FlowGraph, grown
from holdfast.desk.limits import Limits
from holdfast.desk.shapes import FlowEntry, FlowView, TaskView
from holdfast.desk.tasks import Tasks
from holdfast.desk.views import task_view
from holdfast.errors import InvalidInput
from holdfast.flow.checking import Run
from holdfast.flow.entries import Asked, Holder, read
from holdfast.ids import derived_id
from holdfast.tasks.payload import encode
from holdfast.tasks.task import Task

__all__ = ["LocalDesk"]

_PAGE = 1000


class LocalDesk(Tasks, Fleet, Limits):
    """Keeps `holdfast.desk.desk.Desk`."""

    async def flow(self, id: UUID, after: int = -1, limit: int = 500) -> FlowView:
        task = await self._own(id)
        page = await self._store.journal_page(id, after=after, limit=limit)
        return FlowView(
            task=task_view(task),
            journal=[
                FlowEntry(
                    position=step.position,
                    kind=step.kind,
                    name=step.name,
                    value=msgspec.Raw(self._redaction.hide(step.value or b"null")),
                )
                for step in page.steps
            ],
            children=await self._children(page.steps),
            next_after=page.next_after,
        )

    async def graph(self, id: UUID, *, depth: int = DEPTH) -> FlowGraph:
        if not 1 <= depth <= DEEPEST:
            raise InvalidInput(f"depth must be from 1 to {DEEPEST}, got {depth}")

        async def below(id: UUID) -> list[TaskView]:
            found: dict[UUID, TaskView] = {}
            after: int | None = -1
            while after is not None and len(found) < MOST:
                page = await self._store.journal_page(id, after=after, families=True)
                found |= {child.id: child for child in await self._children(page.steps)}
                after = page.next_after
            return list(found.values())

        return await grown(task_view(await self._own(id)), below, depth)

    async def _children(self, steps: Sequence[Step]) -> list[TaskView]:
        """What it asked for, in order, as far as the caller may see it. Of what somebody else had
        asked for before, the entry behind the ask says which task that is."""
        entries = map(read, steps)
        asked = list(
            dict.fromkeys(e.task for e in entries if isinstance(e, Asked | Holder) and e.task)
        )
        found: dict[UUID, Task] = {}
        for start in range(0, len(asked), _PAGE):
            found |= await self._store.get_many(asked[start : start + _PAGE])
        return [
            task_view(found[id]) for id in asked if id in found and self._is_ours(found[id].tenant)
        ]

    async def export(self, id: UUID) -> bytes:
        task = await self._own(id)
        payload, journal = await self._store.payload(id), await self._store.journal(id)
        if not self._caller.may("admin"):
            hide = self._redaction.hide
            payload = hide(payload, self._places(task))
            steps = [
                msgspec.structs.replace(s, value=hide(s.value or b"null")) for s in journal.steps
            ]
            journal = msgspec.structs.replace(journal, steps=steps)
        return Run.of(id, task.type, task.version, payload, journal).written()

    async def signal(
        self, id: UUID, name: str, payload: Any = None, *, key: str | None = None
    ) -> bool:
        await self._own(id)
        await self._note("flow.signal", str(id), name=name)
        if key is None:
            return await self._client.send_signal(id, name, payload)
        said = sha256(encode(payload)).hexdigest()
        once = derived_id(id, "signal", self._caller.tenant, self._caller.name, key, name, said)
        return await self._client.send_signal(id, name, payload, signal=once)
