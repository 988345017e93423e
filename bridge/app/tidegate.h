/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The parts of the tidegate command. */
#ifndef TG_APP_TIDEGATE_H
#define TG_APP_TIDEGATE_H

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <sysexits.h>

#include "base/err.h"

/* Exit statuses beside EX_UNAVAILABLE and EX_NOPERM; in the man page. */
enum { EXIT_OK = 0, EXIT_NOT_SO = 1, EXIT_USAGE = 2 };

/* Where the bridge is asked. */
struct source {
    const char *url; /* NULL: by the environment */
    bool kubectl;    /* ask through the API server, by kubectl */
    const char *namespace;
    const char *service;
    const char *context;    /* NULL: kubectl's own */
    const char *kubeconfig; /* NULL: kubectl's own */
};

/*
 * The answer to /v1/nodes (node NULL) or /v1/nodes/NODE. -ENOENT: there is no such node; -EACCES: not
 * allowed; -EHOSTUNREACH: no answer, or none that can be used. ret: the caller deletes.
 */
int source_get(const struct source *s, const char *node, cJSON **ret, struct err *err)
    _must_use_;

/* To stdout. */
void show_nodes(const cJSON *answer);
void show_node(const cJSON *answer);
void show_json(const cJSON *answer);
/* Says on stderr what of the answer is stale. Returns whether slurmctld can be read. */
bool show_freshness(const cJSON *answer);

#endif
