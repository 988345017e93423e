/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Keeps up with one kind of object: list, then watch with bookmarks from the list's
 * resourceVersion, list anew on 410 and after anything that could have lost an event.
 * Reports objects, keeps none.
 */
#ifndef TG_IO_REFLECT_H
#define TG_IO_REFLECT_H

#include <cjson/cJSON.h>

#include "io/kube.h"

enum reflect_kind {
    /* obj NULL: objects that are not named until LIST_END are gone. */
    REFLECT_LIST_BEGIN,
    /* An object as it is now (from a list, ADDED or MODIFIED); it has a metadata.name. Of one
     * in a list that is no valid JSON it is only {"metadata":{"name":N}}: it does not read as
     * any kind, but it is there, so what was known of it stays. */
    REFLECT_PUT,
    REFLECT_DELETE,
    /* obj NULL: the world is complete; from here on it is fresh. */
    REFLECT_LIST_END,
    /* obj NULL: no longer fresh (the watch broke, or a list failed: then what it has not named
     * says nothing). */
    REFLECT_LOST,
    /* obj NULL: fresh again, by a watch that carried on without a new list. */
    REFLECT_FRESH,
};

typedef void (*reflect_cb)(enum reflect_kind kind, const cJSON *obj, void *userdata);

struct reflect_config {
    const char *what;  /* for log lines: "nodes" */
    const char *path;  /* /api/v1/nodes */
    const char *query; /* escaped, e.g. labelSelector=...; NULL: none */
    size_t object_cap; /* bytes one object may have; 0: 2 MiB */
    int64_t
        idle_ms; /* a watch without a byte for so long is begun anew; 0: 90 s (bookmarks
                        come about every minute, where they come) */
    reflect_cb cb;
    void *userdata;
};

struct reflect;

/* The callback comes also from inside a libcurl callback: it may begin and cancel
 * requests, but not free the kube or this. Free this before the kube. Starts at once;
 * retries for ever with 0.1 s growing to 5 s between tries, with jitter. */
int reflect_new(struct kube *k, sd_event *event, const struct reflect_config *config,
                struct reflect **ret, struct err *err) _must_use_;
void reflect_free(struct reflect *r);
TG_DEFINE_FREEP(struct reflect, reflect_free);

/* ms (CLOCK_BOOTTIME) when the last byte came from the server; 0: never. */
int64_t reflect_heard_at(const struct reflect *r);

#endif
