# One runner for everything. `make` alone prints what there is.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

PYTHON ?= python3
BIN := .venv/bin
BROKER ?= local
BASE ?=
SEEDS ?= 1000
MINUTES ?= 5
SCOPES ?= small.cfg live.cfg witness.cfg lease.cfg mended.cfg
ARGS ?=
WITHOUT ?=
IMAGE ?=
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: help
help: ## print this list
	@awk -F ':.*## ' '/^[a-z0-9.-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' Makefile

# The virtual environment. Versions and hashes come from requirements/*.lock; ackd itself is installed
# editable, so that a changed file counts at once. Only Python 3.11+ with its venv module is needed.
.venv/.made:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "ackd needs Python 3.11 or newer; $(PYTHON) is older. Try: make PYTHON=python3.12 ..."; exit 1; }
	@$(PYTHON) -m venv .venv \
	  || { rm -rf .venv; echo "Python's venv module is missing; on Debian: apt-get install python3-venv"; exit 1; }
	@touch $@

.venv/.run: requirements/run.lock pyproject.toml sidecar/tools/pyproject.toml | .venv/.made
	@echo "installing what ackd runs on"
	@$(BIN)/pip install -q --require-hashes -r requirements/run.lock
	@$(BIN)/pip install -q --no-deps --no-build-isolation -e . -e sidecar/tools
	@touch $@

.venv/.dev: requirements/dev.lock .venv/.run
	@echo "installing the tools for tests"
	@$(BIN)/pip install -q --require-hashes -r requirements/dev.lock
	@touch $@

.PHONY: .venv
.venv: .venv/.dev ## make the virtual environment with all tools

# A real Kafka is started by the tests' own means, which an installed ackd does not have.
OWN_KAFKA := --parts tests.support.parts

.PHONY: demo
demo: .venv/.$(if $(filter kafka,$(BROKER)),dev,run) ## the main job in a minute; BROKER=kafka starts a real Kafka for it
	@$(BIN)/python -m ackd demo --broker $(BROKER) $(if $(filter kafka,$(BROKER)),$(OWN_KAFKA)) $(ARGS)

.PHONY: report-demo
report-demo: .venv/.dev ## demo traffic beside a made-up day of a shop, and a report of them in the browser
	@rm -rf .cache/report-demo
	@$(BIN)/python -m ackd report generate .cache/report-demo/traces --messages 8000 --hours 36
	@$(BIN)/python -m ackd demo --plain --traces .cache/report-demo/traces
	@$(BIN)/python -m ackd report make .cache/report-demo/traces --out .cache/report-demo --open --complete 0.8 --last 24h \
		--targets spark_reports/report-demo.toml --trace-link "https://jaeger.example/trace/{trace_id}" $(ARGS) \
		|| test $$? = 3 # a target is breached, on purpose

.PHONY: run
run: .venv/.run ## start the sidecar; ARGS="--config my.toml"
	@$(BIN)/ackd serve $(ARGS)

.PHONY: test
test: .venv/.dev ## every test, on real brokers and stores; ARGS="-k name" WITHOUT="pulsar rocketmq kafka"
	@tests/support/apt.sh
	@ACKD_TEST_REQUIRE_ALL=1 ACKD_TEST_WITHOUT="$(WITHOUT)" $(BIN)/python -m tests.support.side_by_side $(ARGS)

# What is promised in ms and messages a second; other runs allow a busy machine more.
FIGURES := tests/chaos/test_takeover.py tests/chaos/test_deadlines.py tests/chaos/test_waiting.py \
  tests/chaos/test_kills_under_load.py tests/chaos/test_peers.py tests/chaos/test_rolling.py \
  tests/chaos/test_departure.py tests/chaos/test_dead_partitions.py \
  tests/chaos/test_waiting_for_the_group.py tests/chaos/test_store_loss_with_owner.py \
  tests/integration/engine/test_due_in_time.py

