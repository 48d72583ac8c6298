# Every target makes the environment it needs; running one again costs next to nothing.
.DEFAULT_GOAL := help
SHELL := /bin/sh
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Uses the machine's uv, else one in a folder of its own, with pip's settings; pip where uv fails.
ENVIRONMENT := $(PYTHON) requirements/environment.py
PINS := requirements/dev.txt
# Named after where we are: an environment that was moved along with its folder is made again.
INSTALLED := $(VENV)/.installed.$(shell pwd | cksum | cut -d' ' -f1)

define CHECK_PYTHON
command -v $(PYTHON) >/dev/null 2>&1 || { echo "There is no '$(PYTHON)'. Name your Python: make PYTHON=python3.12 ..." >&2; exit 1; }; \
$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Tidegate needs Python 3.11 or newer, and '$(PYTHON)' is older. Name another: make PYTHON=python3.12 ..." >&2; exit 1; }
endef

.PHONY: help install demo dashboard ticketing test test-all check format lint prose types contract package bench profile chaos simulation soak scenarios docs reference pictures grafana services pins clean

help: ## Show this list.
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1\t/' | expand -t 18

$(INSTALLED): pyproject.toml simulators/pyproject.toml $(PINS)
	@$(CHECK_PYTHON)
	@echo "Making the environment in $(VENV), once ..."
	@$(ENVIRONMENT) install $(VENV) $(PINS) --editable . simulators
	@rm -f $(VENV)/.installed.*; touch $@

install: $(INSTALLED) ## Make .venv with the package and its tools.

demo: install ## See it work: collect 25 users from a GitHub of our own, on embedded parts.
	@$(BIN)/python examples/github_demo.py

dashboard: install ## All five systems at work, and the dashboard that shows it, at a printed address; Ctrl-C ends it (ARGS='--port 8321').
	@$(BIN)/python -m examples.live $(ARGS)

ticketing: install ## Open a ticket shop with a crowd at its door, at a printed address; Ctrl-C ends it (ARGS='--people 500 --once').
	@$(BIN)/python -m examples.ticketing $(ARGS)

# More workers than cores, since tests wait a lot: as many as the argument says, or WORKERS=2. Compiled files are
# written, whatever the environment says: many processes import the same modules, and each would compile them again.
PYTEST = PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n $(or $(WORKERS),$(1)) --dist worksteal

test: install ## Run the quick tier of the tests: embedded servers, nothing to install (about 3 minutes on 2 cores).
	@$(call PYTEST,5) --tier=quick --randomly-seed=1

test-all: install ## Run all tests, on every server of this machine (about 12 minutes on 2 cores).
	@$(call PYTEST,4)

check: format lint prose types contract package test-all ## Format, lint, prose, types, import contract, package, all tests.

format: install
	@$(BIN)/ruff format --check .

lint: install
	@$(BIN)/ruff check .

prose: install ## Check names and prose: no rule of docs/glossary.md may be broken more often than before (ARGS='--list pronouns docs').
	@$(BIN)/python -m tools.prose $(ARGS)

types: install
	@$(BIN)/basedpyright --warnings

contract: install
	@$(BIN)/lint-imports --config pyproject.toml

