"""Thousands of histories, and that a planted fault does not get through them."""

import os
import subprocess
import sys

import pytest

from tests.simulation.many import run_batch, run_many, run_one
from tests.simulation.planted import FAULTS, planted

# What the first seeds find. The others take more, and are looked for by `make test-long`.
QUICKLY_FOUND = {
    "whoever settles is believed",
    "whoever renews is believed",
    "recovery does not look again",
    "leases end by the wall clock",
    "a zombie hears that recovery's row is its own",
    "a grant is not charged",
    "what was freed is forgotten",
    "a child wakes nobody",
    "a function that waits is changed",
}


@pytest.mark.timeout(2400)
@pytest.mark.parametrize("seeds", [400, pytest.param(2000, marks=pytest.mark.long)])
def test_every_promise_is_kept_in_all_histories(seeds):
    report = run_many(range(seeds), jobs=min(2, os.cpu_count() or 1))
    assert not report.failures, str(report)
    assert not report.never, str(report)
    assert report.seeds == seeds


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(fault, marks=[] if fault in QUICKLY_FOUND else [pytest.mark.long])
        for fault in FAULTS
    ],
)
@pytest.mark.timeout(1200)
def test_a_planted_fault_is_found(fault):
    with planted(FAULTS[fault]):
        report = run_batch(range(1000), enough=1)
    assert report.failures, f"{report.seeds} seeds did not notice: {fault}"
    assert run_one(report.seeds - 1) is None  # it was the fault that made this seed fail


def history(seed: int, hash_seed: int) -> str:
    return subprocess.run(
        [sys.executable, "-m", "tests.simulation", "--seed", str(seed), "--verbose"],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONHASHSEED": str(hash_seed)},
    ).stdout


def test_a_seed_is_one_history_on_every_machine():
    first, again, other = history(7, 1), history(7, 2), history(8, 1)
    assert first == again
    assert first != other
    assert first.count("\n") > 100
