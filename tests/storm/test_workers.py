"""Real workers as real processes, killed, stopped and drained at random, with ledgers outside.

The figure to hold: 100,000 tasks, 200 kill -9, 40 SIGSTOP longer than the lease: none lost, no
outcome twice."""

from pathlib import Path
from typing import Any

import pytest

from tests.servers import AnyPostgres, Postgres
from tests.storm.fleet import Fleet, histogram
from tests.storm.ledger import assert_all_over


@pytest.fixture
def url(place: str) -> str:
    return place if place.startswith("postgresql:") else f"sqlite:///{place}"


def rage(
    fleet: Fleet,
    *,
    tasks: int,
    kills: int,
    stops: int,
    drains: int,
    lease: float,
    server: AnyPostgres | None = None,
) -> None:
    faults = ["kill"] * kills + ["stop"] * stops + ["drain"] * drains
    fleet.chance.shuffle(faults)
    portion = tasks // (2 * len(faults))
    fleet.feed(portion)
    fleet.fill_up()
    for number, fault in enumerate(faults):
        fleet.strike(fault, lease)
        fleet.feed(min(portion, tasks - len(fleet.accepted)))
        if isinstance(server, Postgres) and number == len(faults) // 2:
            with fleet.outage():
                server.crash()
                server.restart()
    fleet.feed(max(tasks - len(fleet.accepted), 0))
    fleet.wait_for_the_end(within=300 + tasks / 200)
    fleet.go_home()


def judge(fleet: Fleet, lease: float, *, but_stops: bool) -> None:
    assert_all_over(fleet.place, len(fleet.accepted))
    fleet.judge()
    if but_stops:  # stopped inside a write of SQLite, a process stops everyone
        for hand in fleet.all:
            if hand.process.exitcode == 0:
                hand.struck = None
    found = fleet.recoveries(lease, lease / 5)
    histogram("given back after a strike", found.back)
    histogram("granted again after a strike", found.again)
    histogram("given back later than promised", found.late)
    assert found.back, "nobody was struck while it held something"
    # Every one of them: with its lease and one recovery interval of somebody who was there all the
    # while; and room for a machine with little of it.
    room = 2.0 + 2 * fleet.weather.worst
    assert max(found.late, default=0.0) < room
    assert max(found.back) < 30 + 3 * (lease + room)