.PHONY: figures
figures: .venv/.dev ## the promised times and rates, on a machine without other work: ARGS="-k deadline"
	@tests/support/apt.sh
	@ACKD_TEST_FIGURES=1 ACKD_TEST_REQUIRE_ALL=1 $(BIN)/pytest $(FIGURES) $(ARGS)

.PHONY: test-collector
test-collector: .venv/.dev ## traces at a real OpenTelemetry Collector, which is built at first use
	@tests/support/apt.sh
	@$(BIN)/python -m tests.support.collector.install
	@ACKD_TEST_REQUIRE_ALL=1 $(BIN)/pytest tests/collector $(ARGS)

.PHONY: k8s-binaries
k8s-binaries: .venv/.dev ## build the Kubernetes of test-k8s; ARGS=--yield: with time that nothing else wants
	@$(BIN)/python -m tests.support.k8s.install $(ARGS)

.PHONY: test-k8s
test-k8s: .venv/.dev ## chart and injector on a real Kubernetes, which is built at first use; no root
	@tests/support/apt.sh
	@$(BIN)/python -m tests.support.k8s.install
	@$(BIN)/python -m tests.support.other sbom >/dev/null # the tests have a network of their own
	@ACKD_TEST_REQUIRE_ALL=1 $(BIN)/python -m tests.support.k8s.run $(ARGS)

.PHONY: release
release: .venv/.dev ## wheels, chart, image (root), SBOM and checksums in dist; IMAGE=no leaves the image out
	@IMAGE=$(IMAGE) BASE=$(BASE) .ci/release dist

.PHONY: image
image: ## the sidecar's image, built without Docker; needs root; BASE=IMAGE@DIGEST is pulled
	@tests/support/node/image.sh sidecar $(BASE)

.PHONY: test-image
test-image: image .venv/.dev ## what the image does when it runs
	@ACKD_TEST_REQUIRE_ALL=1 tests/support/node/space.sh $(BIN)/pytest tests/node/test_image.py $(ARGS)

.PHONY: test-node
test-node: .venv/.dev ## pods on a real node (kubelet, containerd, runc) with a real Kafka; needs root and Go
	@if [ "$$(id -u)" -ne 0 ]; then $(BIN)/pytest tests/node $(ARGS); exit 0; fi; \
	tests/support/apt.sh; \
	tests/support/node/apt.sh runc containernetworking-plugins iptables ipset; \
	tests/support/node/image.sh; \
	$(BIN)/python -m tests.support.k8s.install; \
	$(BIN)/python -m tests.support.node.install; \
	$(BIN)/python -m tests.support.node.kube_router; \
	ACKD_TEST_REQUIRE_ALL=1 tests/support/node/space.sh $(BIN)/pytest tests/node $(ARGS)

.PHONY: test-fast
test-fast: .venv/.dev ## the tests that need no broker and little time
	@$(BIN)/pytest -m "not slow and not kafka and not redis and not k8s and not node and not collector" $(ARGS)

# The py4j of Spark 3.5 leaves its sockets to the garbage collector, at any moment of any test.
SPARK35_WARNINGS := -W ignore:unclosed:ResourceWarning

.PHONY: test-spark35
test-spark35: .venv/.dev ## the tests of reports on Spark 3.5, the oldest that they know
	@PYTHONPATH=$$($(BIN)/python -m tests.support.other spark35) $(BIN)/pytest $(SPARK35_WARNINGS) \
	  $(if $(filter tests/%,$(ARGS)),,tests/integration/reports) $(ARGS)

.PHONY: lint
lint: .venv/.dev ## ruff (rules and format) and mypy strict, tests included
	@status=0; \
	$(BIN)/ruff check . || status=1; \
	$(BIN)/ruff format --check -q . || status=1; \
	$(BIN)/mypy || status=1; \
	exit $$status

.PHONY: types
types: .venv/.dev ## mypy strict alone, tests included
	@$(BIN)/mypy

