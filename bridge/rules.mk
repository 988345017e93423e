# SPDX-License-Identifier: GPL-2.0-or-later
#
# How the C code is built: one non-recursive set of rules, read by the Makefile when it runs in the
# toolbox. Variants: release (default), asan, fuzz. Files are found by their place:
#   bridge/app/NAME.c        a program, when it has a main(); app/NAME_*.c are parts of NAME
#   bridge/tests/unit/test_*.c  a cmocka program each; other files there are linked into each
#   bridge/tests/fuzz/fuzz_*.c  a libFuzzer program each
#   bridge/tests/peers/NAME.c   a program that tests and benchmarks talk to

VARIANT ?= release
# V=1 shows the commands.
Q := $(if $(V),,@)
B := build/$(VARIANT)

PKGS := libcjson libcurl libsystemd libmicrohttpd libcrypto hwloc munge pmix
WARN := -Wall -Wextra -Wshadow -Wconversion -Wvla -Wstrict-prototypes -Wmissing-prototypes \
        -Wformat=2 -Wundef -Werror
STD := -std=gnu17
CPP := -D_GNU_SOURCE -DTIDEGATE_VERSION='"$(VERSION)"' -Ibridge
HARDEN := -fstack-protector-strong -fPIE

CC_release := gcc
FLAGS_release := -O2 -g $(HARDEN) -D_FORTIFY_SOURCE=3 -fstack-clash-protection
LINK_release := -pie -Wl,-z,relro,-z,now -Wl,--as-needed
CC_asan := gcc
FLAGS_asan := -O1 -g -fsanitize=address,undefined -fno-omit-frame-pointer -fno-sanitize-recover=undefined
LINK_asan := -fsanitize=address,undefined -Wl,--as-needed
CC_fuzz := clang
FLAGS_fuzz := -O1 -g -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=undefined
LINK_fuzz := -fsanitize=fuzzer,address,undefined

CC := $(CC_$(VARIANT))
CFLAGS = $(STD) $(WARN) $(FLAGS_$(VARIANT)) $(shell pkgconf --cflags $(PKGS))
LIBS := $(shell pkgconf --libs $(PKGS)) -lslurm -lpthread -lm
CFLAGS := $(CFLAGS)

