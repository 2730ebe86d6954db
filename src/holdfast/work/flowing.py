"""The flow of a durable function, as its attempt sees it."""

from typing import Protocol
from uuid import UUID

from holdfast.answers import Ending
from holdfast.context import Asking

__all__ = ["Flowing"]


class Flowing(Asking, Protocol):
    """Kept by `holdfast.flow`."""

    @property
    def closed(self) -> bool: ...

    def check_finished(self) -> None: ...

    def is_of_a_child(self, error: BaseException) -> bool: ...

    async def let_steps_end(self) -> None: ...

    async def escape(self, error: BaseException) -> None: ...

    def freeze(self) -> None: ...

    async def close(self) -> list[UUID]: ...

    def hint(self) -> None: ...

    def hurry(self) -> None: ...

    def ended(self, child: UUID, ending: Ending) -> None: ...
