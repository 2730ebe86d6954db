"""Reading what happened in order, none left out, while others write."""

import asyncio
from collections.abc import Sequence

from holdfast.stores.base import Base

__all__ = ["Following", "first_gap"]

_PATIENCE = 200  # looks at open writers, 5 ms apart, before a read of events stops at the gap


class Following(Base):
    """For whoever follows the numbers of events."""

    async def _settled_up_to(self, after: int, numbers: Sequence[int]) -> int:
        """How far nothing can come in between any more, of the numbers that were read just now.

        A number is missing: its writer has not committed yet, or never will. Whoever may still
        write it holds a lock by now; once they are through, what is missing stays missing: up to
        the last one that was seen. Younger numbers may have gaps of their own.
        """
        gap = first_gap(after, numbers)
        if gap is None:
            return numbers[-1] if numbers else after
        open_writers = await self._writers()
        for _ in range(_PATIENCE):
            if not open_writers:
                return numbers[-1]
            await asyncio.sleep(0.005)
            open_writers &= await self._writers()
        return gap - 1

    async def _writers(self) -> set[str]:
        return {row[0] for row in await self._call("writers")}


def first_gap(after: int, numbers: Sequence[int]) -> int | None:
    for expected, number in enumerate(numbers, after + 1):
        if number != expected:
            return expected
    return None
