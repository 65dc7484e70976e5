# The menu.  `make demo` and `make test` work from a fresh clone: each does its own set-up.
PYTHON ?= python3
BIN := .venv/bin
# folders of tests that start no controller, syncer, node or command
UNITS := apis client http hub inspect lib machinery placement runtime store tools
SECONDS ?= 600
SEED := $(shell date +%s)
# keep bytecode, whatever the environment says: tests start hundreds of processes, and each would compile every module anew
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help install setup demo test long lint check conformance floors fuzz sbom bench docs manifests format lock clean

help:  ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' Makefile

install:  ## create .venv with what running needs; install kubectl if it is missing and may be installed
	@$(PYTHON) tools/setup.py
	@tools/ensure-kubectl.sh

setup:  ## install, and what tests and checks need
	@$(PYTHON) tools/setup.py --dev --docs
	@tools/ensure-kubectl.sh

demo:  ## a hub, two small clusters, two workloads placed on them, and their web pages; nothing is left behind
	@$(PYTHON) tools/setup.py
	@$(BIN)/farflung demo

test: setup  ## every test but the long ones
	$(BIN)/pytest -q -n 4 --dist worksteal -m "not long"

long: setup  ## the long ones: many random examples, every kubectl there is, more kills, real containers; SEED=… repeats a run
	@tools/ensure-podman.sh
	@echo "Hypothesis explores from seed $(SEED); \`make long SEED=$(SEED)\` repeats it"
	$(BIN)/pytest -q -n 2 --dist worksteal -m "long or hypothesis" --hypothesis-profile=explore --hypothesis-seed=$(SEED)
	$(BIN)/python tools/floors.py
	$(MAKE) fuzz

lint: setup  ## format, lint, types, import rules
	$(BIN)/ruff format --check src tests bench tools
	$(BIN)/ruff check src tests bench tools
	$(BIN)/mypy
	$(BIN)/lint-imports

check: lint  ## lint, and the unit tests: run it before you commit
	$(BIN)/pytest -q -n 4 --dist worksteal -m "not slow and not long" $(addprefix tests/,$(UNITS))

conformance: setup  ## replay the recordings of a real kube-apiserver and a real kcp; SERVER or KCP=kubeconfig names another server
ifdef SERVER
	$(BIN)/python tests/conformance/replay.py --kubeconfig $(SERVER)
else ifdef KCP
	$(BIN)/python tests/conformance/kcp.py --kubeconfig $(KCP)
else
	$(BIN)/python tests/conformance/replay.py
	$(BIN)/python tests/conformance/prefixed.py
	$(BIN)/python tests/conformance/kcp.py
	$(BIN)/python tests/conformance/plugin_transcripts.py
endif

fuzz:  ## fuzz each parser for SECONDS (600), two at a time; PARSERS names some of them
	@$(PYTHON) tools/setup.py --dev --fuzz
	$(BIN)/python tests/fuzz/fuzz.py --seconds $(SECONDS) $(PARSERS)

floors:  ## run tests with the lowest version of each dependency that pyproject.toml allows
	@$(PYTHON) tools/setup.py --dev
	$(BIN)/python tools/floors.py

sbom:  ## write dist/farflung.cdx.json: the packages that running needs, with versions, hashes and licences
	@$(PYTHON) tools/setup.py --dev
	@mkdir -p dist
	$(BIN)/python tools/sbom.py > dist/farflung.cdx.json

bench:  ## print how fast a hub is and what workspaces cost
	@$(PYTHON) tools/setup.py --bench
	$(BIN)/python bench/hub.py
	$(BIN)/python bench/workspaces.py

docs: setup  ## build the site of the documents: open site/index.html
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "site/index.html; \`python3 -m http.server -d site\` serves it with search"

manifests: install  ## write config/crds, exports and imports anew; PROVIDER=root:edge names the workspace to import from, for a real kcp
	$(BIN)/python tools/manifests.py $(if $(PROVIDER),--provider $(PROVIDER))

format: setup  ## rewrite the sources in the house format
	$(BIN)/ruff format src tests bench tools
	$(BIN)/ruff check --fix --quiet src tests bench tools

lock: setup  ## write the lock files anew, as pyproject.toml says; UPGRADE=1 takes the newest versions
	@$(PYTHON) tools/setup.py --lock $(if $(UPGRADE),--upgrade)

clean:  ## remove the environment and every cache
	rm -rf .venv site .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis .fuzz bench/.bin
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
