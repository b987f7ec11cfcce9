# Every target sets up first; build/environment.sh, written by the set-up, holds PATH, PYTHONPATH and MPI settings.
SHELL = /bin/bash
SETUP = python3 tools/setup_environment.py
IN_ENVIRONMENT = source build/environment.sh &&
QUICK = not (gpu or mpi or petsc or slow)
# Tests run in workers side by side; -n 0 in PYTEST_ARGS runs them in one process, as --pdb needs.
WORKERS ?= 2
PYTEST = python -m pytest -n $(WORKERS) --dist worksteal --durations 20
PYTEST_ARGS ?=
SPHINX = python -m sphinx --fail-on-warning --keep-going --quiet
BENCH_ARGS ?= all
ATTACKS ?=
COVERAGE_TESTS ?=
C_FILES = $(shell find petsc_gpufmt kernels tests benchmarks examples -regex '.*\.\(c\|h\|cu\|cuh\|cpp\)')

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help setup demo check test test-long coverage bench docs docs-links lint format clean

help:
	@echo 'make setup   tools, PETSc and petsc4py (built from PyPI unless python3 has them), the library'
	@echo 'make demo    the 3-D Bratu problem on two MPI ranks, pjds against aij'
	@echo 'make check   lint and the quick tests, under a minute'
	@echo 'make test    all tests that need no GPU, among them tests of PETSc itself; PYTEST_ARGS="-k word" selects'
	@echo 'make test-long  attacks on the package in full, for hours; ATTACKS="files" runs one, python tests/reliability --list names them'
	@echo 'make coverage  which lines of Python and of C the tests execute; COVERAGE_TESTS="tests/native" adds these to what was measured before'
	@echo 'make bench   MatMult and sparse products against their peers as JSON in results/; BENCH_ARGS="mult --matrix FILE.mtx" measures another matrix'
	@echo 'make docs    the pages as HTML in build/docs; make docs-links looks whether what they link to on the web is there'
	@echo 'make lint    ruff, clang-format, mypy, shellcheck, codespell'
	@echo 'make format  formats Python, C and CUDA as make lint asks for'
	@echo 'make clean   removes build/ and what the build put among the sources; .venv stays'

setup:
	@$(SETUP)

demo: setup
	@$(IN_ENVIRONMENT) python examples/log_view_comparison.py

check: lint
	@$(IN_ENVIRONMENT) $(PYTEST) -q -m '$(QUICK)' $(PYTEST_ARGS)

test:
	@$(SETUP) --petsc-source
	@$(IN_ENVIRONMENT) $(PYTEST) -m 'not gpu' $(PYTEST_ARGS)

test-long:
	@$(SETUP) --petsc-source
	@$(IN_ENVIRONMENT) python tests/reliability $(ATTACKS) --json results/reliability

coverage: setup
	@$(IN_ENVIRONMENT) python tests/reliability covered_lines $(if $(COVERAGE_TESTS),--only $(COVERAGE_TESTS)) --json results/reliability

bench: setup
	@$(IN_ENVIRONMENT) python -m petsc_gpufmt bench $(BENCH_ARGS)

docs: setup
	@$(IN_ENVIRONMENT) $(SPHINX) -b html docs build/docs

docs-links: setup
	@$(IN_ENVIRONMENT) $(SPHINX) -b linkcheck docs build/docs-links

lint: setup
	@$(IN_ENVIRONMENT) ruff check .
	@$(IN_ENVIRONMENT) ruff format --check .
	@$(IN_ENVIRONMENT) clang-format --dry-run -Werror $(C_FILES)
	@$(IN_ENVIRONMENT) mypy
	@$(IN_ENVIRONMENT) shellcheck --severity warning .ci/run benchmarks/run_on_gpu.sh
	@$(IN_ENVIRONMENT) codespell

format: setup
	@$(IN_ENVIRONMENT) ruff check --fix --select I .
	@$(IN_ENVIRONMENT) ruff format .
	@$(IN_ENVIRONMENT) clang-format -i $(C_FILES)

clean:
	rm -rf build dist *.egg-info petsc_gpufmt/native/*.so .pytest_cache .ruff_cache
	find . -path ./.venv -prune -o -name __pycache__ -type d -exec rm -rf {} +
