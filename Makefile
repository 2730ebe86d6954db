# Needs only Python 3.11 with pip and venv, and make. `make setup` brings the rest.

PYTHON ?= python3
SEEDS ?= 2000
BIN := .venv/bin
UV := $(BIN)/uv
REQUIREMENTS := requirements.txt requirements-dev.txt requirements-uv.txt

.PHONY: setup demo test test-long storm check bench bench-store bench-worker bench-flows bench-peers simulate mutants ci lock format clean
.DELETE_ON_ERROR:

setup: .venv/installed  # everything that the other targets need
	@tools/debian-parts

.venv/installed: pyproject.toml $(REQUIREMENTS)
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	test -x $(UV) || $(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-uv.txt
	$(UV) pip sync --quiet --python $(BIN)/python --require-hashes $(REQUIREMENTS)
	$(UV) pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation --editable .
	touch $@

demo: setup
	$(BIN)/holdfast demo

test: setup
	$(BIN)/pytest -q -n 3 --dist loadfile

test-long: setup  # storms, sweeps and what else takes minutes
	$(BIN)/pytest -q -m long

storm: setup  # 100,000 tasks, 200 kill -9, 40 SIGSTOP beyond the lease, on both databases
	$(BIN)/pytest -q -m long tests/storm

check: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: setup
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: bench-store bench-worker bench-flows

bench-store: setup
	$(BIN)/python -m bench.store

bench-worker: setup
	$(BIN)/python -m bench.worker

bench-flows: setup
	$(BIN)/python -m bench.flows

bench-peers: setup .venv-peers/installed  # ARGS="--only celery,rq --tasks 5000 -o json"
	$(BIN)/python -m bench.peers $(ARGS)

.venv-peers/installed: bench/peers/requirements.txt
	test -x .venv-peers/bin/python || $(UV) venv --quiet --python $(BIN)/python .venv-peers
	$(UV) pip sync --quiet --python .venv-peers/bin/python --require-hashes $<
	touch $@

simulate: setup
	$(BIN)/python -m tests.simulation --seeds $(SEEDS)

mutants: setup
	$(BIN)/python -m tests.mutants

ci:
	.ci/run

# Newest versions that pyproject.toml allows, pinned with their hashes.
EXPORT := $(UV) export --quiet --locked --no-emit-project --no-header --no-annotate --format requirements.txt
lock: setup
	$(UV) lock --upgrade
	$(EXPORT) --all-extras --output-file requirements.txt
	$(EXPORT) --only-group dev --output-file requirements-dev.txt
	$(EXPORT) --only-group bootstrap --output-file requirements-uv.txt
	$(UV) pip compile --quiet --upgrade --python-version 3.11 --generate-hashes --no-header --no-annotate \
		--output-file bench/peers/requirements.txt bench/peers/requirements.in

clean:
	rm -rf .venv .venv-peers .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis build dist
