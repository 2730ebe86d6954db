"""Steps, signals and wakes of durable functions: one row per step, guarded by the lease."""

from collections.abc import Sequence
from uuid import UUID

from holdfast.answers import Journal, Progress, Signal, Step
from holdfast.errors import InvalidInput, JournalConflict, LeaseLost
from holdfast.stores.base import Base
from holdfast.tasks.names import check_key
from holdfast.tasks.payload import check_payload
from holdfast.tasks.task import Lease

__all__ = ["Flows"]


class Flows(Base):
    """Keeps `holdfast.store.Flows`."""

    async def record(
        self,
        lease: Lease,
        steps: Sequence[Step],
        *,
        consumed: Sequence[UUID] = (),
        seen: Sequence[int] = (),
    ) -> None:
        _check(steps)
        ((held, conflicts),) = await self._call(
            "record",
            id=lease.task,
            grant=lease.grant,
            positions=[step.position for step in steps],
            kinds=[step.kind for step in steps],
            names=[step.name for step in steps],
            step_values=[step.value for step in steps],
            consumed=list(consumed),
            seen=list(seen),
        )
        if not held:
            await self._refuse("record", [lease])
            raise LeaseLost("record", lease.task)
        if conflicts:
            raise JournalConflict(lease.task, conflicts)

    async def journal(self, task: UUID) -> Journal:
        # Wakes first: whoever woke us wrote what follows before.
        wakes = await self._call("wakes", id=task)
        signals = await self._call("signals", id=task)
        steps = await self._call("steps", id=task)
        return Journal(
            wakes=[seq for (seq,) in wakes],
            signals=[
                Signal(id=self._driver.uuid(id), name=name, payload=payload)
                for id, name, payload in signals
            ],
            steps=[
                Step(position=position, kind=kind, name=name, value=value)
                for position, kind, name, value in steps
            ],
        )

    async def saved(self, task: UUID) -> Progress | None:
        for percent, message, saved, at in await self._call("saved", id=task):
            updated_at = self._driver.instant(at)
            assert updated_at is not None
            return Progress(percent=percent, message=message, saved=saved, updated_at=updated_at)
        return None

    async def send_signal(self, task: UUID, id: UUID, name: str, payload: bytes) -> bool:
        check_key("signal name", name)
        check_payload(payload)
        sent: bool = await self._value(
            "send_signal", signal=id, id=task, name=name, payload=payload
        )
        if sent:
            await self.wake_up([task])
        return sent

    async def wake_up(self, tasks: Sequence[UUID]) -> int:
        moved: int = await self._value("wake_up", ids=sorted(tasks))
        return moved


def _check(steps: Sequence[Step]) -> None:
    taken: dict[int, Step] = {}
    for step in steps:
        check_key("step name", step.name)
        check_key("step kind", step.kind)
        check_payload(step.value or b"")
        if taken.setdefault(step.position, step) != step:
            raise InvalidInput(
                f"two different steps are to be recorded at position {step.position}"
            )
