"""Runs the mutants: each in a copy of the package, against the contract tests that must notice."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.mutants.catalogue import MUTANTS, Mutant
from tests.servers import current_postgres

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "holdfast"
# Memory asks nobody else: what comes together is written together in a file only.
KEEPERS = {
    "postgres": "postgres and not postgres-15",
    "sqlite": "sqlite-memory",
    "sqlite-file": "sqlite-file",
}


def main() -> int:
    wanted = " ".join(sys.argv[1:])
    chosen = [mutant for mutant in MUTANTS if wanted in mutant.name]
    survivors = []
    with current_postgres() as server, ThreadPoolExecutor(max_workers=2) as two:
        os.environ["HOLDFAST_TEST_POSTGRES"] = server.url  # one server for all of them
        told = zip(chosen, two.map(run, chosen), strict=True)
        for number, (mutant, noticed) in enumerate(told, 1):
            print(
                f"{number:3}/{len(chosen)} {'noticed ' if noticed else 'SURVIVED'} {mutant.name}",
                flush=True,
            )
            if not noticed:
                survivors.append(mutant.name)
    print(f"{len(chosen) - len(survivors)} passed, {len(survivors)} failed")
    return 1 if survivors else 0


def run(mutant: Mutant) -> bool:
    """Whether a test fails when the guard is gone."""
    with tempfile.TemporaryDirectory(prefix="holdfast-mutant-") as folder:
        copy = Path(folder) / "holdfast"
        shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
        file = copy / mutant.file
        file.write_text(mutated(mutant, file.read_text()))
        return _tests_fail(mutant, folder)


def mutated(mutant: Mutant, text: str) -> str:
    """The file without the guard, which must stand in its section exactly once."""
    start, end = _section(mutant, text)
    section = text[start:end]
    if section.count(mutant.old) != 1:
        raise SystemExit(
            f"{mutant.name}: its text stands {section.count(mutant.old)} times in {mutant.section}"
        )
    return text[:start] + section.replace(mutant.old, mutant.new) + text[end:]


def _section(mutant: Mutant, text: str) -> tuple[int, int]:
    if "/postgres/migrations/" in mutant.file:
        found = re.search(rf"create function holdfast\.{mutant.section}\(.*?\$\$;", text, re.DOTALL)
    elif mutant.file.endswith(".py"):
        found = re.search(
            rf"^def {mutant.section}\(.*?(?=^def |\Z)", text, re.DOTALL | re.MULTILINE
        )
    else:
        name = re.escape(mutant.section)
        found = re.search(rf"^-- name: {name}$.*?(?=^-- name: |\Z)", text, re.DOTALL | re.MULTILINE)
    if found is None:
        raise SystemExit(f"{mutant.name}: there is no section {mutant.section} in {mutant.file}")
    return found.span()


def _tests_fail(mutant: Mutant, folder: str) -> bool:
    files = [f"tests/contract/test_{name}.py" for name in mutant.tests.split()]
    found = [file for file in files if (ROOT / file).exists()]
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *found]
    done = subprocess.run(
        [*command, "-k", KEEPERS[mutant.dialect]],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": folder},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode not in (0, 1):
        raise SystemExit(
            f"{mutant.name}: the tests did not run\n{done.stdout[-3000:]}{done.stderr[-2000:]}"
        )
    return done.returncode == 1


if __name__ == "__main__":
    sys.exit(main())
