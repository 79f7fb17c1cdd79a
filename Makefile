# Two commands do everything: `make up` installs and runs a cluster with the demo in it, `make test` the tests.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --disable-pip-version-check
STAMP := $(VENV)/.installed
DEV_STAMP := $(VENV)/.installed-dev
# Tests wait for processes half of the time: two workers for each CPU, up to 16 because each needs memory.
WORKERS ?= $(shell n=$$(( 2 * $$(nproc) )); echo $$(( n < 16 ? n : 16 )))
BENCHES := decode cel allocator ledger store server hostile_connections hostile_requests hostile_dumps informer \
  scheduler takeover podresources nodes cpu_assignment whatif explain audit dashboard questions

# Tests start many processes: without compiled modules each one compiles everything again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: up install install-dev test lint types unit test-slow bench lock clean

up: install
	$(BIN)/plimsoll up --demo

# What running needs.
install: $(STAMP)

# What the tests need too.
install-dev: $(DEV_STAMP)

$(STAMP): pyproject.toml requirements.lock
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) --require-hashes -r requirements.lock
	$(PIP) --quiet --no-deps --no-build-isolation -e .
	touch $(STAMP)

$(DEV_STAMP): $(STAMP) requirements-dev.lock
	$(PIP) --require-hashes -r requirements-dev.lock
	touch $(DEV_STAMP)

test: lint types unit

lint: install-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

types: install-dev
	$(BIN)/mypy

unit: install-dev
	@sh tests/browser/install.sh
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -m "not slow"

# Fuzzing for a minute each, and property tests with all their examples.
test-slow: install-dev
	PLIMSOLL_TESTS=full $(BIN)/python -m pytest -n $(WORKERS) -m "slow or sized or hypothesis"

bench: install-dev
	for b in $(BENCHES); do $(BIN)/python -m bench.$$b || exit 1; done

# Needs uv (`pip install uv`); the locks themselves need only pip.
COMPILE := uv pip compile --quiet --universal --generate-hashes --no-header --no-annotate --no-emit-index-url \
  --python-version 3.11 pyproject.toml

lock:
	$(COMPILE) --extra build -o requirements.lock
	$(COMPILE) --extra dev -c requirements.lock -o requirements-dev.lock

clean:
	rm -rf $(VENV) dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis
