# The project's two commands are `make run` and `make test`. Both make .venv first, once.

# Use the system's Python if it is new enough: the gateway is shipped with it, and a Python built without optimisation can take
# twice as long. Otherwise use the first one on the PATH that starts; a name may be a wrapper (pyenv) that starts nothing.
new_enough = import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))
PYTHON ?= $(shell for name in /usr/bin/python3 python3 python3.13 python3.12 python3.11 python3.14; do \
	$$name -c '$(new_enough)' 2>/dev/null && command -v $$name && break; done)
VENV   ?= .venv
BIN     = $(VENV)/bin
PIP     = $(BIN)/python -m pip --disable-pip-version-check --quiet
ARGS   ?=
# Tests wait half of their time: three workers for two cores.
WORKERS ?= $(shell echo $$(($$(getconf _NPROCESSORS_ONLN) * 3 / 2)))
RUNS    ?= test-gateway test-forks test-history
FORKING ?= $(shell echo $$((($$(getconf _NPROCESSORS_ONLN) + 1) / 2)))
# Tests start hundreds of processes. Without bytecode each of them would compile the gateway again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help run spark test test-gateway test-forks test-history test-fast lint format release lock docs screenshots clean

help:  ## show this list
	@sed -n 's/^\([a-z-]*\):.*## /\1	/p' $(MAKEFILE_LIST)

run: $(VENV)/.run-ready  ## run the gateway (ARGS="--data-dir DIR --config FILE")
	@exec $(BIN)/edge run $(ARGS)

spark: $(VENV)/.spark-ready  ## install the Spark side: edge-history
	@command -v java >/dev/null || echo "Spark needs Java 17 or newer (Debian: apt install openjdk-17-jre-headless)"

test: $(VENV)/spark.jsa  ## run all tests (ARGS="tests/cli -k name" runs a selection)
ifeq ($(ARGS),)
	@$(MAKE) --no-print-directory --jobs 3 --output-sync=none $(RUNS)
else
	$(BIN)/python -m pytest --numprocesses $(WORKERS) $(ARGS)
endif

# Three runs next to each other, because each worker imports and collects all tests of its run. The libraries of the history
# would double the size of the others, and a fork takes longer the larger the process is, as do the writes after it.
# Schemathesis, which only the first run uses, takes half a second of each process.
test-gateway: $(VENV)/spark.jsa
	$(BIN)/python -m pytest --numprocesses $(WORKERS) -m "not spark and not forks" $(if $(REPORTS),--junitxml=$(REPORTS)/gateway.xml)

test-forks: $(VENV)/spark.jsa
	$(BIN)/python -m pytest --numprocesses $(FORKING) -p no:schemathesis -m forks tests/engine $(if $(REPORTS),--junitxml=$(REPORTS)/forks.xml)

test-history: $(VENV)/spark.jsa
	$(BIN)/python -m pytest --numprocesses 2 -p no:schemathesis -m spark tests/history $(if $(REPORTS),--junitxml=$(REPORTS)/history.xml)

test-fast: $(VENV)/.test-ready  ## run the tests that start no process, in less than 90 seconds (a fifth of the examples)
	TEST_EXAMPLES=0.2 $(BIN)/python -m pytest --numprocesses auto -p no:schemathesis -m unit $(ARGS)

lint: $(VENV)/.test-ready  ## check style, types and the import rules
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/.test-ready  ## format the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(VENV)/.test-ready  ## build the documentation site into build/site, after its generated parts
	$(BIN)/python -m edge.config.reference docs/configuration.md
	$(BIN)/python -m edge.mapping.unit_symbols_js edge/web/units.js
	$(BIN)/python -m edge.gates.http.icons edge/web
	$(BIN)/python -m edge.mapping.units_page docs/reference/units.md
	@# Not with --quiet, which suppresses warnings before strict mode counts them. The version is pinned.
	@output=$$(NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build 2>&1) || { printf '%s\n' "$$output"; exit 1; }
	@echo "Open build/site/index.html"

screenshots: $(VENV)/.test-ready  ## take the pictures of the documentation again; needs Chromium and mosquitto-clients
	SCREENSHOTS=1 $(BIN)/python -m pytest tests/documentation/test_tutorial.py tests/documentation/test_how_to.py

release: $(VENV)/.run-ready  ## make everything that users download, in build/release (ARGS="--key KEY" signs it)
	rm -rf build/release
	$(BIN)/python -m images.release --out build/release $(ARGS)

lock:  ## regenerate the locked requirements; needs uv (docs/development.md)
	uv pip compile --universal --generate-hashes --python-version 3.11 pyproject.toml --extra modbus -o requirements.txt
	uv pip compile --universal --generate-hashes --python-version 3.11 pyproject.toml --extra modbus --extra spark -o requirements-spark.txt
	uv pip compile --universal --generate-hashes --python-version 3.11 pyproject.toml --extra modbus --extra spark --group dev --group docs --group build -o requirements-dev.txt
	uv pip compile --universal --generate-hashes --python-version 3.11 --group build -c requirements-dev.txt -o requirements-build.txt

# With an archive of Spark's classes (CDS), the JVMs of tests start in two thirds of the time. It requires Java.
$(VENV)/spark.jsa: $(VENV)/.test-ready tests/history/class_archive.py
	@$(BIN)/python -m tests.history.class_archive || echo "There is no archive of Spark's classes: tests with Spark take longer"

clean:  ## remove .venv and the caches of tools
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "There is no Python 3.11 or newer with venv here. Install it (Debian: apt install" \
	  "python3 python3-venv), or say where it is: make PYTHON=/path/to/python3" >&2; exit 1; }
	@$(PYTHON) -c '$(new_enough)' || { echo "$(PYTHON) is not Python 3.11 or newer with venv" >&2; exit 1; }
	@echo "Making $(VENV) with $(PYTHON)"
	@$(PYTHON) -m venv $(VENV)

# A stamp file marks that .venv matches the lock file. A newer lock file makes it outdated.
$(VENV)/.run-ready: requirements.txt requirements-build.txt pyproject.toml | $(BIN)/python
	@echo "Installing the gateway into $(VENV) (the first time takes a minute)"
	@$(PIP) install --require-hashes -r requirements.txt -r requirements-build.txt
	@$(PIP) install --no-deps --no-build-isolation --editable .
	@touch $@

$(VENV)/.spark-ready: requirements-spark.txt requirements-build.txt pyproject.toml | $(BIN)/python
	@echo "Installing the gateway and the Spark side into $(VENV) (600 MB, some minutes)"
	@$(PIP) install --require-hashes -r requirements-spark.txt -r requirements-build.txt
	@$(PIP) install --no-deps --no-build-isolation --editable .
	@$(BIN)/edge-history jars
	@touch $@ $(VENV)/.run-ready

$(VENV)/.test-ready: requirements-dev.txt pyproject.toml | $(BIN)/python
	@echo "Installing the gateway, the Spark side and their tools into $(VENV) (1.5 GB; the first time takes minutes)"
	@$(PIP) install --require-hashes -r requirements-dev.txt
	@$(PIP) install --no-deps --no-build-isolation --editable .
	@$(BIN)/edge-history jars >/dev/null || echo "Tests of the history are skipped without these jars" >&2
	@command -v java >/dev/null || echo "Tests of the history are skipped without Java" \
	  "(Debian: apt install openjdk-17-jre-headless)" >&2
	@touch $@ $(VENV)/.run-ready $(VENV)/.spark-ready
