"""Which leases are renewed, and until when they are sure."""

from holdfast.clock import ManualClock
from holdfast.ids import new_grant, new_id
from holdfast.tasks.task import Lease
from holdfast.work.holding import Holding


def leases(count: int) -> list[Lease]:
    grant = new_grant()
    return [Lease(new_id(), grant, 1) for _ in range(count)]


def again(lease: Lease) -> Lease:
    return Lease(lease.task, new_grant(), lease.fence + 1)


def test_a_lease_is_overdue_before_it_can_have_lapsed_counted_from_the_send() -> None:
    clock = ManualClock()
    holding = Holding(clock, 10.0)
    (one,) = leases(1)
    sent = holding.now()
    clock.advance(3)  # the answer took so long
    holding.add([one], sent)
    clock.advance(5.9)
    assert holding.overdue() == []
    clock.advance(0.2)
    assert holding.overdue() == [one]
    holding.renewed([one], holding.now())
    assert holding.overdue() == []
    deadline = holding.next_deadline()
    assert deadline is not None
    assert 8.9 <= deadline <= 9.1


def test_what_is_being_settled_is_not_renewed_until_that_has_failed() -> None:
    holding = Holding(ManualClock(), 10.0)
    one, two = leases(2)
    holding.add([one, two], holding.now())
    holding.rest([one])
    assert holding.leases() == [two]
    assert holding.still([one, two]) == [two]
    holding.resume([one])
    assert holding.leases() == [one, two]


def test_an_old_grant_that_is_still_settling_keeps_no_new_one_from_being_renewed() -> None:
    """The old lease lapsed while its settle hung; the same worker was granted the task again."""
    holding = Holding(ManualClock(), 10.0)
    (old,) = leases(1)
    holding.add([old], holding.now())
    holding.rest([old])
    new = again(old)
    holding.add([new], holding.now())
    assert holding.leases() == [new]
    holding.drop([old])
    assert holding.leases() == [new]
    holding.drop([new])
    assert len(holding) == 0


def test_a_late_renewal_of_an_old_grant_gives_the_new_one_no_time() -> None:
    clock = ManualClock()
    holding = Holding(clock, 10.0)
    (old,) = leases(1)
    new = again(old)
    holding.add([new], holding.now())
    clock.advance(9.5)
    holding.renewed([old], holding.now())
    assert holding.overdue() == [new]
