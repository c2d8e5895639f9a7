# Bare `make` explains the targets. Everything runs in .venv, which `make install` makes.
SHELL := /bin/sh
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

# Another project's environment must not leak into ours.
unexport VIRTUAL_ENV
unexport PYTHONPATH
unexport PYTHONHOME

PY := .venv/bin/python
BENCH ?=
SEEDS ?= 20000
SECONDS ?= 0
CASES ?= 500
EDITS ?= 1000
KILLS ?= 200
WEBHOOKS ?= 1000000
MINUTES ?= 28
WORKERS ?= 3
TESTS ?= tests

BASE := .venv/.kfm-base
DEMO := .venv/.kfm-demo
TEST := .venv/.kfm-test
PROJECTS := pyproject.toml src/kfm_lint/pyproject.toml
PINS := requirements/uv.txt requirements/build.txt requirements/base.txt requirements/progress.txt

.PHONY: help
help: ## explain the targets
	@echo "kfm: make TARGET"
	@echo
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  \1\t\2/p' Makefile | expand -t 14
	@echo
	@echo "New here?  make install && make demo"

$(BASE): $(PROJECTS) requirements/install.sh $(PINS)
	@requirements/install.sh base

$(DEMO): $(PROJECTS) requirements/install.sh $(PINS) requirements/demo.txt
	@requirements/install.sh demo

$(TEST): $(PROJECTS) requirements/install.sh $(PINS) requirements/test.txt
	@requirements/install.sh test

.PHONY: install
install: $(BASE) ## make .venv with kfm in it (PYTHON=… chooses the interpreter)
	@echo "kfm is installed: .venv/bin/kfm --help"

.PHONY: demo
demo: $(DEMO) ## show a whole life of a dataset, in a scratch folder
	@$(PY) examples/demo/demo.py

.PHONY: test
test: lint types trace check-docs pytest ## everything that CI runs

.PHONY: pytest
pytest: $(TEST) ## the tests alone (TESTS=path, WORKERS=n)
	@$(PY) -m pytest -q -n $(WORKERS) --dist worksteal $(TESTS)

.PHONY: airflow
airflow: $(BASE) ## make the environment in which examples/airflow is tested (300 MB, outside the project)
	@requirements/environment.sh make airflow >/dev/null

.PHONY: langgraph
langgraph: $(BASE) ## make the environment in which examples/langgraph is tested (130 MB, outside the project)
	@requirements/environment.sh make langgraph >/dev/null

.PHONY: pgstac
pgstac: $(BASE) ## make the environment of the STAC API that replicas are tested with (outside the project)
	@requirements/environment.sh make pgstac >/dev/null

.PHONY: dbos
dbos: $(BASE) ## make the environment that the ingest benchmarks compare with (outside the project)
	@requirements/environment.sh make dbos >/dev/null

NODE = $(shell requirements/environment.sh where node)/bin

.PHONY: node
node: $(BASE) ## make the environment of the Node.js twin: Node.js 24 (outside the project) and its packages
	@requirements/environment.sh make node >/dev/null
	@for each in node tests/typescript; do (cd $$each && PATH="$(NODE):$$PATH" npm ci --ignore-scripts --no-audit --no-fund --loglevel=error) || exit 1; done

.PHONY: differential
differential: $(TEST) ## the same random work in Python and in Node.js, compared byte by byte (CASES=n)
	@$(PY) -m tests.twin.differential --cases $(CASES)

.PHONY: fleet
fleet: $(TEST) ## four Python and four Node.js processes on one ledger, killed at random (KILLS=n)
	@$(PY) -m tests.twin.fleet --kills $(KILLS)

.PHONY: lint
lint: $(TEST) ## style, formatting, the layering of imports, refused words, what migrations say of themselves
	@$(PY) -m ruff check .
	@$(PY) -m ruff format --check .
	@.venv/bin/lint-imports --no-cache
	@$(PY) tools/check_words.py
	@$(PY) tools/check_migrations.py

.PHONY: words
words: $(TEST) ## words that docs/reference/glossary.md refuses, and what to write instead
	@$(PY) tools/check_words.py

