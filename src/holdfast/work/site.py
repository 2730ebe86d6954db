"""What attempts need of the worker that they run in."""

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol
from uuid import UUID

from holdfast.answers import Journal, Written
from holdfast.redaction import Redaction
from holdfast.store import Store
from holdfast.tasks.lifecycle import Settlement
from holdfast.tasks.task import Draft, Lease
from holdfast.work.adoption import Offer
from holdfast.work.flowing import Flowing
from holdfast.work.holding import Holding

if TYPE_CHECKING:
    from holdfast.work.attempt import Attempt

__all__ = ["Site"]


class Site(Protocol):
    """Where attempts run: what all attempts of a worker share."""

    store: Store
    holding: Holding
    worker_id: str
    default_tries: int
    redaction: Redaction

    def begin_flow(self, attempt: "Attempt", journal: Journal | None) -> Flowing: ...

    def keep_logs(self, lease: Lease) -> Awaitable[None]:
        """Write what it said so far: once its end is written it is too late."""
        ...

    def released(self, attempt: "Attempt", settlement: Settlement) -> None:
        """Its end is written already."""
        ...

    def rest(self, attempt: "Attempt") -> None:
        """It only waits: its slot is free."""
        ...

    def resume(self, attempt: "Attempt") -> Awaitable[None]:
        """It goes on, once there is a slot for it."""
        ...

    def stopping(self, attempt: "Attempt") -> None:
        """It was told to stop, and should end soon."""
        ...

    def offer(
        self, attempt: "Attempt", drafts: Sequence[Draft], *, durable: bool
    ) -> Offer | None: ...

    def made(
        self, drafts: Sequence[Draft], written: Written, offer: Offer | None, root: UUID
    ) -> None: ...

    def in_thread(
        self, work: Callable[[], Any], stopped: Callable[[], None]
    ) -> Awaitable[tuple[Any, BaseException | None]]: ...
