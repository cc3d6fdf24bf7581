# Commands for developers and newcomers. `make help` lists them. No command asks questions.

VENV := .venv
BIN := $(VENV)/bin
RUNTIME := $(VENV)/.runtime-installed
DEV := $(VENV)/.dev-installed
SEED ?= 1
N ?= 100
JOBS ?= $(shell nproc)
MINUTES ?= 30
DEATHS ?= 20
FAULTS ?= 90
UPDATE ?=
CORE := packages/forewarn-core/src/forewarn_core
FULLY_COVERED := $(CORE)/fleet/*,$(CORE)/planning/*,$(CORE)/rules/*
FULLY_COVERED := $(FULLY_COVERED),packages/forewarn-base/src/forewarn_base/protocol/*
FULLY_COVERED := $(FULLY_COVERED),packages/forewarn-agent/src/forewarn/agent/core/*
PYTEST ?= $(BIN)/pytest
# `make test PACKAGE=sinks`: only the tests of packages/forewarn-sinks, or of these directories
PACKAGE ?=
TESTS_agent := tests/agent
TESTS_base := tests/protocol tests/settings tests/kubernetes tests/test_extensions.py
TESTS_core := tests/core tests/planning
TESTS_drivers := tests/drivers
TESTS_metadata := tests/metadata tests/replication tests/test_connection_table.py
TESTS_store := tests/store
LIBVIRT_TESTS := packages/forewarn-libvirt/tests
TESTED := $(if $(PACKAGE),$(or $(TESTS_$(PACKAGE)),packages/forewarn-$(PACKAGE)/tests))
COMPILE := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes
COMPILE += --no-annotate --custom-compile-command "make lock" $(ARGS)
COMPILE += $(patsubst packages/%/,--no-emit-package %,$(wildcard packages/*/))
COMPILE += --no-emit-package forewarn
# Many tests wait for another process, so there are three workers more than cores. One worker runs
# all tests of a file, so shared fixtures are set up once. Slow files start first.
PARALLEL ?= -n $(shell expr $$(getconf _NPROCESSORS_ONLN) + 3) --dist loadfile \
	--no-loadscope-reorder
BENCHES := bench-metadata bench-attack bench-latency bench-start bench-store bench-agent \
	bench-planner bench-scale bench-nodes bench-page bench-telemetry bench-maintenance \
	bench-access bench-growth bench-trace bench-lost-work

# Python compiles the modules once, because tests and benchmarks start programs a thousand times.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help runtime setup lock \
	system emulate run-dev check fmt-check lint types imports audit fmt test \
	demo-libvirt demo-kubernetes kill-agent chaos test-jobs test-azure test-sdks \
	test-nova test-ray test-kubernetes test-fast \
	test-postgres coverage nightly sim hunt transcripts docs book crashes explore mutants \
	tutorial-libvirt \
	bench release test-packages $(BENCHES) clean

help:  ## list all targets
	@echo "Forewarn: two commands to begin with are 'make emulate' and 'make test'."
	@echo
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# -- to run it -----------------------------------------------------------------------------------

emulate: $(RUNTIME)  ## set up everything and run the emulator (ARGS="--speed 60")
	$(BIN)/forewarn emulate $(ARGS)

run-dev: $(RUNTIME)  ## run the service with a store in .build/dev (ARGS=...)
	@mkdir -p .build/dev
	$(BIN)/forewarn serve --config dist/dev.toml $(ARGS)

demo-libvirt: $(DEV) system  ## maintain a private cloud of two libvirt hosts (root, Debian)
	PYTHONPATH=$(LIBVIRT_TESTS) $(BIN)/python -m libvirt_tests.film

demo-kubernetes: $(DEV) system  ## a node pool drains itself, on Kubernetes built from source
	@tools/test-kubernetes demo $(ARGS)

tutorial-libvirt: $(DEV) system  ## run the commands of the libvirt tutorial (root, Debian)
	PYTHONPATH=$(LIBVIRT_TESTS) $(BIN)/python -m libvirt_tests.tutorial

# -- to work on it -------------------------------------------------------------------------------

kill-agent: $(DEV)  ## kill an agent 500 times, and check that it handles each event once
	$(BIN)/pytest -q -m nightly tests/agent/test_endurance.py

test-jobs: $(DEV)  ## run many events of jobs with killed ranks, PyTorch and Slurm (root)
	@tools/system jobs
	JOB_RUNS=1000 TORCH_RUNS=20 SLURM_RUNS=200 $(PYTEST) $(PARALLEL) \
		tests/agent/test_job_processes.py tests/agent/test_job_pytorch.py \
		tests/agent/test_prepare_slurm.py