.PHONY: house
house: $(TEST) ## a mirror of the code's shape: figures and their targets; never fails
	@$(PY) tools/house.py

.PHONY: types
types: $(TEST) ## mypy --strict
	@$(PY) -m mypy --strict

.PHONY: format
format: $(TEST) ## rewrite the code in the project's format
	@$(PY) -m ruff check --fix .
	@$(PY) -m ruff format .

.PHONY: trace
trace: $(TEST) ## which test proves which requirement
	@$(PY) tools/trace.py

.PHONY: bench
bench: $(TEST) ## measure against a reference in the same run (BENCH=name for one)
	@$(PY) -m compileall -q src
	@$(PY) -m bench $(BENCH)

.PHONY: fleet-bench
fleet-bench: $(TEST) ## 1 to 64 workers on one PostgreSQL beside a bare loop, switches and failures among them
	@$(PY) -m bench.fleet

.PHONY: bench-growth
bench-growth: $(TEST) ## what happens now, with a million runs or two million units on record (takes long)
	@$(PY) -m compileall -q src
	@$(PY) -m bench growth feed_day

.PHONY: simulate
simulate: $(TEST) ## whole histories from random seeds (SEEDS=n)
	@$(PY) -m tests.simulation --seeds $(SEEDS)

.PHONY: world
world: $(TEST) ## a world of 13 datasets and sixty days to look at, served on 127.0.0.1 (WORLD="--frozen --units 100000")
	@$(PY) -m tests.world $(WORLD)

.PHONY: hunts
hunts: $(TEST) ## seeds in which the simulator shows that a guard is gone, written down for the tests
	@$(PY) -m tests.simulation.hunting

.PHONY: schedules
schedules: $(TEST) ## every time zone for ten years against a minute-by-minute oracle
	@$(PY) -m tests.schedules

.PHONY: hosts
hosts: $(TEST) ## six hosts in network namespaces fail while work goes on; then all is counted (as root; MINUTES=n)
	@$(PY) -m tests.hosts --minutes $(MINUTES)

.PHONY: crash
crash: $(TEST) ## kill real processes at every step and look at what is left (MINUTES=0: all of it)
	@$(PY) -m tests.crash --minutes $(MINUTES)

.PHONY: fuzz
fuzz: $(TEST) ## hostile input for the readers, led by coverage (SECONDS=n for each), forged webhooks (WEBHOOKS=n)
	@$(PY) -m tests.fuzz --seconds $(SECONDS) --webhooks $(WEBHOOKS)

.PHONY: forger
forger: $(TEST) ## random forgeries of exports and bundles: each is found, or declared (EDITS=n)
	@$(PY) -m tests.forger $(EDITS)

.PHONY: docs
docs: $(TEST) ## write the generated reference pages, schemas and the contributors' map again
	@$(PY) tools/reference.py
	@$(PY) tools/map.py
	@$(PY) tools/make_schemas.py
	@$(PY) tools/make_tables.py

.PHONY: check-docs
check-docs: $(TEST) ## are reference pages, schemas, vectors and the contributors' map up to date?
	@$(PY) tools/reference.py --check
	@$(PY) tools/map.py --check
	@$(PY) tools/make_schemas.py --check
	@$(PY) tools/make_tables.py --check
	@$(PY) tools/make_vectors.py --check

.PHONY: dist
dist: $(TEST) ## build wheels and source archives of kfm-kernel and kfm-lint into dist/
	@rm -rf dist
	@.venv/bin/uv build --quiet --python $(PY) --no-build-isolation --out-dir dist src/kfm_lint
	@.venv/bin/uv build --quiet --python $(PY) --no-build-isolation --out-dir dist

.PHONY: pins
pins: $(BASE) ## compile requirements/*.txt again
	@requirements/compile.sh

.PHONY: clean
clean: ## remove .venv and everything that can be made again
	@rm -rf .venv build dist htmlcov .coverage .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	@find src tests tools bench examples -name __pycache__ -type d -prune -exec rm -rf {} +
