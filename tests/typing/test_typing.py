"""Two type checkers see durable functions as they are."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ACCEPTED = Path(__file__).with_name("accepted.py")
REFUSED = Path(__file__).with_name("refused.txt")  # no .py, or everyone's checks would trip on it
pytestmark = pytest.mark.timeout(600)  # checkers are slow on a busy machine
BIN = Path(sys.executable).parent


def mypy(file: Path, cache: Path) -> set[int]:
    """The lines with a fault."""
    ended = subprocess.run(
        [BIN / "mypy", "--strict", "--config-file=", "--cache-dir", cache, "-O", "json", file],
        cwd=ROOT,
        env={**os.environ, "MYPYPATH": "src"},
        capture_output=True,
        text=True,
    )
    assert ended.stderr == ""
    found = [json.loads(line) for line in ended.stdout.splitlines() if line.startswith("{")]
    return {each["line"] for each in found if each["severity"] == "error"}


def basedpyright(file: Path, cache: Path) -> set[int]:
    settings = cache / "pyrightconfig.json"
    settings.write_text(
        json.dumps(
            {
                "include": [str(file)],
                "extraPaths": [str(ROOT / "src")],
                "typeCheckingMode": "strict",
                "pythonVersion": "3.11",
                "reportUnusedCoroutine": False,
            }
        )
    )
    ended = subprocess.run(
        [BIN / "basedpyright", "--outputjson", "-p", settings, "--pythonpath", sys.executable],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    report = json.loads(ended.stdout)
    assert report["summary"]["filesAnalyzed"] == 1
    found = report["generalDiagnostics"]
    return {each["range"]["start"]["line"] + 1 for each in found if each["severity"] == "error"}


def faults(file: Path) -> set[int]:
    lines = file.read_text().splitlines()
    return {number for number, line in enumerate(lines, 1) if line.endswith("# fault")}


@pytest.mark.parametrize("check", [mypy, basedpyright])
@pytest.mark.parametrize("source", [ACCEPTED, REFUSED], ids=["accepted", "refused"])
def test_what_is_right_is_accepted_and_what_is_wrong_is_not(check, source, tmp_path):
    file = tmp_path / "checked.py"
    file.write_text(source.read_text())
    assert check(file, tmp_path) == faults(file)


def test_there_are_faults_to_be_found():
    assert len(faults(REFUSED)) > 10
    assert faults(ACCEPTED) == set()
