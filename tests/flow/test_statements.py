"""A kill -9 before every SQL statement that a worker on SQLite writes with: also in the middle of a
transaction. On PostgreSQL each call of the store is one statement: see `test_crashes`."""

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "stride", [9, pytest.param(1, marks=pytest.mark.long)], ids=["some", "every"]
)
def test_a_kill_before_any_statement_loses_nothing(tmp_path: Path, stride: int) -> None:
    """Each in a process that dies there, and another that goes on."""
    command = [sys.executable, "-m", "tests.flow.sweeping", str(tmp_path), "1", str(stride)]
    swept = subprocess.run(command, capture_output=True, text=True, check=False)
    assert swept.returncode == 0, swept.stderr[-2000:]
    assert int(swept.stdout) > 100 // stride
