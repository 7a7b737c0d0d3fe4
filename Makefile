# Commands for contributors. Each target prints its steps; all need Rust, Python >= 3.10 and make only.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
MAKEFLAGS += --no-print-directory

CACHE := $(or $(PROBING_CACHE),$(or $(XDG_CACHE_HOME),$(HOME)/.cache)/probing-dev)
VENV ?= .venv
PYTHON ?= $(shell scripts/pythons --best)
# Tests, demo and build share one profile, so that each crate is compiled once.
PROFILE := quick
WHEELS := $(CACHE)/wheels
# Python that runs in targets. It asks for the version before it uses what 3.10 lacks, which its types do not show.
EMBEDDED := crates/probing-probe/python crates/probing-dap/python
BIN := $(abspath $(VENV))/bin
export PATH := $(BIN):$(PATH)

.PHONY: help
help:
	@echo 'make demo      build, start a small training program, debug it'
	@echo 'make build     $(VENV)/bin/probing and the package, importable in $(VENV)'
	@echo 'make test      all tests that can run on this machine, on every Python found'
	@echo 'make test-all  all tests, after installing what is missing into $(CACHE)'
	@echo 'make check     formatting, lints, types, spelling, generated documents'
	@echo 'make bench     cost of the probe, compared with other tools'
	@echo 'make stress    an hour of attaching, detaching, being killed and switched, in every state'
	@echo 'make real      Lightning, Hugging Face, Ray, uWSGI, PyInstaller and a chroot as targets, installed into $(CACHE)'
	@echo 'make docs      regenerate generated documents'
	@echo 'make clean     remove build results (the cache stays)'

.PHONY: demo
demo: build
	@examples/demo

# ---- building -------------------------------------------------------------------------------------------------------

$(VENV)/made-from: scripts/pythons
	@test -n '$(PYTHON)' || { echo 'error: no CPython 3.10 or newer found' >&2; exit 1; }
	@echo '==> making $(VENV) with $(PYTHON)'
	@'$(PYTHON)' -m venv --clear '$(VENV)'
	@'$(BIN)/python' -m pip --quiet install --upgrade pip
	@echo '$(PYTHON)' > $@

$(VENV)/build-tools: $(VENV)/made-from pyproject.toml
	@'$(BIN)/python' -m pip --quiet install "$$(sed -n 's/^requires = \["\(.*\)"\]$$/\1/p' pyproject.toml)"
	@touch $@

$(VENV)/dev-tools: $(VENV)/build-tools
	@echo '==> installing the tools that check and test'
	@'$(BIN)/python' -m pip --quiet install --group dev
	@touch $@

.PHONY: build
build: $(VENV)/build-tools
	@echo '==> building the command and the probe (the first time takes a minute or two)'
	@scripts/quietly '$(BIN)/python' -m pip install --no-build-isolation --no-deps --editable .
	@echo "    $(VENV)/bin/probing is $$($(BIN)/probing --version)"

.PHONY: wheel
wheel: $(VENV)/build-tools
	@'$(BIN)/python' -m pip wheel --no-build-isolation --no-deps --wheel-dir dist .

# ---- testing --------------------------------------------------------------------------------------------------------

.PHONY: environments
environments: $(VENV)/dev-tools
	@echo '==> building the wheel that the tests install'
	@rm -rf '$(WHEELS)' && mkdir -p '$(WHEELS)'
	@scripts/quietly '$(BIN)/python' -m pip wheel --no-build-isolation --no-deps -C profile=$(PROFILE) --wheel-dir '$(WHEELS)' .
	@echo '==> preparing a virtual environment for each Python'
	@scripts/environments '$(WHEELS)'/*.whl > '$(WHEELS)/pythons'
	@scripts/environments --torch '$(WHEELS)'/*.whl > '$(WHEELS)/torch'

.PHONY: test
test: build environments
	@scripts/test "$$(cat '$(WHEELS)/pythons')" "$$(cat '$(WHEELS)/torch')" $(PROFILE)

# For `cargo nextest run` by hand: eval $(make test-env)
.PHONY: test-env
test-env:
	@echo "export PROBING_TEST_PYTHONS=$$(cat '$(WHEELS)/pythons') PROBING_TEST_TORCH=$$(cat '$(WHEELS)/torch' 2>/dev/null)"

.PHONY: stress
stress: build environments
	@torch="$$(cat '$(WHEELS)/torch')"; [[ -n $$torch ]] || echo '    left out: what is recorded of torch. Get it with: scripts/torch-environment'; \
	    PROBING_TEST_PYTHONS="$$(cat '$(WHEELS)/pythons')" PROBING_TEST_TORCH="$$torch" cargo nextest run --cargo-quiet \
	    --profile stress --cargo-profile $(PROFILE) -p probing-attach -p probing-cli --run-ignored only --no-capture \
	    --filterset "not binary(real)$$([[ -n $$torch ]] || echo ' and not binary(torch)')"

# Real software as targets. Not part of `make test`: what is installed for it changes every week, and takes a minute.
.PHONY: real
real: build
	@echo '==> installing what is missing into $(CACHE)'
	@real=$$(scripts/real-environment); \
	    left_out=$$([[ $$(id -u) -eq 0 ]] || echo ' and not test(chroot)'); \
	    [[ -z $$left_out ]] || echo '    left out: a chroot. Get it with: sudo make real'; \
	    "$$real" -m pip list --format freeze | grep -iE '^(torch|lightning|transformers|accelerate|ray|uwsgi|pyinstaller)=' | paste -sd' ' | sed 's/^/    /'; \
	    PROBING_TEST_REAL="$$real" cargo nextest run --cargo-quiet --cargo-profile $(PROFILE) -p probing-cli \
	    --run-ignored only --no-fail-fast --filterset "binary(real)$$left_out"

.PHONY: test-all
test-all:
	@echo '==> installing what is missing into $(CACHE)'
	@scripts/python314 > /dev/null
	@scripts/torch-environment > /dev/null
	@scripts/torch-environment --older > /dev/null || echo '    left out: torch on a Python before 3.12'
	@scripts/schemathesis-environment > /dev/null || echo '    left out: the HTTP API as its description says'
	@$(MAKE) test

.PHONY: check
check: $(VENV)/dev-tools
	@echo '==> rustfmt'; cargo fmt --all --check
	@echo '==> clippy'; cargo clippy --quiet --workspace --all-targets --profile $(PROFILE) -- -D warnings
	@if rustup target list --installed 2>/dev/null | grep -q aarch64-unknown-linux-gnu; then echo '==> aarch64 compiles'; cargo check --quiet --profile $(PROFILE) --target aarch64-unknown-linux-gnu -p probing-attach -p probing-stacks -p probing-store; else echo '    left out: does aarch64 compile? Get it with: rustup target add aarch64-unknown-linux-gnu'; fi
	@echo '==> ruff'; ruff format --quiet --check . && ruff check --quiet .
	@echo '==> mypy'; mypy --no-error-summary; mypy --no-error-summary --python-version 3.13 $(EMBEDDED)
	@echo '==> typos'; typos
	@echo '==> generated documents, crate edges, file headers'; cargo nextest run --cargo-profile $(PROFILE) --cargo-quiet --status-level none --final-status-level fail -p probing-testkit --test tidy

.PHONY: docs
docs:
	@cargo run --quiet --profile $(PROFILE) -p probing-testkit --bin generate-docs

.PHONY: bench
bench: $(VENV)/build-tools
	@benches/run

.PHONY: clean
clean:
	@rm -rf target dist .venv python/probing/_probe.abi3.so .mypy_cache .ruff_cache .pytest_cache
