# Every target creates the environment that it needs; running one again does nothing.
.DEFAULT_GOAL := help
SHELL := /bin/sh
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Uses the installed uv, else a copy in .uv, with pip's settings; pip if uv fails.
ENVIRONMENT := $(PYTHON) requirements/environment.py
PINS := requirements/dev.txt
# Contains a checksum of the path: after the folder was moved, the environment is created again.
INSTALLED := $(VENV)/.installed.$(shell pwd | cksum | cut -d' ' -f1)

define CHECK_PYTHON
command -v $(PYTHON) >/dev/null 2>&1 || { echo "'$(PYTHON)' was not found. Set PYTHON: make PYTHON=python3.12 ..." >&2; exit 1; }; \
$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Tidegate needs Python 3.11 or newer, and '$(PYTHON)' is older. Set PYTHON: make PYTHON=python3.12 ..." >&2; exit 1; }
endef

.PHONY: help install demo dashboard ticketing test test-all check format lint prose types contract package bench profile chaos simulation soak scenarios docs reference pictures grafana services pins clean

help: ## List the targets.
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1\t/' | expand -t 18

$(INSTALLED): pyproject.toml simulators/pyproject.toml $(PINS)
	@$(CHECK_PYTHON)
	@echo "Creating the environment in $(VENV) ..."
	@$(ENVIRONMENT) install $(VENV) $(PINS) --editable . simulators
	@rm -f $(VENV)/.installed.*; touch $@

install: $(INSTALLED) ## Create .venv with the package and its tools.

demo: install ## Collect 25 users from a simulated GitHub, on embedded servers, and verify the result.
	@$(BIN)/python examples/github_demo.py

dashboard: install ## Run all five systems on simulated upstreams with the dashboard, at a printed address; Ctrl-C stops it (ARGS='--port 8321').
	@$(BIN)/python -m examples.live $(ARGS)

ticketing: install ## Run the example ticket shop with simulated visitors, at a printed address; Ctrl-C stops it (ARGS='--people 500 --once').
	@$(BIN)/python -m examples.ticketing $(ARGS)

# More workers than cores, since tests often wait: the argument, or WORKERS=2. Compiled files are written even if
# the environment disables it: many processes import the same modules, and each would compile them again.
PYTEST = PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n $(or $(WORKERS),$(1)) --dist worksteal

test: install ## Run the quick tier of the tests: embedded servers, nothing to install (about 3 minutes on 2 cores).
	@$(call PYTEST,5) --tier=quick --randomly-seed=1

test-all: install ## Run all tests, on every installed server (about 12 minutes on 2 cores).
	@$(call PYTEST,4)

check: format lint prose types contract package test-all ## Format, lint, prose, types, import contract, package, all tests.

format: install
	@$(BIN)/ruff format --check .

lint: install
	@$(BIN)/ruff check .

prose: install ## Check names and prose; no count of findings may rise (ARGS='--list pronouns docs').
	@$(BIN)/python -m tools.prose $(ARGS)

types: install
	@$(BIN)/basedpyright --warnings

contract: install
	@$(BIN)/lint-imports --config pyproject.toml