runtime: $(RUNTIME)  ## make .venv with what the emulator and the service need, in a minute

setup: $(DEV)  ## make .venv with everything for development

$(RUNTIME): pyproject.toml $(wildcard packages/*/pyproject.toml)
$(RUNTIME): requirements/build.txt requirements/runtime.txt
	@tools/setup runtime

$(DEV): $(RUNTIME) requirements/dev.txt tools/web/package-lock.json
	@tools/setup dev

lock: $(DEV)  ## pin dependencies in requirements/ (ARGS=--upgrade: newest versions)
	$(COMPILE) --group build -o requirements/build.txt
	$(COMPILE) --extra server --extra azure pyproject.toml -o requirements/runtime.txt
	$(COMPILE) --group dev -c requirements/build.txt -c requirements/runtime.txt \
		-o requirements/dev.txt
	$(COMPILE) --group book -o requirements/book.txt

system:  ## install the other programs of the tests (PostgreSQL, curl, node, go)
	@tools/system

fmt: $(DEV)  ## format the code, and apply the linter's automatic fixes
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .
	@tools/web/check fmt

check: fmt-check lint types imports audit test  ## run all checks that a change must pass

fmt-check: $(DEV)  ## check the format of the code
	$(BIN)/ruff format --check .

lint: $(DEV)  ## run ruff and a check of prose; with node, also check the page's JavaScript
	$(BIN)/ruff check .
	$(PYTEST) -q tests/test_tidy.py -k "plain or quaint or stilted"
	@tools/web/check

types: $(DEV)  ## mypy, strict
	$(BIN)/mypy

audit: $(DEV)  ## check dependencies for known vulnerabilities (uses PyPI)
	@$(BIN)/python -m tools.audit

imports: $(DEV)  ## check the directions of imports (.importlinter)
	$(BIN)/lint-imports --no-cache

test: $(DEV) system  ## set up and pass all tests, or those of a package (PACKAGE=sinks)
	$(PYTEST) $(PARALLEL) --reruns 1 $(TESTED)

test-fast: $(DEV)  ## run the fast tests, for use during development
	$(PYTEST) $(PARALLEL) -m "not slow and not nightly" $(TESTED)

test-azure: $(DEV)  ## run the tests with Azure's tools; installs azure-cli (730 MB) once
	@tools/test-azure

test-sdks: $(DEV)  ## test Azure's SDKs for Python, JavaScript, Go and Java (200 MB) on the emulator
	@tools/test-sdks

test-nova: $(DEV)  ## test the nova driver with Nova's API; installs Nova (410 MB) once
	@tools/test-nova

test-ray: $(DEV)  ## test with clusters of Ray and Dask; installs both once (585 MB)
	@tools/test-ray $(ARGS)

test-kubernetes: $(DEV) system  ## test with Kubernetes itself; builds it once (15 minutes)
	@tools/test-kubernetes $(ARGS)

test-postgres: $(DEV) system  ## run only the tests that use a PostgreSQL server
	$(PYTEST) -m "postgres and not nightly"

nightly: $(DEV) system  ## run the slow tests, more random inputs and 1,000 random worlds
	$(PYTEST) $(PARALLEL) -m nightly
	$(PYTEST) $(PARALLEL) -m "not nightly" --hypothesis-profile=nightly \
		$$(grep -rlE '^(@given|@SCHEMA)' --include='*.py' tests packages)
	$(MAKE) sim SEED=$$(date +%Y%m%d)000 N=1000 \
		ARGS="--hosts 6 --vms 40 --days 0.5 --rate 12"
	$(MAKE) test-jobs

coverage: $(DEV) system  ## measure the branch coverage of all tests, and list missed lines
	@rm -f .coverage .coverage.*
	$(BIN)/coverage run -m pytest
	$(BIN)/coverage run -m pytest -m nightly tests/simulator/test_worlds.py \
		tests/simulator/test_nodes.py
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report --fail-under=95
	$(BIN)/coverage report --fail-under=100 --include='$(FULLY_COVERED)'

sim: $(RUNTIME)  ## run random simulated worlds (SEED=1 N=100), one at a time on each processor
	$(BIN)/python -m tests.simulator --seed $(SEED) --runs $(N) --jobs $(JOBS) $(ARGS)

hunt: $(DEV)  ## random worlds of several sizes and rates, each with a new seed (MINUTES=30)
	$(BIN)/python -m tests.simulator.hunt $(MINUTES) $(ARGS)

crashes: $(DEV)  ## kill the service at boundaries between effects of a maintenance (DEATHS=20)
	DEATHS=$(DEATHS) $(PYTEST) tests/e2e/test_maintenance_crash.py

chaos: $(DEV) system  ## faults in three control planes with real parts (root; FAULTS=90 SEED=1)
	$(BIN)/python -m tests.chaos --faults $(FAULTS) --seed $(SEED) $(ARGS)

explore: $(DEV)  ## explore ten million states of small worlds; ARGS=--quick for fewer
	$(BIN)/python -m tests.simulator.explore $(ARGS)

mutants: $(DEV)  ## count the generated faults that tests detect (ARGS="--sample 40")
	$(BIN)/python -m tests.simulator.mutants $(ARGS)

transcripts: $(DEV)  ## check the transcripts; UPDATE=1 rewrites them
	UPDATE=$(UPDATE) $(PYTEST) tests/transcripts

docs: $(DEV)  ## rewrite the generated pages and diagrams
	$(BIN)/python -m tools.docs

pictures: $(DEV)  ## take the documents' pictures of the page again
	$(BIN)/python -m tools.pictures
	$(BIN)/python -m tools.story_pictures

book: $(DEV)  ## build a site of the documents with search in .build/book/site
	$(BIN)/python -m tools.book

release: $(DEV)  ## build every file of a release reproducibly in dist/out
	$(BIN)/python -m tools.release

test-packages: $(DEV)  ## install, upgrade and purge the Debian packages in a booted Debian
	@tools/system packages
	$(BIN)/python -m tests.release.installed

# -- to measure it -------------------------------------------------------------------------------

bench: $(BENCHES)  ## run all benchmarks of published figures

bench-metadata: $(DEV) system  ## compare Forewarn, Go and nginx with the same polls
	@mkdir -p .build/bench
	$(BIN)/python -m bench.metadata --json .build/bench/metadata.json $(ARGS)

bench-attack: $(DEV)  ## measure the effect of floods on other VMs' polls (ARGS=--quick)
	$(BIN)/python -m bench.attack $(ARGS)

bench-latency: $(DEV) system  ## latency from a call or an approval to the VM
	$(BIN)/python -m bench.latency $(ARGS)

bench-agent: $(DEV) system  ## compare the cost of the agent with a Go program
	$(BIN)/python -m bench.agent $(ARGS)

bench-start: $(DEV)  ## measure the start and the end of `forewarn emulate`
	$(BIN)/python -m bench.start $(ARGS)

bench-scale: $(DEV)  ## measure a step's cost for fleets of up to a million VMs (ARGS=--quick)
	$(BIN)/python -m bench.scale $(ARGS)
	$(BIN)/python -m bench.scale.portion $(ARGS)
	$(BIN)/python -m bench.scale.planned $(ARGS)
	$(BIN)/python -m bench.scale.live $(ARGS)
	$(BIN)/python -m bench.scale.declared $(ARGS)

bench-nodes: $(DEV)  ## measure the delay, cost and start of metadata nodes (ARGS=--quick)
	$(BIN)/python -m bench.nodes $(ARGS)

bench-page: $(DEV)  ## measure the page with 100,000 hosts in a browser (ARGS=--quick)
	$(BIN)/python -m bench.page $(ARGS)

bench-telemetry: $(DEV) system  ## measure the cost of metrics for polls
	$(BIN)/python -m bench.telemetry $(ARGS)

bench-store: $(DEV) system  ## measure the commit of a step on SQLite and PostgreSQL
	$(BIN)/python -m bench.store.run $(ARGS)

bench-access: $(DEV)  ## measure the cost of permission checks and of the audit's verification
	$(BIN)/python -m bench.access $(ARGS)

bench-growth: $(DEV)  ## measure memory, file and start of a busy fleet for a day (ARGS=--quick)
	$(BIN)/python -m bench.growth $(ARGS)

bench-maintenance: $(DEV)  ## measure a fleet's maintenance with approving VMs (ARGS=--quick)
	$(BIN)/python -m bench.maintenance $(ARGS)

bench-trace: $(DEV)  ## update a production GPU cluster in virtual time (ARGS=DIRECTORY)
	$(BIN)/python -m bench.trace $(ARGS)

bench-lost-work: $(DEV)  ## measure the work that a job loses to a reboot, with consent and without
	$(BIN)/python -m bench.lost_work $(ARGS)

bench-planner: $(DEV)  ## compare waves and planning times with Ganeti's hroller
	@bench/planner/hroller
	@bench/planner/ortools $(BIN)/python .build/ortools
	PYTHONPATH=.build/ortools $(BIN)/python -m bench.planner $(ARGS)

clean:  ## remove all generated files, including .venv
	rm -rf $(VENV) .build build dist/out dist/*.whl .coverage .coverage.* .hypothesis
	rm -rf .mypy_cache .pytest_cache .ruff_cache .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
