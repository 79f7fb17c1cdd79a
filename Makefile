# Two commands do everything: `make up` installs and runs a cluster with the demo in it, `make test` the tests.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
BENCHES := decode cel allocator ledger store server hostile_connections hostile_requests hostile_dumps informer \
  scheduler takeover podresources nodes cpu_assignment whatif explain audit dashboard questions

.PHONY: up install test lint types unit test-slow bench lock clean

up: install
	$(BIN)/plimsoll up --demo

install: $(STAMP)

$(STAMP): pyproject.toml requirements.lock
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	touch $(STAMP)

test: lint types unit

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

types: install
	$(BIN)/mypy

unit: install
	@sh tests/browser/install.sh
	$(BIN)/python -m pytest -n auto -m "not slow"

# Fuzzing for a minute each and longer property tests.
test-slow: install
	$(BIN)/python -m pytest -n auto -m slow

bench: install
	for b in $(BENCHES); do $(BIN)/python -m bench.$$b || exit 1; done

# Needs uv (`pip install uv`); the lock itself needs only pip.
lock:
	uv pip compile --quiet --universal --generate-hashes --no-header --no-annotate --no-emit-index-url \
	  --python-version 3.11 --extra dev pyproject.toml -o requirements.lock

clean:
	rm -rf $(VENV) dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis
