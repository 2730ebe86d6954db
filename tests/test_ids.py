"""Ids made by the caller: ascending, of version 7, never twice; or derived from others."""

import threading
import time
from uuid import UUID

import pytest

from holdfast import ids
from holdfast.ids import derived_id, new_grant, new_id, new_worker_id


def test_ids_are_of_version_7_and_carry_the_time():
    before = time.time_ns() // 1_000_000
    made = new_id()
    after = time.time_ns() // 1_000_000
    assert made.version == 7
    assert made.variant == "specified in RFC 4122"
    assert before <= made.int >> 80 <= after + 1


def test_ids_ascend_also_many_in_one_millisecond():
    made = [new_id() for _ in range(50_000)]
    assert made == sorted(made)
    assert len(set(made)) == len(made)


def test_ids_ascend_when_the_clock_stands_still_or_goes_back(monkeypatch: pytest.MonkeyPatch):
    first = new_id()
    instants = iter([2**60, 2**60, 2**60 - 10**12, 2**60 - 10**15, 0])
    monkeypatch.setattr(time, "time_ns", lambda: next(instants))
    monkeypatch.setattr(ids, "_last", 0)
    made = [new_id() for _ in range(5)]
    assert made == sorted(made)
    assert len(set(made)) == 5
    assert all(id.version == 7 for id in (first, *made))


def test_the_order_survives_more_ids_than_a_millisecond_has_room_for(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(time, "time_ns", lambda: 1_700_000_000_000_999_999)
    monkeypatch.setattr(ids, "_last", 0)
    made = [new_id() for _ in range(9000)]
    assert made == sorted(made)
    assert {id.version for id in made} == {7}


def test_threads_never_make_the_same_id_and_each_sees_its_own_ascend():
    made: list[list[UUID]] = [[] for _ in range(8)]
    start = threading.Barrier(8)

    def make(mine: list[UUID]) -> None:
        start.wait()
        mine.extend(new_id() for _ in range(5000))

    threads = [threading.Thread(target=make, args=(mine,)) for mine in made]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(mine == sorted(mine) for mine in made)
    assert len({id for mine in made for id in mine}) == 8 * 5000
    # Not even the part before the chance is shared.
    assert len({id.int >> 64 for mine in made for id in mine}) == 8 * 5000


def test_a_grant_is_pure_chance():
    made = [new_grant() for _ in range(1000)]
    assert len({id.int >> 64 for id in made}) == 1000
    for bit in range(128):
        ones = sum(id.int >> bit & 1 for id in made)
        assert 300 < ones < 700


def test_a_worker_id_fits_a_signed_bigint():
    assert all(0 <= new_worker_id() < 2**63 for _ in range(1000))
    assert len({new_worker_id() for _ in range(1000)}) == 1000


def test_a_derived_id_is_the_same_for_the_same_parts_and_does_not_tell_a_time():
    of = new_id()
    made = derived_id(of, "child", 1)
    assert made == derived_id(of, "child", 1)
    assert len({made, derived_id(of, "child", 2), derived_id(new_id(), "child", 1)}) == 3
    assert made.version == 8
    assert made.int >> 80 == of.int >> 80  # beside the other, in lists
