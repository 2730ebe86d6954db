"""Finding the last event without reading them all."""

from typing import Any

import pytest

from holdfast.cli.following import latest
from holdfast.desk.shapes import EventPage


class Numbers:
    """Events with these numbers, and nothing else of them."""

    def __init__(self, numbers: range) -> None:
        self._numbers, self.asked = numbers, 0

    async def events(self, after: int = 0, limit: int = 500) -> EventPage:
        self.asked += 1
        found: list[Any] = [n for n in self._numbers[-1:] if n > after]
        return EventPage(data=found, last=after)


@pytest.mark.parametrize("last", [1, 2, 3, 1023, 1024, 1025, 8192, 8193, 1_000_003])
async def test_the_last_event_is_found_by_halving(last: int):
    desk: Any = Numbers(range(1, last + 1))
    assert await latest(desk) == last
    assert desk.asked < 40


async def test_where_nothing_has_happened_it_is_none():
    desk: Any = Numbers(range(0))
    assert await latest(desk) == 0
