"""Many seeds, and whether what is rare was reached by some."""

import multiprocessing
import sys
import time
import traceback
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import lru_cache

from tests.simulation.ledger import Violation
from tests.simulation.line import Base
from tests.simulation.simulation import Simulation
from tests.simulation.sometimes import SOMETIMES

ENOUGH = 3  # after so many failing seeds the rest tells nothing new


@dataclass
class Report:
    """What came of many seeds."""

    seeds: int = 0
    steps: int = 0
    seconds: float = 0.0
    failures: list[str] = field(default_factory=list)
    seen: Counter[str] = field(default_factory=Counter)

    @property
    def never(self) -> list[str]:
        """What should have happened in some seed; few seeds need not reach everything."""
        return [what for what in SOMETIMES if not self.seen[what]] if self.seeds >= 1000 else []

    def add(self, other: "Report") -> None:
        self.seeds += other.seeds
        self.steps += other.steps
        self.seconds += other.seconds
        self.failures += other.failures
        self.seen += other.seen

    def __str__(self) -> str:
        lines = [
            f"{self.seeds} seeds, {self.steps} steps, {self.seconds:.1f} s of CPU, "
            f"{self.seeds / max(self.seconds, 1e-9):.0f} seeds/s, {len(self.failures)} failed"
        ]
        lines += self.failures
        lines += [f"never reached: {what}" for what in self.never]
        return "\n".join(lines)


@lru_cache(1)
def base() -> Base:
    return Base()


def run_one(seed: int, *, verbose: bool = False) -> str | None:
    """What went wrong with this seed, if anything did."""
    return _run(seed, Report(), verbose=verbose)


def run_many(seeds: Sequence[int], *, jobs: int = 1) -> Report:
    total = Report()
    if jobs == 1:
        total.add(run_batch(seeds))
        return total
    batches = [seeds[n : n + 50] for n in range(0, len(seeds), 50)]
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn")) as pool:
        for report in pool.map(run_batch, batches):
            total.add(report)
            if total.seeds % 5000 == 0:
                print(total, file=sys.stderr)
            if len(total.failures) >= ENOUGH:
                pool.shutdown(cancel_futures=True)
                break
    return total


def run_batch(seeds: Sequence[int], enough: int = ENOUGH) -> Report:
    report, before = Report(), time.process_time()
    for seed in seeds:
        failure = _run(seed, report)
        if failure:
            report.failures.append(failure)
        if len(report.failures) >= enough:
            break
    report.seconds = time.process_time() - before
    return report


def _run(seed: int, report: Report, *, verbose: bool = False) -> str | None:
    simulation = Simulation(seed, base(), verbose=verbose)
    report.seeds += 1
    try:
        report.seen += simulation.run()
    except Violation as violation:
        said = str(violation)
    except Exception:
        said = traceback.format_exc(limit=-6)
    else:
        return None
    finally:
        report.steps += simulation.world.steps
    again = f"again: python -m tests.simulation --seed {seed} --verbose"
    return f"seed {seed}: {said}\n  {again}"
