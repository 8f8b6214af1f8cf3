PYTHON ?= python3
BENCH ?= store
SECONDS ?= 60

UV_VERSION := 0.13.7
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

# Modules are compiled once: a node starts in less than half of the time that it takes from the sources.
unexport PYTHONDONTWRITEBYTECODE

# The interpreter's own pip, working on the environment: that spares the machine ensurepip.
PIP := $(PYTHON) -m pip --python $(BIN)/python --disable-pip-version-check --quiet
UV := $(BIN)/uv --quiet
# The handbook has an environment of its own: a reader's .venv stays as it is.
SITE := build/site-env
FROM_LOCK := install --require-hashes -r requirements.lock
# Without isolation both distributions are built by the locked backend.
PROJECT := install --no-deps --no-build-isolation --editable . --editable bench

# The tests, in groups of which four run beside each other, since some of their time they wait: the longest
# first, so that they end together. The tests of pipes share one Spark, one Kafka and one PostgreSQL.
TEST_GROUPS := brokers pipes commands log cluster stores formats bench rest console torture
OF_torture := tests/torture
OF_bench := $(filter-out $(addprefix tests/bench/test_,broker.py pipe.py),$(wildcard tests/bench/test_*.py)) tests/bench/servers tests/pipe
OF_pipes := tests/spark/pipes
OF_cluster := $(addprefix tests/broker/,cluster http targets test_overseer.py test_topic_lifecycle.py) tests/coordination
OF_brokers := tests/broker/acceptance $(filter-out $(OF_cluster),$(wildcard tests/broker/test_*.py))
OF_formats := tests/spark/formats $(wildcard tests/spark/test_*.py) tests/bench/test_pipe.py
OF_log := tests/log tests/cli/log
OF_commands := $(wildcard tests/cli/test_*.py) tests/node tests/client tests/timers tests/examples tests/bench/test_broker.py
OF_console := tests/console
OF_stores := tests/stores tests/delivery
OF_rest := $(addprefix --ignore=,$(foreach group,$(filter-out rest,$(TEST_GROUPS)),$(OF_$(group))))
# Each check leaves there what it said and its exit code, and pytest which tests failed.
RESULTS := $(VENV)/checks
CHECKS := $(addprefix check-,$(TEST_GROUPS)) check-types

.DEFAULT_GOAL := help
.PHONY: help setup demo test fetch $(CHECKS) torture bench site reference lock proto clean

help: ## Show the targets
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 16

setup: $(READY) ## Make .venv, with the command at .venv/bin/chronoline (PYTHON=python3)

demo: setup ## Send messages through a delay topic and see how punctually they come back
	@$(BIN)/chronoline demo

test: setup ## Check style, types, imports and documentation, and run all tests
	@echo "== ruff check";  $(BIN)/ruff check .
	@echo "== ruff format"; $(BIN)/ruff format --check .
	@echo "== mypy, imports and pytest, four at a time; each shows its output when it ends"
	@rm -rf $(RESULTS)
	@$(MAKE) --no-print-directory --keep-going --jobs=4 $(CHECKS) \
		|| $(BIN)/python -m scripts.second_run $(RESULTS) types $(TEST_GROUPS)

check-types: $(RESULTS)
	@$(BIN)/mypy && $(BIN)/lint-imports --no-cache; status=$$?; \
		echo $$status > $(RESULTS)/types.status; exit $$status

$(addprefix check-,$(TEST_GROUPS)): check-%: fetch $(RESULTS)
	@$(BIN)/pytest --durations=8 -o cache_dir=$(RESULTS)/$*.cache $(OF_$*) \
		> $(RESULTS)/$*.log 2>&1; status=$$?; echo $$status > $(RESULTS)/$*.status; \
		echo "== pytest: $*"; cat $(RESULTS)/$*.log; exit $$status

$(RESULTS):
	@mkdir -p $@

fetch:
	@$(BIN)/python -m chronoline_bench.servers.jars || echo "== tests that need jars are skipped"
	@$(BIN)/python -m chronoline_bench.servers.java || echo "== Spark starts more slowly"
	@$(BIN)/python -m chronoline_bench.servers.kafka || echo "== Kafka starts more slowly"

torture: setup ## Break processes at work and judge the history (SCENES=brokers SECONDS=600 SEED=1 KEEP=FOLDER)
	@$(BIN)/python -m tests.torture $(SCENES) --seconds $(SECONDS) $(if $(SEED),--seed $(SEED)) $(if $(KEEP),--keep $(KEEP))
	@$(if $(SCENES),,echo "== planted defects"; $(BIN)/python -m tests.torture.cluster)

bench: setup ## Measure beside the raw engine (BENCH=store)
	@$(BIN)/chronoline bench $(BENCH)

site: $(SITE)/.ready ## Build the handbook into build/site
	@NO_MKDOCS_2_WARNING=1 PYTHONPATH=. $(SITE)/bin/python -m mkdocs build --strict
	@echo "== open build/site/index.html; with the search: python3 -m http.server --directory build/site --bind 127.0.0.1 8000"

reference: setup ## Make docs/reference from the code
	@$(BIN)/python -m scripts.reference

lock: setup ## Resolve the newest dependencies into requirements.lock
	$(UV) pip compile pyproject.toml bench/pyproject.toml --all-extras --group dev \
		--no-emit-package chronoline --universal --python-version 3.11 --upgrade \
		--generate-hashes --custom-compile-command "make lock" --output-file requirements.lock
	$(UV) pip compile --group pyproject.toml:site --constraint requirements.lock \
		--universal --python-version 3.11 --generate-hashes \
		--custom-compile-command "make lock" --output-file requirements-site.lock
	printf 'build\nhatchling\nuv==%s\n' $(UV_VERSION) | $(UV) pip compile - \
		--constraint requirements.lock --universal --python-version 3.11 --generate-hashes \
		--custom-compile-command "make lock" --output-file deploy/build.lock

$(SITE)/.ready: requirements-site.lock
	@$(PYTHON) -m venv --clear --without-pip $(SITE)
	@$(PYTHON) -m pip --python $(SITE)/bin/python --disable-pip-version-check --quiet \
		install --require-hashes -r requirements-site.lock
	@touch $@

proto: setup ## Make the wire's Python from its .proto, and the blocking client from the asynchronous one
	$(BIN)/python -m grpc_tools.protoc -I . --python_out=. --pyi_out=. chronoline/wire/v1/chronoline.proto
	$(BIN)/python -m scripts.unasync

clean: ## Remove .venv, caches and build results
	rm -rf $(VENV) build dist .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Always made from nothing, so that it holds what the lock names and no more.
$(READY): requirements.lock pyproject.toml bench/pyproject.toml chronoline/core/version.py
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "Chronoline needs Python 3.11 or newer; name one: make setup PYTHON=python3.12" >&2; exit 1; }
	@echo "== setting up $(VENV)"
	@$(PYTHON) -m venv --clear --without-pip $(VENV)
	@{ $(PIP) install uv==$(UV_VERSION) && $(UV) pip $(FROM_LOCK) --compile-bytecode --python $(BIN)/python; } || { \
		echo "== uv is not available or failed: installing with pip"; $(PIP) $(FROM_LOCK); }
	@$(PIP) $(PROJECT)
	@touch $@
