"""`make bench-peers`: Holdfast and its peers, one after another, in one table.

`python -m bench.peers [--only celery,rq,flows] [--tasks N] [-o json]`
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TypeVar

import msgspec

from bench.peers.flow_sizes import Sizes
from bench.peers.flows import FLOWS, flowing
from bench.peers.measures import (
    Killed,
    Limits,
    PickUp,
    Throughput,
    killed,
    pick_up,
    throughput,
)
from bench.peers.processes import ROOT, Failed, Field
from bench.peers.roster import ROSTER, Peer
from bench.peers.stores import Stores
from bench.peers.table import Row, report, show

PICK_UP_SLOTS = 10
T = TypeVar("T")
Told = Callable[[str], None]
_WHAT = {
    "one": "one worker",
    "two": "two workers",
    "pick_up": "pick-up of lone tasks",
    "killed": "kill -9",
}


class Run:
    """All measurements of one peer, each on a store of its own; a failure ends only its own."""

    def __init__(
        self, peer: Peer, stores: Stores, limits: Limits, environment: Path, told: Told
    ) -> None:
        self._peer, self._stores, self._limits, self._told = peer, stores, limits, told
        self._python = Path(sys.executable) if peer.ours else environment / "bin" / "python"
        self._row = Row(peer=peer, errors={})

    def measure(self) -> Row:
        row = self._row
        row.one = self._try("one", self._best)
        slots = row.one.slots if row.one else self._peer.slots[0]
        row.two = self._try("two", lambda: self._throughput(2, slots))
        row.pick_up = self._try("pick_up", self._pick_up)
        row.killed = self._try("killed", self._killed)
        return row

    def _try(self, what: str, measurement: Callable[[], T]) -> T | None:
        self._told(f"{self._peer.name}: {_WHAT[what]}")
        try:
            return measurement()
        except Exception as error:  # whatever a peer does, the next one has its turn
            said = str(error) if isinstance(error, Failed) else f"{type(error).__name__}: {error}"
            self._row.errors[what] = said
            self._told(f"  failed: {said}")
            return None

    def _best(self) -> Throughput:
        """Of one worker; where all slots are tried, with the number that makes it fastest."""
        slots = self._peer.slots if self._limits.try_slots else self._peer.slots[:1]
        tried = [self._throughput(1, count) for count in slots]
        return max(tried, key=lambda each: each.rate)

    def _throughput(self, workers: int, slots: int) -> Throughput:
        tasks, most = self._limits.tasks, self._limits.tasks * 16
        while True:
            with self._field() as field:
                found = throughput(
                    field,
                    self._limits,
                    tasks=tasks,
                    workers=workers,
                    slots=slots,
                )
            enough = found.seconds >= self._limits.least and found.shared
            if enough or tasks >= most or found.backlog < tasks:
                return found
            tasks *= 4  # over too soon to tell

    def _pick_up(self) -> PickUp:
        with self._field() as field:
            slots = min(PICK_UP_SLOTS, max(self._peer.slots))
            return pick_up(field, self._limits, slots)

    def _killed(self) -> Killed:
        with self._field() as field:
            return killed(field, self._limits)

    @contextmanager
    def _field(self) -> Iterator[Field]:
        with (
            self._stores.fresh(self._peer.store) as url,
            tempfile.TemporaryDirectory() as folder,
            Field(self._peer, self._python, url, Path(folder)) as field,
        ):
            self._row.settings = field.about["settings"]
            self._row.version = field.about["version"]
            yield field


def chosen(only: str | None) -> list[Peer]:
    """Those whose name is given, or begins with what is given (`saq` is both of SAQ)."""
    if not only:
        return ROSTER
    wanted = [want for want in only.split(",") if want != "flows"]
    for want in wanted:
        if not any(peer.name.startswith(want) for peer in ROSTER):
            names = [*(peer.name for peer in ROSTER), "flows"]
            raise SystemExit(f"no {want}; there are {', '.join(names)}")
    return [peer for peer in ROSTER if peer.name.startswith(tuple(wanted))]


def options() -> argparse.Namespace:
    limits = Limits()
    parser = argparse.ArgumentParser(prog="bench.peers", description=__doc__)
    parser.add_argument(
        "--only", help="names, with commas between; flows: durable functions beside DBOS"
    )
    parser.add_argument("--tasks", type=int, default=limits.tasks, help="no-op tasks to drain")
    parser.add_argument("--samples", type=int, default=limits.samples, help="lone tasks")
    parser.add_argument("--seconds", type=float, default=limits.seconds, help="per measurement")
    parser.add_argument("--wait", type=float, default=limits.wait, help="seconds after kill -9")
    parser.add_argument(
        "--appendfsync",
        choices=("always", "everysec", "no"),
        default="always",
        help="of Valkey; only with always is on disk what it acknowledged",
    )
    parser.add_argument(
        "--try-slots", action="store_true", help="of each, all numbers of slots; it takes longer"
    )
    parser.add_argument("--steps", type=int, default=Sizes().steps, help="of a durable function")
    parser.add_argument("--environment", type=Path, default=ROOT / ".venv-peers")
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table")
    return parser.parse_args()


def main() -> int:
    asked = options()
    if not (asked.environment / "bin" / "python").exists():
        raise SystemExit(f"no peers in {asked.environment}; make bench-peers installs them")
    limits = Limits(
        tasks=asked.tasks,
        samples=asked.samples,
        seconds=asked.seconds,
        wait=asked.wait,
        try_slots=asked.try_slots,
    )
    peers, environment, told = chosen(asked.only), asked.environment.absolute(), progress()
    with Stores(appendfsync=asked.appendfsync) as stores:
        rows = []
        for number, peer in enumerate(peers, 1):
            told(f"{peer.title} on {peer.store}, {number} of {len(peers)}")
            rows.append(Run(peer, stores, limits, environment, told).measure())
        flows, fresh = [], partial(stores.fresh, "postgres")
        for title in FLOWS if "flows" in (asked.only or "flows").split(",") else ():
            told(f"durable functions: {title}")
            flows.append(flowing(title, fresh, sizes(asked.steps), environment))
    found = report(rows, flows, limits, asked.appendfsync)
    if asked.output == "json":
        print(msgspec.json.format(msgspec.json.encode(found)).decode())
    else:
        show(found)
    return 1 if any(row.errors for row in rows) or any(one.error for one in flows) else 0


def progress() -> Told:
    """What is done now, and how long it took to come here."""
    began = time.monotonic()

    def told(what: str) -> None:
        minutes, seconds = divmod(int(time.monotonic() - began), 60)
        print(f"{minutes:2}:{seconds:02}  {what}", file=sys.stderr, flush=True)

    return told


def sizes(steps: int) -> Sizes:
    """All others in proportion."""
    whole = Sizes()
    functions, chain = (
        max(1, round(size * steps / whole.steps)) for size in (whole.functions, whole.chain)
    )
    return Sizes(steps=steps, functions=functions, chain=chain)


if __name__ == "__main__":
    sys.exit(main())
