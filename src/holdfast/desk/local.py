"""The desk over a store."""

from typing import Any
from uuid import UUID

import msgspec

from holdfast.desk.fleet import Fleet
from holdfast.desk.limits import Limits
from holdfast.desk.shapes import FlowEntry, FlowView
from holdfast.desk.tasks import Tasks
from holdfast.desk.views import task_view
from holdfast.flow.checking import Run
from holdfast.flow.entries import Asked, read

__all__ = ["LocalDesk"]


class LocalDesk(Tasks, Fleet, Limits):
    """Keeps `holdfast.desk.desk.Desk`."""

    async def flow(self, id: UUID) -> FlowView:
        task, journal = await self._own(id), await self._store.journal(id)
        entries = [read(step) for step in journal.steps]
        children = [e.task for e in entries if isinstance(e, Asked) and e.task]
        found = await self._store.get_many(children) if children else {}
        return FlowView(
            task=task_view(task),
            journal=[
                FlowEntry(
                    position=step.position,
                    kind=step.kind,
                    name=step.name,
                    value=msgspec.Raw(self._redaction.hide(step.value or b"null")),
                )
                for step in journal.steps
            ],
            children=[task_view(found[child]) for child in children if child in found],
        )

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

    async def signal(self, id: UUID, name: str, payload: Any = None) -> bool:
        await self._own(id)
        await self._note("flow.signal", str(id), name=name)
        return await self._client.send_signal(id, name, payload)