package: install ## Build both packages into dist/ and check what a package index would show of them.
	@rm -rf dist
	@$(BIN)/python -m build --no-isolation --outdir dist . >/dev/null
	@$(BIN)/python -m build --no-isolation --outdir dist simulators >/dev/null
	@$(BIN)/twine check --strict dist/*

bench: install ## Measure, and keep the figures in bench/RESULTS.md (only some, and not kept: make bench ONLY='gate idle').
	@$(ENVIRONMENT) install .peers requirements/peers.txt
	@case "$(or $(ONLY),github_peers)" in *github_peers*) for pins in requirements/github_peers/*.txt; do \
		$(ENVIRONMENT) install .github_peers/$$(basename $$pins .txt) $$pins || echo "$$pins cannot be installed here" >&2; \
	done ;; esac
	@$(BIN)/python -m bench $(ONLY)

profile: install ## Draw flame graphs of the engine, the read path and `tidegate collect` into profiles/ (some: ONLY='engine-sqlite reads').
	@$(BIN)/python -m bench.profiles $(ONLY)

CAMPAIGNS = collection crowd sale rush crawl

chaos: install ## Kill processes and lose servers in mid-work, and see that nothing is lost (many minutes; ONLY=crowd ARGS='--people 5000').
	@failed=; for campaign in $(or $(ONLY),$(CAMPAIGNS)); do \
		echo "$$campaign:" >&2; \
		case $$campaign in collection) module=chaos ;; *) module=chaos.$$campaign ;; esac; \
		$(BIN)/python -m $$module $(ARGS) || failed="$$failed $$campaign"; \
	done; test -z "$$failed" || { echo "failed:$$failed" >&2; exit 1; }

simulation: install ## Simulate 100 workers and 10,000 credentials with faults on a virtual clock (ARGS='--seed 7 --credentials 1000').
	@$(BIN)/python -m chaos.simulation $(ARGS)

soak: install ## Run all systems under load and random faults for 30 minutes, and compare everything (ARGS='--minutes 5 --database sqlite').
	@$(BIN)/python -m chaos.soak $(ARGS)

scenarios: install ## Play the sixteen load scenarios of snapshots, on Redis Streams and on Kafka (some minutes; ARGS='--only 3 7 --transport streams').
	@$(BIN)/python -m scenarios $(ARGS)

docs: install ## Build the documentation as a site into site/ (SERVE=1: show it at a printed address, and follow changes).
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs $(if $(SERVE),serve,build --strict)

reference: install ## Write docs/reference anew, from the code.
	@$(BIN)/python -m reference

pictures: install ## Make the pictures of the dashboard in docs/images anew: its browser tests take them (some minutes).
	@TIDEGATE_TEST_PICTURES=docs/images $(BIN)/python -m pytest -q tests/browser/test_dashboard_access.py

grafana: install ## Write the dashboards of deploy/grafana anew, after a change of dashboards.py or of a threshold.
	@$(BIN)/python -m deploy.grafana.dashboards

services: ## Install the servers that come from the system (Debian: Redis, MariaDB, Prometheus, Java for Kafka), for the tests.
	@sh tests/servers/install.sh

# What the image of deploy/Dockerfile brings along, in the versions that the tests ran with.
IMAGE_EXTRAS := postgres mysql mongo kafka aws archive otel

pins: ## Pin the newest versions again.
	@$(ENVIRONMENT) uv pip compile --quiet --universal --python-version 3.11 --all-extras --group dev --no-emit-package tidegate-simulators --generate-hashes --no-header --no-emit-index-url --no-annotate --upgrade pyproject.toml -o requirements/dev.txt
	@$(ENVIRONMENT) uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-emit-index-url --no-annotate --upgrade bench/peers/requirements.in -o requirements/peers.txt
	@for peer in bench/peers/github/*.in; do $(ENVIRONMENT) uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-emit-index-url --no-annotate --upgrade $$peer -o requirements/github_peers/$$(basename $$peer .in).txt || exit 1; done
	@$(ENVIRONMENT) uv pip compile --quiet --universal --python-version 3.11 $(addprefix --extra ,$(IMAGE_EXTRAS)) --constraint requirements/dev.txt --generate-hashes --no-header --no-emit-index-url --no-annotate --upgrade pyproject.toml -o requirements/runtime.txt
	@$(ENVIRONMENT) uv pip compile --quiet --universal --python-version 3.11 --group build --generate-hashes --no-header --no-emit-index-url --no-annotate --upgrade -o requirements/build.txt

clean: ## Remove the environment and what the tools left behind.
	@rm -rf $(VENV) .uv .peers .github_peers .kafka .pytest_cache .ruff_cache .hypothesis .import_linter_cache build dist site
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
