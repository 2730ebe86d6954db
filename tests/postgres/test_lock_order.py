"""Leases are locked in the order of their ids: a renewal and a settle never wait in a circle."""

import random

from holdfast.ids import new_grant, new_id
from holdfast.stores.settlements import asked
from holdfast.stores.sql import SqlStore
from holdfast.tasks.lifecycle import Settlement, Verdict
from holdfast.tasks.task import Lease
from tests.contract.acts import claim, put

COUNT, LARGE = 300, b'"' + b"x" * 100_000 + b'"'


async def test_a_settle_keeps_to_it_however_large_the_results(store: SqlStore):
    await put(store, COUNT)
    held = [task.lease for task in await claim(store, COUNT)]
    random.shuffle(held)
    lost = Lease(new_id(), new_grant(), 1)  # so that the others are listed, as they went
    done = Settlement(verdict=Verdict.DONE, result=LARGE)
    ask = asked([(lease, done) for lease in [*held, lost]], "holder", 3, lapsed_only=False)
    ((whole, accepted, *_),) = await store._driver.call("settle", **ask)
    assert not whole
    assert len(accepted) == COUNT
    assert accepted == sorted(accepted)
