# Two commands do all the set-up: `make demo` and `make test`. Everything lands in .venv and .cache.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
export CANNC_CACHE ?= $(CURDIR)/.cache

.DEFAULT_GOAL := help
.PHONY: help install demo test test-fast lint type fuzz bench bench-7b conformance clean

help: ## list the targets
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 16

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade "pip>=24"
	$(BIN)/pip install --quiet -c constraints.txt torch
	$(BIN)/pip install --quiet -c constraints.txt -e '.[torch,hf,recipes,dev]'
	@touch $@

install: $(STAMP) ## make .venv with everything in it

demo: $(STAMP) ## build the MiniLM recipe: PyTorch to .om with a per-layer report
	$(BIN)/cannc build recipes/minilm.yaml -o out/minilm

test: $(STAMP) ## lint, types and all tests, as CI runs them
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/pytest -q -n 2 --dist loadscope

test-fast: $(STAMP) ## tests without real models
	$(BIN)/pytest -q -n 2 -m "not slow"

lint: $(STAMP) ## format and lint, mending what can be mended
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

type: $(STAMP) ## mypy, strict
	$(BIN)/mypy

fuzz: $(STAMP) ## read 100,000 damaged artifacts
	$(BIN)/python -m tests.om.fuzz 100000

bench: $(STAMP) ## figures of large models, checks and cures (the last ones: bench/results)
	$(BIN)/python bench/compile_large.py --gigabytes 2 --folder models/large
	$(BIN)/python bench/check_support.py
	$(BIN)/python bench/legalize_nodes.py

bench-7b: $(STAMP) ## quantize a model of 13.5 GB: wall time against a copy, peak memory (27 GB of disk)
	$(BIN)/python bench/quant_scale.py --shape 7b --folder models/scale

conformance: $(STAMP) ## ONNX node tests through O2, host compile and run: counts by operator
	$(BIN)/python bench/conformance.py

clean: ## remove everything that the targets made
	rm -rf $(VENV) .cache out build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
