"""The lease protocol as a spin model: our guard has no counter-example, each weaker one has."""

import re
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.timeout(600)

MODEL = Path(__file__).parent.parent / "docs" / "models" / "lease.pml"


def explore(spin: Path, folder: Path, *, optimise: str = "-O0", **settings: int) -> str:
    """Every history of the model under these settings; the first counter-example, or nothing."""
    defines = [f"-D{name.upper()}={value}" for name, value in settings.items()]
    run(folder, spin, *defines, "-a", MODEL)
    run(folder, "cc", optimise, "-w", "-DSAFETY", "-o", "pan", "pan.c")
    report = run(folder, "./pan", "-m100000", "-w22")
    assert "error: max search depth too small" not in report
    errors = re.search(r"errors: (\d+)", report)
    assert errors, report
    found = re.search(r"^pan:1: (.*?) \(at depth", report, re.MULTILINE)
    assert bool(int(errors[1])) == bool(found), report
    return found[1] if found else ""


def run(folder: Path, *command: str | Path) -> str:
    done = subprocess.run(
        [str(part) for part in command], cwd=folder, capture_output=True, text=True, timeout=500
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("failover", [0, 1])
def test_the_random_grant_as_guard_has_no_counter_example(spin, tmp_path, failover):
    assert explore(spin, tmp_path, guard=3, failover=failover) == ""


@pytest.mark.long
def test_nor_has_it_with_three_workers(spin, tmp_path):
    assert explore(spin, tmp_path, optimise="-O2", guard=3, failover=0, workers=3) == ""


def test_a_fence_as_guard_holds_while_the_database_loses_nothing(spin, tmp_path):
    assert explore(spin, tmp_path, guard=2, failover=0) == ""


STALE_WRITE = "assertion violated ((db.truly==_pid)&&(db.grant==grant))"


@pytest.mark.parametrize(
    ("weaker", "violated"),
    [
        ({"guard": 2, "failover": 1}, STALE_WRITE),
        ({"guard": 1, "failover": 0}, STALE_WRITE),
        ({"guard": 0, "failover": 0}, STALE_WRITE),
        ({"blind": 1, "failover": 0}, "assertion violated db.lapsed"),
        ({"loose": 1, "failover": 0}, "assertion violated wrote"),
    ],
    ids=["a fence, after a failover", "a worker's name", "none", "blind recovery", "loose answer"],
)
def test_a_weaker_guard_has_a_counter_example(spin, tmp_path, weaker, violated):
    assert explore(spin, tmp_path, **weaker) == violated