.PHONY: format
format: .venv/.dev ## let ruff format and fix what it can
	@$(BIN)/ruff check --fix-only -q .
	@$(BIN)/ruff format .

.PHONY: docs
docs: .venv/.dev ## write docs/reference and the chart's README from the code
	@for page in commands configuration metrics problems routes; do \
	  $(BIN)/ackd docs $$page > docs/reference/$$page.md; done
	@$(BIN)/python -m tests.tidy.states_page
	@$(BIN)/python -m tests.tidy.chart_page

.PHONY: bench
bench: .venv/.dev ## measure receive and settle on a real broker; writes into .cache/bench
	@$(BIN)/python -m tests.bench $(ARGS)

.PHONY: torture
torture: .venv/.dev ## 60 random kills of sidecars, broker, store and application under load, and a verdict
	@$(BIN)/python -m ackd torture --start kafka $(OWN_KAFKA) --kills 60 --json .cache/chaos/torture.json $(ARGS)

.PHONY: campaign
campaign: .venv/.dev ## random worlds on real parts, with kills and a verdict each; HOURS=n
	@tests/support/apt.sh
	@$(BIN)/python -m tests.campaign --hours $(or $(HOURS),1) $(ARGS)

.PHONY: judge
judge: .venv/.dev ## Porcupine's verdict on histories of `ackd torture --export`; FILES="one.edn other.edn"
	@$(BIN)/python -m tests.proof.porcupine $(FILES)

.PHONY: simulate
simulate: .venv/.dev ## the seeded simulator; SEEDS=n FROM=s
	@$(BIN)/python -m tests.simulation --seeds $(SEEDS) --first $(or $(FROM),0) $(ARGS)

.PHONY: fuzz
fuzz: .venv/.dev ## fuzz what reads foreign bytes; TARGET=store_codec MINUTES=60
	@$(BIN)/python -m tests.fuzz $(TARGET) --seconds $$(($(MINUTES) * 60))

.PHONY: prove
prove: .venv/.dev ## check the model of the protocol in proofs/ with TLC; SCOPES="small.cfg"
	@tests/support/apt.sh
	@$(BIN)/python -m tests.proof.tlc $(SCOPES)
	@$(BIN)/python -m tests.proof.traces 1000 $(or $(TRACES_TO),1500)

.PHONY: lock
lock: .venv/.dev ## refresh requirements/*.lock from pyproject.toml; ARGS=--upgrade for newer versions
	@$(BIN)/uv pip compile -q $(LOCK_FLAGS) --extra reports --group dev -o requirements/dev.lock pyproject.toml $(ARGS)
	@$(BIN)/uv pip compile -q $(LOCK_FLAGS) --group build -c requirements/dev.lock \
	  -o requirements/run.lock pyproject.toml
	@$(BIN)/uv pip compile -q $(LOCK_BASE) $(IMAGE_EXTRAS) -c requirements/dev.lock \
	  -o requirements/image.lock pyproject.toml
	@$(BIN)/uv pip compile -q $(LOCK_BASE) --extra reports -c requirements/dev.lock \
	  -o requirements/reports.lock pyproject.toml
	@for group in fuzz proof s3 sbom spark35 celery boto3query rocketmqclient; do \
	  $(BIN)/uv pip compile -q $(LOCK_BASE) --group $$group -o requirements/$$group.lock; done

LOCK_BASE := --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-emit-find-links --no-header
IMAGE_EXTRAS := --extra inject --extra kafka --extra local --extra msk --extra pulsar --extra rocketmq --extra uvloop
LOCK_FLAGS := $(LOCK_BASE) $(IMAGE_EXTRAS) --extra top --no-emit-package ackd --no-emit-package ackd-tools

.PHONY: clean
clean: ## remove the environment, caches and everything built
	@rm -rf .venv .cache dist build .pytest_cache .hypothesis
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
