/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The health checks that are shipped: `tidegate-node check NAME [ARG]...`. A check prints one line and
 * returns 0 when all is well, 1 when not; then the line is a sentence that says which thing has which value,
 * what was expected and what to do, and becomes the node's reason in Slurm.
 */
#ifndef TG_APP_TIDEGATE_NODE_CHECK_H
#define TG_APP_TIDEGATE_NODE_CHECK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/err.h"
#include "base/mem.h"

#define CHECK_NAMES_MAX 64 /* words without "--" of one call */

struct check_call {
    int argc; /* behind the check's name */
    char **argv;
    const char *root; /* in front of /proc, /sys and /dev: "" but for tests */
    const char *names[CHECK_NAMES_MAX + 1]; /* the words without "--", ended by NULL */
    size_t n_names;
};

/* One of the three pointers is set. Numbers are whole and not negative. */
struct check_option {
    const char *name; /* "--min-percent"; NULL ends the list */
    int64_t *number;
    const char **text;
    bool *flag;
};

/* Reads the call's words; 0, or EX_USAGE after a sentence on stderr. */
int check_read_options(struct check_call *c, const struct check_option *options)
    _must_use_;
/* With at least `min` and at most `max` names, which the usage sentence calls `what`. */
int check_expect_names(const struct check_call *c, size_t min, size_t max,
                       const char *what) _must_use_;
/* Both, for a check that takes no names. */
int check_read_only_options(struct check_call *c, const struct check_option *options)
    _must_use_;

int check_failed(const char *fmt, ...) _printf_(1, 2); /* prints, returns 1 */
int check_good(const char *fmt, ...) _printf_(1, 2);   /* prints, returns 0 */

/* A path below the root; the caller frees. */
char *check_path(const struct check_call *c, const char *fmt, ...) _printf_(2, 3)
    __attribute__((returns_nonnull));
/* The first line of a small file, without its end; NULL when it cannot be read. The caller frees. */
char *check_read_line(const char *path);
/* The number that it begins with; -1 when there is none. */
int64_t check_read_number(const char *path);
/* From the environment that the agent gives; false when it is not there or no number. */
bool check_env_number(const char *name, int64_t *ret);

typedef int check_function(struct check_call *c);
/* _storage */
check_function check_space, check_mount;
/* _system */
check_function check_memory, check_clock, check_munge;
/* _leftovers */
check_function check_leftovers;
/* _hardware */
check_function check_ecc, check_link, check_gpu;

#endif
