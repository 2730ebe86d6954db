"""Another worker's claim that is under way: its transaction is open, and is rolled back at last."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID, uuid4

from holdfast.stores.sql import SqlStore
from tests.contract.acts import OTHER, lanes_of

__all__ = ["rival"]


@asynccontextmanager
async def rival(store: SqlStore, keeper: Any, want: int) -> AsyncIterator[list[UUID]]:
    """What it is taking. It remembers what the store does."""
    lanes = sorted(await lanes_of(store))
    async with keeper.transaction(keep=False) as conn:
        (row,) = await keeper.driver.call_on(
            conn,
            "claim",
            worker=OTHER,
            grant=uuid4(),
            lanes=lanes,
            turns=None,
            want=want,
            lease=60.0,
            wait_gate=None,
            durable=False,
            memory=store._memory,
        )
        yield [keeper.driver.uuid(id) for id in row[0] or ()]
