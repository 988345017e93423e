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

.PHONY: help
help: ## this list
	@grep -hE '^[a-z][a-z -]*:.*## ' Makefile | sed 's/:[^#]*## /\t/' | expand -t 44

.PHONY: clean
clean: ## removes build/; what is costly stays in the cache
	rm -rf build
