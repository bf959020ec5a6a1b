# `make help` lists what there is. Each target works first on a fresh machine that has
# python3.11, git and make; what is already in place is not made again.
.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help setup setup-test demo judge-demo chaos test test-apps test-long check format clean

PYTHON := .venv/bin/python
ARGS ?=
MINUTES ?= 20

help:  ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "make %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup:  ## .venv with what a run needs, and a Chromium
	@scripts/setup

setup-test:  ## the same, and what the tests need
	@scripts/setup --test

demo: setup  ## the whole job, small: SFT, then online RL in Chromium; see runs/demo
	$(PYTHON) -m launch.demo --workdir=runs/demo $(ARGS)

chaos: setup  ## kills what a real run is made of for MINUTES=20; see runs/chaos
	$(PYTHON) -m launch.chaos --workdir=runs/chaos --minutes=$(MINUTES) $(ARGS)

judge-demo: setup  ## a judge of our own, and RL by its word; see runs/judge_demo
	$(PYTHON) -m launch.judge_demo --workdir=runs/judge_demo --rl.algo.iterations=36 $(ARGS)

test: setup-test check  ## all checks and tests; ARGS="-k grammar" picks some
	$(PYTHON) -m pytest -n 2 --dist loadfile --no-loadscope-reorder $(ARGS)

test-apps: setup-test  ## drives three real web applications; see runs/apps
	@scripts/setup-apps
	$(PYTHON) -m pytest -m apps tests/apps $(ARGS)

test-long: setup-test  ## what takes minutes: two processes, two nodes, a twin beside its run
	$(PYTHON) -m pytest -m long tests/evals tests/launch tests/learn tests/runtime $(ARGS)

check: setup-test  ## lint, format and types, nothing run
	$(PYTHON) -m ruff check .
	$(PYTHON) -m ruff format --check .
	$(PYTHON) -m pyright openwebrl_jax launch configs

format: setup-test  ## put the sources into the one format
	$(PYTHON) -m ruff check --fix .
	$(PYTHON) -m ruff format .

clean:  ## drop the environment and caches; runs/ stays
	rm -rf .venv .jax_cache .pytest_cache .ruff_cache .hypothesis
