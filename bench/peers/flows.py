"""Durable functions beside those of DBOS: on the same server, with the same durability, each in one
process of its own."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import msgspec

from bench.peers.flow_sizes import Sizes
from bench.peers.processes import ROOT, Failed

__all__ = ["FLOWS", "Flowing", "flowing"]

FLOWS = {"Holdfast": "bench.peers.holdfast_flows_peer", "DBOS": "bench.peers.dbos_flows_peer"}
_WITHIN = 90.0  # seconds
Fresh = Callable[[], AbstractContextManager[str]]  # an empty database


class Flowing(msgspec.Struct, kw_only=True):
    """One system; `error`: what it said instead of figures. Rates are per second."""

    title: str
    version: str = "?"
    settings: str = ""
    steps: float | None = None  # of one function, one after another
    functions: float | None = None  # many at once
    children: float | None = None  # in a chain, one after another
    error: str | None = None


def flowing(title: str, fresh: Fresh, sizes: Sizes, environment: Path) -> Flowing:
    ours = title == "Holdfast"
    python = Path(sys.executable) if ours else environment / "bin" / "python"
    try:
        with fresh() as url:
            said = _run([str(python), "-m", FLOWS[title], json.dumps(sizes)], url)
        return msgspec.convert({**said, "title": title}, Flowing)
    except Exception as error:  # whatever one does, the other has its turn
        told = str(error) if isinstance(error, Failed) else f"{type(error).__name__}: {error}"
        return Flowing(title=title, error=told)


def _run(command: list[str], url: str) -> dict[str, object]:
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        env=os.environ | {"BENCH_URL": url, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        out, err = process.communicate(timeout=_WITHIN)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        raise Failed(f"not done within {_WITHIN:.0f} s") from None
    if process.returncode:
        lines = [line for line in err.splitlines() if line.strip()]
        raise Failed(lines[-1].strip()[-300:] if lines else f"it left with {process.returncode}")
    found: dict[str, object] = json.loads(out.splitlines()[-1])
    return found