def test_killed_stopped_and_drained_workers_lose_and_double_nothing(
    url: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    is_sqlite = url.startswith("sqlite:")
    server = None if is_sqlite else request.getfixturevalue("postgres_current")
    with Fleet(url, tmp_path, lease=1.0) as fleet:
        rage(fleet, tasks=5000, kills=20, stops=5, drains=5, lease=1.0, server=server)
        judge(fleet, 1.0, but_stops=is_sqlite)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_the_figure_to_hold(url: str, tmp_path: Path) -> None:
    with Fleet(url, tmp_path, lease=2.0) as fleet:
        rage(fleet, tasks=100_000, kills=200, stops=40, drains=10, lease=2.0)
        judge(fleet, 2.0, but_stops=url.startswith("sqlite:"))


def test_poison_ends_in_the_dead_letters_and_all_others_finish(url: str, tmp_path: Path) -> None:
    with Fleet(url, tmp_path, lease=0.8, slots=8) as fleet:
        poison = fleet.dispatch(
            lambda f: [f["poison"].call(how) for how in ("exit", "segfault", "kill") * 2]
        )
        good = fleet.dispatch(
            lambda f: [f["good"].call(0.5 if i % 50 == 0 else 0.005) for i in range(1000)]
        )
        fleet.wait_for_the_end(within=300)
        fleet.go_home()
        assert_all_over(fleet.place, len(good) + len(poison))
        fleet.judge()
        states = _states(fleet)
        assert {states[str(id)][0] for id in good} == {"done"}
        # Who was lost beside a poison pays nothing for it at first, and then once; who was lost
        # alone pays too, as on a machine that stood still for longer than the lease.
        paid = [id for id in good if states[str(id)][1] > 1]
        print(f"{len(paid)} innocents paid")
        assert len(paid) < len(good) / 20, "innocents paid"
        assert {states[str(id)] for id in poison} == {("failed", 3)}
        begun = [id for id, _ in fleet.lines("+")]
        counts = [begun.count(str(id)) for id in poison]
        assert max(counts) <= 4, "at most one more"
        # A worker that stood still for longer than its lease lost some before they began.
        assert min(counts) > 0
        assert max(counts) >= 3


def _states(fleet: Fleet) -> dict[str, tuple[str, int]]:
    from tests.storm.fleet import text
    from tests.storm.ledger import peek

    rows = peek(fleet.place, "select id, state, tries from {s}outcome")
    return {text(id): (state, tries) for id, state, tries in rows}


def test_workers_with_wrong_clocks_agree_on_whose_lease_it_is(
    postgres_place: str, tmp_path: Path
) -> None:
    """An hour ahead, a day behind: nobody takes what another still holds."""
    often: dict[str, Any] = {"heartbeat": 0.3, "recovery": 0.2}
    with Fleet(postgres_place, tmp_path, lease=60.0, **often) as fleet:
        fleet.feed(500)
        ids = fleet.dispatch(lambda f: [f["work"].call(2.5) for _ in range(8)])
        for wrong_by in (3600.0, -86_400.0, 0.0):
            fleet.hire(wrong_by=wrong_by)
        fleet._hands = 3
        fleet.wait_for_the_end(within=300)
        fleet.go_home()
        assert_all_over(fleet.place, len(fleet.accepted))
        fleet.judge()
        begun = [id for id, _ in fleet.lines("+")]
        assert len(begun) == len(fleet.accepted), "something ran twice"
        assert {str(id) for id in ids} <= set(begun)


def test_one_workers_sweeps_are_enough(url: str, tmp_path: Path) -> None:
    """There is no leader to lose: any one that is left takes back what the others held."""
    with Fleet(url, tmp_path, lease=0.8, hands=3) as fleet:
        fleet.feed(300)
        for _ in range(2):
            fleet.hire(recovery=3600.0)
        victim = fleet.hire()
        survivor = victim
        for _ in range(4):
            fleet.feed(100)
            lazy = fleet.someone_at_work()
            while lazy is survivor:
                lazy = fleet.someone_at_work()
            lazy.kill()
            fleet.at_work.remove(lazy)
            fleet.hire(recovery=3600.0)
        fleet.wait_for_the_end(within=300)
        fleet.go_home()
        judge(fleet, 0.8, but_stops=False)


def test_what_a_killed_worker_held_runs_again_in_time(url: str, tmp_path: Path) -> None:
    """Where somebody has a free slot: after its lease, a recovery interval, and one poll. One alone
    sweeps, who was there all the while: whoever is new sweeps soon, however long his interval."""
    with Fleet(url, tmp_path, lease=1.0, hands=1) as fleet:
        fleet.feed(1)
        keeper, victims = fleet.hire(), [fleet.hire(recovery=3600.0) for _ in range(5)]
        fleet.wait_for_all_hands()
        fleet.dispatch(lambda f: [f["work"].call(2.0)])  # after which none of them is new
        fleet.wait_for_the_end(within=60)
        while victims:
            fleet.dispatch(lambda f: [f["work"].call(1.0)])
            if (hand := fleet.holder()) is not keeper:
                hand.kill()
                victims.remove(hand)
                fleet.at_work.remove(hand)
            fleet.wait_for_the_end(within=60)
        fleet.go_home()
        assert_all_over(fleet.place, len(fleet.accepted))
        found = fleet.recoveries(1.0, 0.2)
        histogram("granted again after a kill", found.again)
        assert len(found.late_again) == 5
        assert max(found.late_again) < 0.5 + 2.0 + 2 * fleet.weather.worst


def test_redis_that_dies_costs_time_and_no_work(
    url: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    valkey = request.getfixturevalue("valkey")
    with Fleet(url, tmp_path, lease=1.0, redis=valkey.url) as fleet:
        fleet.feed(300)
        fleet.fill_up()
        fleet.someone_at_work()
        valkey.crash()
        try:
            fleet.feed(300)
            fleet.wait_for_the_end(within=300)
            fleet.strike("kill", 1.0)
            fleet.feed(300)
            fleet.wait_for_the_end(within=300)
        finally:
            valkey.restart()  # not by a thread: the server would end with it
        fleet.feed(300)
        fleet.wait_for_the_end(within=300)
        fleet.go_home()
        assert_all_over(fleet.place, len(fleet.accepted))
        fleet.judge()
