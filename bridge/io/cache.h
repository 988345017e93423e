/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Keeps what a reflector reports of one kind of object, as values of the core, by name. Fail closed:
 * `fresh` only while the watch behind it stands; an object that cannot be read keeps its last value
 * and is never taken for deleted.
 */
#ifndef TG_IO_CACHE_H
#define TG_IO_CACHE_H

#include <cjson/cJSON.h>

#include "io/reflect.h"

/* The values' first member is their name: char *. */
struct cache_type {
    const char *what; /* "nodes", for log lines */
    size_t value_size;
    int (*parse)(const cJSON *obj, void *ret_value, struct err *err);
    void (*clear)(void *value);
    bool (*same)(const void *a, const void *b); /* NULL: every report is a change */
    /* A second name, that several may have or none (NULL), to be found by; NULL: there is no such. It must be
     * part of what `same` compares. */
    const char *(*alias)(const void *value);
};

struct cache;

/* on_change: something that may matter has changed, or freshness has. */
int cache_new(struct kube *k, sd_event *event, const struct cache_type *type,
              const char *path, const char *query, void (*on_change)(void *userdata),
              void *userdata, struct cache **ret, struct err *err) _must_use_;
void cache_free(struct cache *c);
TG_DEFINE_FREEP(struct cache, cache_free);

bool cache_fresh(const struct cache *c);
bool cache_synced(const struct cache *c); /* was fresh at least once */
size_t cache_count(const struct cache *c);
const void *cache_get(const struct cache *c, const char *name); /* NULL: none */
/* Of those with this second name the best: better(a, b) says that a is to be taken rather than b. */
const void *cache_find_alias(const struct cache *c, const char *alias,
                             bool (*better)(const void *a, const void *b));
/* All values, in no order; the array is the caller's to free, the values stay the cache's and are
 * good until the loop runs again. */
const void **cache_values(const struct cache *c, size_t *ret_n);

#endif
