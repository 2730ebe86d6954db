"""What one seed is about: a few features and a few faults, not all at once.

Histories in which everything goes wrong all the time never get far; each seed draws a handful.
"""

from dataclasses import dataclass
from random import Random

from holdfast.tasks.limits import Rate

LEASE = 4.0
RECOVERY = 1.5  # between two looks for lapsed leases

RATES = {
    (rate.interval, rate.burst): rate
    for rate in (
        Rate(count=2, period=4.0, burst=1),
        Rate(count=4, period=5.0, burst=2),
        Rate(count=3, period=3.0, burst=3),
    )
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Shares are per chance to happen, durations in seconds."""

    lease: float
    horizon: float
    workers: int
    slots: int
    producers: int
    rounds: int  # of each producer
    types: tuple[str, ...]
    keys: bool  # idempotency keys
    delays: bool
    expiry: bool
    priorities: bool
    lanes: bool  # several queues and tenants
    limits: tuple[str, ...]  # which kinds are set, and changed at run time
    operator: float  # seconds between two things that the operator does; 0: nobody is there
    cleanup: bool
    drains: bool
    crash: float
    stop: float
    cut: float
    drop: float
    latency: float
    paces: tuple[float, ...]  # how fast processes believe that time goes
    reckless: float  # share of workers that go on after they were told that a lease is lost
    slow_recovery: bool  # between its look and its write
    wall_jumps: bool
    reboots: bool
    massacre: bool  # at the end everybody dies at once


def draw(rng: Random) -> Plan:
    def maybe(share: float = 0.5) -> bool:
        return rng.random() < share

    def some(of: tuple[str, ...], share: float = 0.4) -> tuple[str, ...]:
        return tuple(one for one in of if maybe(share))

    return Plan(
        lease=LEASE,
        horizon=rng.choice((10.0, 16.0, 24.0)),
        workers=rng.choice((1, 2, 3, 4)),
        slots=rng.choice((1, 3, 6)),
        producers=rng.choice((1, 1, 2)),
        rounds=rng.choice((3, 5, 8)),
        types=("plain", *some(("keyed", "flow", "signal", "poison", "scarce"))),
        keys=maybe(0.4),
        delays=maybe(0.4),
        expiry=maybe(0.3),
        priorities=maybe(),
        lanes=maybe(),
        limits=some(("type", "queue", "tenant", "rate", "per_key"), 0.35),
        operator=rng.choice((0.0, 0.0, 1.0, 3.0)),
        cleanup=maybe(0.4),
        drains=maybe(0.3),
        crash=rng.choice((0.0, 0.001, 0.004, 0.02)),
        stop=rng.choice((0.0, 0.002, 0.006, 0.02)),
        cut=rng.choice((0.0, 0.0, 0.02, 0.1)),
        drop=rng.choice((0.0, 0.0, 0.02, 0.1)),
        latency=rng.choice((0.0, 0.01, 0.2, 2.0)),
        paces=rng.choice(((1.0,), (1.0,), (0.5, 1.0, 2.0), (0.2, 1.0, 4.0))),
        reckless=rng.choice((0.0, 0.5, 1.0)),
        slow_recovery=maybe(0.3),
        wall_jumps=maybe(0.25),
        reboots=maybe(0.15),
        massacre=maybe(0.4),
    )
