# Bare `make` lists the targets. Everything runs inside .venv, which `make install` creates.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
QUICK_BENCHMARKS := views simclr_step startup precision knn
LONG_BENCHMARKS := busy_machine steps report coverage comparison_coverage load compiled vem_bank ray_startup scaling storage_requests methods setting_cost large_index imagenet100_dry_run
# Run by hand: gpu (a GPU); card, delivery, end_to_end, photographs, sweep_start, workers (--data-root); faults, breaking (root, on Linux, for all their rows).
JOBS := 2
WAITING_JOBS := 3# for tests that wait more than they work: for Ray, until a machine is found to be dead
LONG := integration/test_ray_sweep integration/test_learning platform/reproductions/test_run platform/test_notebooks integration/test_ray_storage# begun first
WITH_SLOW = $(shell grep -rlF mark.slow --include='test_*.py' tests | sort)# the others need not be imported
SLOW_FILES = $(LONG:%=tests/%.py) $(filter-out $(LONG:%=tests/%.py),$(WITH_SLOW))
CLUSTER_FILES = tests/cluster/test_ray_up.py $(shell grep -l '^pytestmark = MARKS' tests/integration/*.py)
LATER_FILES = $(CLUSTER_FILES) $(SLOW_FILES)
PYTEST = $(BIN)/python -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder --durations=10

.DEFAULT_GOAL := help
.PHONY: help install demo test test-changed slow-test cluster-test later-test test-all check docs format wheel release bench bench-all clean

help: ## List the targets.
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

install: $(VENV)/.installed ## Create .venv and install what was tested, from constraints.txt.

# Not compiled: that takes as long as all else, and Python compiles what it imports when it first does.
$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet -c constraints.txt pip
	$(BIN)/python -m pip install --quiet --no-compile -c constraints.txt -e '.[dev]'
	touch $@

demo: install ## SimCLR on real digits: train, measure, export; a small sweep and its report. Three minutes.
	$(BIN)/ebclab demo demo

test: install ## What has no mark: minutes, no root, no browser, one shared instance of Ray.
	$(PYTEST) -m "not slow and not cluster" $(ARGS)

test-changed: install ## Those of `make test` that what differs from main, or from BASE=..., can affect.
	files=$$(BASE=$(BASE) $(BIN)/python tests/support/changed.py) && { [ -z "$$files" ] || \
	    $(PYTEST) -m "not slow and not cluster" $(ARGS) $$files || [ $$? = 5 ]; } # 5: all of them are slow

slow-test: install ## What is marked slow: Ray's own starts, kills, stores, a browser.
	$(PYTEST) -m "slow and not cluster" $(ARGS) $(SLOW_FILES)

cluster-test: install ## A real `ray up` on machines simulated here, and the faults of machines. As root, on Linux.
	$(PYTEST) -m cluster $(ARGS) $(CLUSTER_FILES)

later-test: install ## Both at once, since neither keeps all processes busy to its end; a second chance for what fails on a cluster, if nothing else does.
	rm -f .pytest_cache/v/cache/lastfailed
	$(PYTEST) -m "slow or cluster" $(ARGS) $(LATER_FILES) || { [ $$? = 1 ] && \
	    ! grep -o '"tests/[^":]*' .pytest_cache/v/cache/lastfailed | grep -qvF $(CLUSTER_FILES:%=-e '"%') && \
	    $(PYTEST) --last-failed -m cluster $(CLUSTER_FILES); }

test-all: test later-test ## All three tiers, each test once.

test test-changed slow-test cluster-test later-test: export PYTEST_DEBUG_TEMPROOT := $(shell [ "$$(df -kP /dev/shm 2>/dev/null | awk 'NR == 2 {print $$4}')" -ge 4000000 ] 2>/dev/null && echo /dev/shm)# in memory, files come and go in a hundredth of the time
test test-changed slow-test cluster-test later-test: PYTEST += -o tmp_path_retention_policy=failed
test test-changed slow-test cluster-test later-test: export OMP_NUM_THREADS = 1
test test-changed slow-test cluster-test later-test: export OMP_WAIT_POLICY = PASSIVE# else threads that wait for each other take the processors of other tests
unexport PYTHONDONTWRITEBYTECODE# a suite starts hundreds of processes
slow-test cluster-test later-test: JOBS = $(WAITING_JOBS)

check: install ## Format, lint, types; what the project consists of.
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python docs/size.py

docs: install ## Build the documentation as pages with a search that need no network: site/index.html.
	$(BIN)/python docs/site/build.py

format: install ## Rewrite files in the house format.
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

wheel: install ## Build dist/*.whl.
	$(BIN)/python -m build --wheel --no-isolation

release: check ## What must hold before publishing; into dist. DEMO=1: also the demo from the wheel in a new venv.
	.ci/release

bench: install ## The quick benchmarks: views, simclr_step, startup, precision, knn. Tables go to benchmarks/results.
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[bench]'
	for script in $(QUICK_BENCHMARKS); do $(BIN)/python benchmarks/$$script.py || exit 1; done

bench-all: bench ## Those, and the long ones that need no GPU, no downloaded data and no root. Hours.
	for script in $(LONG_BENCHMARKS); do $(BIN)/python benchmarks/$$script.py || exit 1; done

clean: ## Remove the demo's outputs, the built documentation and caches; runs are left alone.
	rm -rf demo dist build site .pytest_cache .ruff_cache .mypy_cache
