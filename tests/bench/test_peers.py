"""The comparison counts what the ledgers say, and nothing else."""

import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
from bench.peers import ledger
from bench.peers.__main__ import chosen
from bench.peers.__main__ import sizes as sizes_of
from bench.peers.flow_sizes import Sizes
from bench.peers.flows import Flowing, flowing
from bench.peers.ledger import Record
from bench.peers.measures import Limits, fate, rated
from bench.peers.processes import Failed, Field
from bench.peers.roster import ROSTER, Peer
from bench.peers.table import Row, report, show

from tests.servers import fresh_database


def begun(*times: float) -> list[Record]:
    return [Record(when, -1, 0) for when in times]


def test_the_rate_counts_from_the_moment_when_every_worker_had_begun():
    alone = [0.01 * n for n in range(100)]
    both = [1 + 0.01 * n for n in range(101)]
    found = rated({"w0": begun(*alone, *both), "w1": begun(*both)}, workers=2, slots=1, backlog=302)
    assert found.counted == 202
    assert found.rate == pytest.approx(201)


def test_a_worker_that_found_nothing_to_do_is_told():
    found = rated({"w0": begun(0.0, 1.0, 2.0)}, workers=2, slots=1, backlog=3)
    assert not found.shared
    assert found.rate == pytest.approx(1)


def test_a_task_that_its_worker_took_along_is_lost_until_another_finishes_it():
    doomed = [Record(1.0, number, 0) for number in range(4)]
    heir = [Record(7.0, 0, 0), Record(8.0, 0, 1), Record(9.0, 1, 0), Record(9.5, 2, 0)]
    found = fate({"doomed": doomed, "heir": heir}, {0, 1, 2, 3}, moment=2.0)
    assert (found.finished, found.unfinished, found.again) == (1, 3, 3)
    assert (found.first, found.last) == (5.0, None)


def test_what_finished_before_the_kill_and_again_after_it_finished_twice():
    doomed = [Record(1.0, 0, 0), Record(1.5, 0, 1), Record(1.0, 1, 0)]
    heir = [Record(7.0, n, 0) for n in (0, 1)] + [Record(8.0, n, 1) for n in (0, 1)]
    found = fate({"doomed": doomed, "heir": heir}, {1}, moment=2.0)
    assert (found.tasks, found.finished, found.finished_twice, found.last) == (1, 1, 1, 5.0)


def test_the_ledger_of_a_process_is_read_by_another(tmp_path):
    code = "from bench.peers.ledger import began, ended; began(); began(7); ended(7)"
    place = os.environ | {"BENCH_LEDGER": str(tmp_path / "w0"), "PYTHONPATH": os.getcwd()}
    subprocess.run([sys.executable, "-c", code], env=place, check=True)
    records = ledger.read(tmp_path)["w0"]
    assert [(record.number, record.ended) for record in records] == [(-1, 0), (7, 0), (7, 1)]
    assert ledger.lines(tmp_path) == 3
    assert ledger.counted(records, end=True) == {7: 1}


def test_a_peer_that_cannot_start_says_why(tmp_path):
    peer = Peer(
        name="x", title="X", module="bench.peers.none", store="sqlite", package="x", slots=(1,)
    )
    with pytest.raises(Failed, match=r"No module named 'bench\.peers\.none'"):
        Field(peer, Path(sys.executable), "sqlite://", tmp_path).__enter__()


def test_the_peers_are_those_that_are_promised():
    assert {peer.package for peer in ROSTER} == {
        *("holdfast", "procrastinate", "pgqueuer", "celery", "dramatiq", "rq", "huey", "saq"),
        "dbos",
    }


def test_durable_functions_are_measured_in_a_process_of_their_own(postgres_current, tmp_path):
    sizes = Sizes(steps=5, functions=3, each=2, chain=2)
    found = flowing("Holdfast", partial(fresh_database, postgres_current), sizes, tmp_path)
    assert found.error is None
    assert all((found.steps, found.functions, found.children))


def test_durable_functions_that_cannot_run_say_why_and_the_run_goes_on(postgres_current, tmp_path):
    found = flowing("DBOS", partial(fresh_database, postgres_current), Sizes(), tmp_path)
    assert found.steps is None
    assert "FileNotFoundError" in str(found.error)


def test_a_run_of_durable_functions_is_smaller_as_a_whole():
    assert sizes_of(Sizes().steps) == Sizes()
    assert sizes_of(5) == Sizes(steps=5, functions=1, chain=1)


def test_flows_are_chosen_like_peers():
    assert chosen("flows") == []
    assert {peer.package for peer in chosen("flows,saq")} == {"saq"}
    with pytest.raises(SystemExit, match=r"no oban; there are .*, flows"):
        chosen("oban")


def test_a_run_is_shown_whole_with_what_failed(capsys):
    flows = [Flowing(title="Holdfast", steps=1000.0, functions=50.0, children=200.0)]
    flows.append(Flowing(title="DBOS", error="it said no"))
    row = Row(peer=ROSTER[0], errors={"killed": "it left"})
    show(report([row], flows, Limits(), "always"))
    said = capsys.readouterr().out
    assert "1,000" in said
    assert "DBOS (durable functions): FAILED: it said no" in said
    assert "killed FAILED: it left" in said