package: install ## Build both packages into dist/ and check their metadata.
	@rm -rf dist
	@$(BIN)/python -m build --no-isolation --outdir dist . >/dev/null
	@$(BIN)/python -m build --no-isolation --outdir dist simulators >/dev/null
	@$(BIN)/twine check --strict dist/*

bench: install ## Run the benchmarks and write bench/RESULTS.md (some, without writing: make bench ONLY='gate idle').
	@$(ENVIRONMENT) install .peers requirements/peers.txt
	@case "$(or $(ONLY),github_peers)" in *github_peers*) for pins in requirements/github_peers/*.txt; do \
		$(ENVIRONMENT) install .github_peers/$$(basename $$pins .txt) $$pins || echo "$$pins cannot be installed here" >&2; \
	done ;; esac
	@$(BIN)/python -m bench $(ONLY)

profile: install ## Write flame graphs of the engine, the read path and `tidegate collect` into profiles/ (some: ONLY='engine-sqlite reads').
	@$(BIN)/python -m bench.profiles $(ONLY)

CAMPAIGNS = collection crowd sale rush crawl

chaos: install ## Kill processes and servers during work and verify the results (many minutes; ONLY=crowd ARGS='--people 5000').
	@failed=; for campaign in $(or $(ONLY),$(CAMPAIGNS)); do \
		echo "$$campaign:" >&2; \
		case $$campaign in collection) module=chaos ;; *) module=chaos.$$campaign ;; esac; \
		$(BIN)/python -m $$module $(ARGS) || failed="$$failed $$campaign"; \
	done; test -z "$$failed" || { echo "failed:$$failed" >&2; exit 1; }

simulation: install ## Simulate 100 workers and 10,000 credentials with faults on a virtual clock (ARGS='--seed 7 --credentials 1000').
	@$(BIN)/python -m chaos.simulation $(ARGS)

soak: install ## Run all systems under load and random faults for 30 minutes and verify the results (ARGS='--minutes 5 --database sqlite').
	@$(BIN)/python -m chaos.soak $(ARGS)

scenarios: install ## Run the sixteen load scenarios of snapshots, on Redis Streams and on Kafka (some minutes; ARGS='--only 3 7 --transport streams').
	@$(BIN)/python -m scenarios $(ARGS)

docs: install ## Build the documentation site into site/ (SERVE=1: serve it at a printed address and reload changes).
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs $(if $(SERVE),serve,build --strict)

reference: install ## Generate docs/reference from the code.
	@$(BIN)/python -m reference

pictures: install ## Take the screenshots of the dashboard in docs/images again, by its browser tests (some minutes).
	@TIDEGATE_TEST_PICTURES=docs/images $(BIN)/python -m pytest -q tests/browser/test_dashboard_access.py

grafana: install ## Generate the dashboards of deploy/grafana, after a change of dashboards.py or of a threshold.
	@$(BIN)/python -m deploy.grafana.dashboards

services: ## Install the system's servers for the tests (Debian: Redis, MariaDB, Prometheus, Java for Kafka).
	@sh tests/servers/install.sh

# Extras of the image of deploy/Dockerfile, pinned to the tested versions.
IMAGE_EXTRAS := postgres mysql mongo kafka aws archive otel

pins: ## Pin the newest versions of all dependencies.
	@$(ENVIRONMENT) uv pip compile --quiet --universal --python-version 3.11 --all-extras --group dev --no-emit-package tidegate-simulators --generate-hashes --no-header --no-emit-index-url --no-annotate --upgrade pyproject.toml -o requirements/dev.txt
	@$(ENVIRONMENT) uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-emit-index-url --no-annotate --upgrade bench/peers/requirements.in -o requirements/peers.txt
	@for peer in bench/peers/github/*.in; do $(ENVIRONMENT) uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-emit-index-url --no-annotate --upgrade $$peer -o requirements/github_peers/$$(basename $$peer .in).txt || exit 1; done
	@$(ENVIRONMENT) uv pip compile --quiet --universal --python-version 3.11 $(addprefix --extra ,$(IMAGE_EXTRAS)) --constraint requirements/dev.txt --generate-hashes --no-header --no-emit-index-url --no-annotate --upgrade pyproject.toml -o requirements/runtime.txt
	@$(ENVIRONMENT) uv pip compile --quiet --universal --python-version 3.11 --group build --generate-hashes --no-header --no-emit-index-url --no-annotate --upgrade -o requirements/build.txt

clean: ## Remove the environment and the files that the tools created.
	@rm -rf $(VENV) .uv .peers .github_peers .kafka .pytest_cache .ruff_cache .hypothesis .import_linter_cache build dist site
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
