"""`python -m tests.simulation --seeds 2000`, or one seed again: `--seed 17 --verbose`."""

import argparse
import os
import sys

from tests.simulation.many import run_many, run_one


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation")
    parser.add_argument("--seeds", type=int, default=2000, help="how many")
    parser.add_argument("--start", type=int, default=0, help="the first seed")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--seed", type=int, help="this one only")
    parser.add_argument("--verbose", action="store_true", help="every step of it")
    options = parser.parse_args()
    if options.seed is not None:
        failure = run_one(options.seed, verbose=options.verbose)
        print(failure or f"seed {options.seed}: nothing wrong")
        return 1 if failure else 0
    report = run_many(range(options.start, options.start + options.seeds), jobs=options.jobs)
    print(report)
    return 1 if report.failures or report.never else 0


if __name__ == "__main__":
    sys.exit(main())
