"""What a flow needs of the attempt that it runs in."""

from collections.abc import Awaitable, Sequence
from typing import Any, Protocol

from holdfast.answers import Written
from holdfast.context import Context
from holdfast.function import Function
from holdfast.tasks.lifecycle import Snoozed, Waiting
from holdfast.tasks.task import Draft

__all__ = ["Host"]


class Host(Protocol):
    """The attempt that a flow runs in."""

    @property
    def context(self) -> Context: ...

    @property
    def function(self) -> Function[..., Any, Any]: ...

    def stop_for(self, reason: Waiting | Snoozed | BaseException) -> None:
        """End the attempt: the function waits, begins anew, or could not go on."""
        ...

    def offer(self, drafts: Sequence[Draft]) -> Any:
        """Who takes the first of these children at once; None: they wait in their queues."""
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
