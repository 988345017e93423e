# SPDX-License-Identifier: GPL-2.0-or-later
#
#   make demo    everything, from nothing to jobs on a kind cluster      make demo-down  removes it
#   make test    every test; make check: those that need no cluster
#   make help    the rest

VERSION := $(shell cat VERSION)
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory
SHELL := /bin/bash
export TIDEGATE_CACHE ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/tidegate

ifdef TIDEGATE_INSIDE

include bridge/rules.mk

else

# The C targets run in the toolbox, which is this machine when it is a trixie with all packages.
INSIDE := tests/toolbox/run env TIDEGATE_INSIDE=1 make -j$(shell nproc)

.PHONY: programs tidegated tidegate unit unit-asan unit-programs fuzz
programs tidegated tidegate unit unit-programs: ## builds tidegated and tidegate into build/release; unit tests
	@$(INSIDE) $@
unit-asan: ## the unit tests under AddressSanitizer and UBSan
	@$(INSIDE) VARIANT=asan unit
fuzz: ## each fuzzer for FUZZ_SECONDS (20)
	@$(INSIDE) VARIANT=fuzz FUZZ_SECONDS=$(or $(FUZZ_SECONDS),20) fuzz-run

endif

.PHONY: test check
test: ## every test: lint, unit, asan, fuzz, cli, chart, images, component, kind
	@tests/run lint unit asan fuzz cli chart images component kind
check: ## those that need no cluster
	@FUZZ_SECONDS=$(or $(FUZZ_SECONDS),5) tests/run lint unit fuzz cli chart component

.PHONY: lint format
lint: ## the checks of tests/lint/run, or CHECKS="format tidy"
	@tests/toolbox/run tests/lint/run $(CHECKS)
format: ## lays the C code out
	@tests/toolbox/run bash -c 'git ls-files "*.c" "*.h" | xargs clang-format -i --style=file:bridge/.clang-format'

.PHONY: images kind-image cluster cluster-down
images: ## builds the three images and prints their sizes
	@tests/images/images
kind-image: ## makes or pulls the image of the kind nodes
	@tests/kind/host
	@tests/kind/image
cluster: ## brings the kind cluster up
	@tests/kind/cluster up
cluster-down: ## removes it
	@tests/kind/cluster down

.PHONY: demo demo-down bench
demo: ## from nothing to jobs on a kind cluster, step by step
	@tests/kind/demo
demo-down: ## removes what the demo made; caches stay
	@tests/kind/demo-down
bench: ## speed and memory, each beside its baseline; build/bench/*.json
	@tests/bench/component
	@tests/bench/agents
	@tests/bench/pmix
	@tests/bench/kind

.PHONY: help
help: ## this list
	@grep -hE '^[a-z][a-z -]*:.*## ' Makefile | sed 's/:[^#]*## /\t/' | expand -t 56

.PHONY: clean
clean: ## removes build/; what is costly stays in the cache
	rm -rf build
