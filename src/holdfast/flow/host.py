"""What a flow needs of the attempt that it runs in."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

from holdfast.answers import Written
from holdfast.context import Context
from holdfast.function import Function
from holdfast.tasks.lifecycle import Anew, Waiting
from holdfast.tasks.task import Draft

__all__ = ["Host"]


class Host(Protocol):
    """The attempt that a flow runs in."""

    @property
    def context(self) -> Context: ...

    @property
    def function(self) -> Function[..., Any, Any]: ...

    def stop_for(self, reason: Waiting | Anew | BaseException) -> None:
        """End the attempt: the function waits, begins anew, or could not go on."""
        ...

    def offer(self, drafts: Sequence[Draft], *, durable: bool) -> Any:
        """Who takes the first of these children at once; None: they wait in their queues. Entered
        while they are written. Not `durable`: the disk need not be waited for."""
        ...

    def made(self, drafts: Sequence[Draft], written: Written, offer: Any) -> None:
        """These children were accepted."""
        ...

    def rest(self) -> None:
        """It only waits, and needs no slot."""
        ...

    def resume(self) -> Awaitable[None]:
        """It goes on, once it has a slot again."""
        ...

    def in_thread(
        self, work: Callable[[], Any], stopped: Callable[[], None]
    ) -> Awaitable[tuple[Any, BaseException | None]]:
        """What this answers or raises, in a thread. `stopped`: nobody waits for it any more."""
        ...