SRC_BASE := $(wildcard bridge/base/*.c)
SRC_CORE := $(wildcard bridge/core/*.c)
SRC_CODEC := $(wildcard bridge/codec/*.c)
SRC_IO := $(wildcard bridge/io/*.c)
SRC_APP := $(wildcard bridge/app/*.c)
SRC_LIB := $(SRC_BASE) $(SRC_CORE) $(SRC_CODEC) $(SRC_IO)
obj = $(patsubst bridge/%.c,$(B)/obj/%.o,$(1))

# ---- programs ---------------------------------------------------------------------------------

PROGRAMS := $(foreach p,$(notdir $(basename $(SRC_APP))),$(if $(findstring _,$(p)),,$(p)))
$(foreach p,$(PROGRAMS),$(eval $(B)/$(p): $(call obj,bridge/app/$(p).c $(wildcard bridge/app/$(p)_*.c))))
# What io needs of libslurm and libmicrohttpd is no business of the CLI: archive and libraries are linked by need.
$(addprefix $(B)/,$(PROGRAMS)): $(B)/libtidegate.a
	$(if $(V),,@echo "  LD $@")
	$(Q)$(CC) $(FLAGS_$(VARIANT)) $(LINK_$(VARIANT)) -o $@ $(filter %.o,$^) $(B)/libtidegate.a $(LIBS)

$(B)/libtidegate.a: $(call obj,$(SRC_LIB))
	$(Q)rm -f $@ && ar rcs $@ $^

$(B)/obj/%.o: bridge/%.c bridge/rules.mk VERSION
	@mkdir -p $(@D)
	$(if $(V),,@echo "  CC $@")
	$(Q)$(CC) $(CPP) $(CFLAGS) -MMD -MP -c -o $@ $<

.PHONY: programs $(PROGRAMS)
programs: $(addprefix $(B)/,$(PROGRAMS))
$(PROGRAMS): %: $(B)/%

# ---- unit tests -------------------------------------------------------------------------------

UNIT := $(patsubst bridge/tests/unit/%.c,%,$(wildcard bridge/tests/unit/test_*.c))
UNIT_PARTS := $(filter-out bridge/tests/unit/test_%,$(wildcard bridge/tests/unit/*.c))

$(addprefix $(B)/unit/,$(UNIT)): $(B)/unit/%: $(B)/obj/tests/unit/%.o \
		$(call obj,$(UNIT_PARTS)) $(B)/libtidegate.a
	@mkdir -p $(@D)
	$(if $(V),,@echo "  LD $@")
	$(Q)$(CC) $(FLAGS_$(VARIANT)) $(LINK_$(VARIANT)) -o $@ $(filter %.o,$^) $(B)/libtidegate.a $(LIBS) -lcmocka

.PHONY: unit-programs unit cli
unit-programs: $(addprefix $(B)/unit/,$(UNIT))
# libslurm leaks by design at load; what leaks of ours is still seen (suppressions name libslurm only).
unit: unit-programs
	CMOCKA_MESSAGE_OUTPUT=TAP LSAN_OPTIONS=suppressions=bridge/tests/lsan.supp:print_suppressions=0 \
		prove $(PROVE_FLAGS) -j2 --timer --exec '' $(sort $(addprefix $(B)/unit/,$(UNIT)))

# The CLI as a program, against a small bridge and kubectl of the tests' own.
cli: $(B)/tidegate
	bats --tap bridge/tests/cli

# ---- peers of tests and benchmarks --------------------------------------------------------------

PEERS := $(basename $(notdir $(wildcard bridge/tests/peers/*.c)))

$(addprefix $(B)/peers/,$(PEERS)): $(B)/peers/%: $(B)/obj/tests/peers/%.o $(B)/libtidegate.a
	@mkdir -p $(@D)
	$(if $(V),,@echo "  LD $@")
	$(Q)$(CC) $(FLAGS_$(VARIANT)) $(LINK_$(VARIANT)) -o $@ $(filter %.o,$^) $(B)/libtidegate.a $(LIBS)

.PHONY: peers
peers: $(addprefix $(B)/peers/,$(PEERS))
programs: peers

# ---- fuzzers ----------------------------------------------------------------------------------

FUZZ := $(patsubst bridge/tests/fuzz/%.c,%,$(wildcard bridge/tests/fuzz/fuzz_*.c))
FUZZ_SECONDS ?= 20

$(addprefix $(B)/fuzz/,$(FUZZ)): $(B)/fuzz/%: $(B)/obj/tests/fuzz/%.o $(B)/libtidegate.a
	@mkdir -p $(@D)
	$(if $(V),,@echo "  LD $@")
	$(Q)$(CC) $(FLAGS_$(VARIANT)) $(LINK_$(VARIANT)) -o $@ $(filter %.o,$^) $(B)/libtidegate.a $(LIBS)

.PHONY: fuzz-programs fuzz-run
fuzz-programs: $(addprefix $(B)/fuzz/,$(FUZZ))
# New inputs stay under build/; the committed corpus is only read.
fuzz-run: fuzz-programs
	@for f in $(FUZZ); do \
		name=$${f#fuzz_}; mkdir -p build/corpus/$$name; \
		echo "fuzz $$name for $(FUZZ_SECONDS) s"; \
		$(B)/fuzz/$$f -max_total_time=$(FUZZ_SECONDS) -rss_limit_mb=1024 -print_final_stats=0 \
			-verbosity=0 -artifact_prefix=build/corpus/ build/corpus/$$name $$(ls -d bridge/tests/fuzz/corpus/$$name 2>/dev/null) \
			|| exit 1; \
	done

# The same as TAP, for tests/run.
.PHONY: fuzz-tap
fuzz-tap: fuzz-programs
	@n=0; bad=0; echo "1..$(words $(FUZZ))"; \
	for f in $(FUZZ); do \
		n=$$((n + 1)); \
		if $(MAKE) -s FUZZ=$$f VARIANT=fuzz fuzz-run; then echo "ok $$n - fuzz: $$f"; \
		else echo "not ok $$n - fuzz: $$f"; bad=1; fi; \
	done; exit $$bad

# ---- slow checks, file by file ----------------------------------------------------------------

HEADERS := $(wildcard bridge/*/*.h)
CHECKED := $(SRC_LIB) $(SRC_APP)
.PHONY: tidy analyzer
tidy: $(patsubst bridge/%.c,build/lint/tidy/%.ok,$(CHECKED))
analyzer: $(patsubst bridge/%.c,build/lint/analyzer/%.ok,$(CHECKED))
build/lint/tidy/%.ok: bridge/%.c $(HEADERS) bridge/.clang-tidy
	@mkdir -p $(@D)
	@clang-tidy --quiet --config-file=bridge/.clang-tidy $< -- $(STD) $(CPP) $(shell pkgconf --cflags $(PKGS)) 2>/dev/null
	@touch $@
build/lint/analyzer/%.ok: bridge/%.c $(HEADERS)
	@mkdir -p $(@D)
	@gcc $(CPP) $(STD) $(shell pkgconf --cflags $(PKGS)) -O1 -fanalyzer -Werror -c -o /dev/null $<
	@touch $@

-include $(shell find $(B)/obj -name '*.d' 2>/dev/null)
