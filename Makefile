# Two commands do everything: `make up` installs and runs a cluster with the demo in it, `make test` the tests.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --disable-pip-version-check
STAMP := $(VENV)/.installed
DEV_STAMP := $(VENV)/.installed-dev
DOCS_VENV := .venv-docs
DOCS_STAMP := $(DOCS_VENV)/.installed
# Tests wait for processes half of the time: two workers for each CPU, up to 16 because each needs memory.
WORKERS ?= $(shell n=$$(( 2 * $$(nproc) )); echo $$(( n < 16 ? n : 16 )))
BENCHES := decode cel allocator ledger store server hostile_connections hostile_requests hostile_dumps informer \
  scheduler takeover podresources nodes cpu_assignment cpu_driver whatif explain audit dashboard questions

# Tests start many processes: without compiled modules each one compiles everything again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: up install install-dev test lint types unit browser test-slow bench lock clean docs screenshots packages wheel zipapp image krew

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

# mypy and the browser tests use one CPU each, so that they run at the same time as the other tests.
test: lint
	@$(MAKE) --no-print-directory -j3 types browser unit

lint: install-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

# CI starts from a fresh clone each time: nothing would read the cache.
types: install-dev
	$(BIN)/mypy $(if $(CI),--cache-dir=/dev/null)

# The tests are collected once, then the workers are forked.
unit: install-dev
	$(BIN)/python -m pytest -p tests.forked_workers --forked $(WORKERS) -m "not slow" --ignore tests/browser

# One process, so that all tests share one Chromium; what it prints comes at the end.
browser: install-dev
	@sh tests/browser/install.sh
	@mkdir -p build
	@$(BIN)/python -m pytest -n 0 -p no:cacheprovider -m "not slow" tests/browser > build/browser-tests.txt 2>&1; \
	  code=$$?; cat build/browser-tests.txt; exit $$code

# Fuzzing for a minute each, and property tests with all their examples.
test-slow: install-dev
	PLIMSOLL_TESTS=full $(BIN)/python -m pytest -n $(WORKERS) -m "slow or sized or hypothesis"

bench: install-dev
	for b in $(BENCHES); do $(BIN)/python -m bench.$$b || exit 1; done

# The documentation site, in build/site. mkdocs has an environment of its own.
docs: install $(DOCS_STAMP)
	$(BIN)/python -m release.docs.site build/docs
	NO_MKDOCS_2_WARNING=1 $(DOCS_VENV)/bin/mkdocs build --strict --quiet
	@echo "the site is in build/site"

$(DOCS_STAMP): requirements-docs.lock
	test -x $(DOCS_VENV)/bin/python || $(PYTHON) -m venv $(DOCS_VENV)
	$(DOCS_VENV)/bin/python -m pip install --disable-pip-version-check --quiet --require-hashes -r requirements-docs.lock
	touch $(DOCS_STAMP)

# Pictures of the dashboard in the documentation; needs Chromium.
screenshots: install-dev
	$(BIN)/python -m tests.browser.screenshots docs/images

# What can be installed without this directory, in dist/.
packages: wheel zipapp image krew

wheel: install
	$(BIN)/python -m hatchling build -d dist

# One file that runs with a Python of the same version and nothing else.
zipapp: install
	$(BIN)/python -m release.zipapp dist/plimsoll.pyz

# An OCI image, made without a daemon: ctr -n k8s.io images import dist/plimsoll.oci.tar
image: install
	$(BIN)/python -m release.image dist/plimsoll.oci.tar $(if $(BASE),--base $(BASE)) $(if $(IMAGE),--name $(IMAGE))

# A kubectl plugin for krew; KREW_URL is where the archive will be published.
KREW_URL ?= https://example.com/plimsoll.tar.gz
krew: zipapp
	$(BIN)/python -m release.krew dist/plimsoll.pyz dist/krew --url $(KREW_URL)

# Needs uv (`pip install uv`); the locks themselves need only pip.
# Older pips look up a requirement with extras by itself, unpinned unless the lock names the extras.
COMPILE := uv pip compile --quiet --universal --generate-hashes --no-strip-extras --no-header --no-annotate --no-emit-index-url \
  --python-version 3.11

lock:
	$(COMPILE) pyproject.toml --extra build --extra server -o requirements.lock
	$(COMPILE) pyproject.toml --extra dev -c requirements.lock -o requirements-dev.lock
	$(COMPILE) --group docs -o requirements-docs.lock

clean:
	rm -rf $(VENV) $(DOCS_VENV) dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis
