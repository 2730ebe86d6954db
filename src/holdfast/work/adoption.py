"""Children of durable functions as they are made: some are taken here and now, without a claim in
between; of the others those are told who may be free for them."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from itertools import takewhile
from typing import Protocol
from uuid import UUID

from holdfast.answers import Taking, Written
from holdfast.errors import LeaseLost
from holdfast.ids import new_grant
from holdfast.notifier import Hint, Notifier
from holdfast.observer import Observer
from holdfast.tasks.task import Claimed, Draft, Lease
from holdfast.work.claiming import Claiming
from holdfast.work.holding import Holding

__all__ = ["Adoption", "Offer"]

_ANSWER = 2.0  # seconds


class Looks(Protocol):
    """Who looks for work here."""

    @property
    def is_idle(self) -> bool: ...

    def take(self, tasks: list[Claimed]) -> None: ...

    def look_now(self) -> None: ...


class Offer:
    """What this worker would take, and when it said so. Entered for as long as the statement that
    hands children over is under way: `missed` is called where its answer was not heard."""

    __slots__ = ("_heard", "_missed", "sent", "taking")

    def __init__(self, taking: Taking, sent: int, missed: Callable[["Offer"], None]) -> None:
        self.taking, self.sent, self._missed = taking, sent, missed
        self._heard = asyncio.Event()

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        # Also a lease that is lost now may have been held when the same was asked before.
        if isinstance(error, asyncio.CancelledError | LeaseLost):
            self._missed(self)
        self._heard.set()

    async def heard(self) -> None:
        """Whoever leaves waits for the answer, as long as one may be expected."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_ANSWER):
                await self._heard.wait()


class Adoption:
    """Only while nothing else waits for this worker: children never overtake what came before."""

    def __init__(
        self,
        *,
        worker: int,
        lease: timedelta,
        claiming: Claiming,
        holding: Holding,
        notifier: Notifier,
        observer: Observer,
        looking: Looks,
    ) -> None:
        self._worker, self._lease = worker, lease
        self._looking = looking
        self._claiming, self._holding = claiming, holding
        self._notifier, self._observer = notifier, observer

    def offer(self, drafts: Sequence[Draft], room: int, *, durable: bool) -> Offer | None:
        if room < 1 or not self._looking.is_idle:
            return None
        free = self._claiming.free
        most = sum(1 for _ in takewhile(lambda draft: draft.lane in free, drafts[:room]))
        if not most:
            return None
        taking = Taking(
            worker=self._worker,
            grant=new_grant(),
            lease=self._lease,
            most=most,
            durable=durable,
        )
        return Offer(taking, self._holding.now(), self._missed)

    def _missed(self, offer: Offer) -> None:
        """They may be held here, and nobody knows of it: look for them, as for any claim."""
        self._claiming.went_astray(offer.taking.grant, offer.sent)
        self._looking.look_now()

    def made(
        self, drafts: Sequence[Draft], written: Written, offer: Offer | None, root: UUID
    ) -> None:
        """They were accepted, and some of them taken. `root`: of their family."""
        new = [d for d, id in zip(drafts, written.children, strict=True) if d.id == id]
        self._observer.enqueued(new)
        if offer and written.leased:
            taken = [_claimed(d, offer.taking, root) for d in new if d.id in written.leased]
            self._holding.add((task.lease for task in taken), offer.sent)
            self._looking.take(taken)
        if others := {draft.queue for draft in new if draft.id not in written.leased}:
            self._looking.look_now()  # a hint of our own takes longer
            self._notifier.tell(Hint("work", queue) for queue in others)


def _claimed(draft: Draft, taking: Taking, root: UUID) -> Claimed:
    """As a claim would have answered it."""
    policy = draft.retry
    return Claimed(
        lease=Lease(draft.id, taking.grant, 1),
        lane=draft.lane,
        priority=draft.priority,
        tries=1,
        payload=draft.payload,
        max_tries=draft.max_tries or (policy.max_attempts if policy else None),
        retry=policy,
        user_id=draft.user_id,
        parent=draft.parent,
        root=root,
        expires_in=None if draft.expires is None else draft.expires.total_seconds(),
    )
