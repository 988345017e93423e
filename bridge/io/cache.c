// SPDX-License-Identifier: GPL-2.0-or-later
#include "io/cache.h"

#include <string.h>
#include <uthash.h>

#include "base/log.h"

struct alias {
    char *name;
    struct item *items; /* who has it */
    UT_hash_handle hh;
};

struct item {
    void *value;         /* owns the name that is the key */
    uint64_t list;       /* the list that named it last */
    struct alias *alias; /* NULL: none */
    struct item *next;   /* of the alias */
    UT_hash_handle hh;
};

struct cache {
    const struct cache_type *type;
    struct reflect *reflect;
    struct item *items;
    struct alias *aliases;
    uint64_t list; /* counts lists */
    bool fresh;
    bool synced;
    void (*on_change)(void *userdata);
    void *userdata;
};

static const char *name_of(const void *value)
{
    return *(char *const *)value;
}

static struct item *find(const struct cache *c, const char *name)
{
    struct item *it;

    HASH_FIND_STR(c->items, name, it);
    return it;
}

static void value_free(const struct cache *c, void *value)
{
    c->type->clear(value);
    free(value);
}

static void alias_add(struct cache *c, struct item *it)
{
    const char *name = c->type->alias ? c->type->alias(it->value) : NULL;
    struct alias *a;

    if (!name)
        return;
    HASH_FIND_STR(c->aliases, name, a);
    if (!a) {
        a = mem_zalloc(sizeof(*a));
        a->name = mem_strdup(name);
        HASH_ADD_KEYPTR(hh, c->aliases, a->name, strlen(a->name), a);
    }
    it->alias = a;
    it->next = a->items;
    a->items = it;
}

static void alias_del(struct cache *c, struct item *it)
{
    struct alias *a = it->alias;
    struct item **p;

    if (!a)
        return;
    for (p = &a->items; *p != it;)
        p = &(*p)->next;
    *p = it->next;
    if (a->items)
        return;
    HASH_DEL(c->aliases, a);
    free(a->name);
    free(a);
}

static void drop(struct cache *c, struct item *it)
{
    alias_del(c, it);
    HASH_DEL(c->items, it);
    value_free(c, it->value);
    free(it);
}

static const char *object_name(const cJSON *obj)
{
    const cJSON *meta = cJSON_GetObjectItemCaseSensitive(obj, "metadata");

    return cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(meta, "name"));
}

/* The value that stands stays, and counts as named by this list. */
static void unreadable(struct cache *c, const cJSON *obj, const struct err *err)
{
    const char *name = object_name(obj);
    struct item *it = name ? find(c, name) : NULL;

    if (it)
        it->list = c->list;
    log_warn("object of Kubernetes cannot be read; its last state is kept",
             LOG_STR("what", c->type->what), LOG_STR("name", name),
             LOG_STR("error", err->text));
}

/* Returns whether something has changed. */
static bool put(struct cache *c, const cJSON *obj)
{
    void *value = mem_zalloc(c->type->value_size);
    struct err err = {0};
    struct item *it;

    if (c->type->parse(obj, value, &err) < 0) {
        free(value);
        unreadable(c, obj, &err);
        return false;
    }
    it = find(c, name_of(value));
    if (it && c->type->same && c->type->same(it->value, value)) {
        it->list = c->list;
        value_free(c, value);
        return false;
    }
    if (it)
        drop(c, it);
    it = mem_zalloc(sizeof(*it));
    it->value = value;
    it->list = c->list;
    HASH_ADD_KEYPTR(hh, c->items, name_of(value), strlen(name_of(value)), it);
    alias_add(c, it);
    return true;
}

static bool take_away(struct cache *c, const cJSON *obj)
{
    const char *name = object_name(obj);
    struct item *it = name ? find(c, name) : NULL;

    if (!it)
        return false;
    drop(c, it);
    return true;
}

static void drop_unlisted(struct cache *c)
{
    struct item *it, *next;

    HASH_ITER(hh, c->items, it, next)
    {
        if (it->list != c->list)
            drop(c, it);
    }
}

static void on_reflect(enum reflect_kind kind, const cJSON *obj, void *userdata)
{
    struct cache *c = userdata;
    bool was_fresh = c->fresh, changed = false;

    switch (kind) {
    case REFLECT_LIST_BEGIN:
        c->list++;
        return;
    case REFLECT_PUT:
        changed = put(c, obj);
        break;
    case REFLECT_DELETE:
        changed = take_away(c, obj);
        break;
    case REFLECT_LIST_END:
        drop_unlisted(c);
        c->fresh = c->synced = changed = true;
        break;
    case REFLECT_FRESH:
        c->fresh = c->synced;
        break;
    case REFLECT_LOST:
        c->fresh = false;
        break;
    }
    if (was_fresh != c->fresh)
        log_info(c->fresh ? "Kubernetes is watched"
                          : "Kubernetes is not seen; holding still",
                 LOG_STR("what", c->type->what), LOG_NUM("count", HASH_COUNT(c->items)));
    /* inside a list the end of it brings the news */
    if ((changed && c->fresh) || was_fresh != c->fresh)
        c->on_change(c->userdata);
}

int cache_new(struct kube *k, sd_event *event, const struct cache_type *type,
              const char *path, const char *query, void (*on_change)(void *userdata),
              void *userdata, struct cache **ret, struct err *err)
{
    _cleanup_(cache_freep) struct cache *c = mem_zalloc(sizeof(*c));
    struct reflect_config config = {.what = type->what,
                                    .path = path,
                                    .query = query,
                                    .cb = on_reflect,
                                    .userdata = c};
    int r;

    c->type = type;
    c->on_change = on_change;
    c->userdata = userdata;
    r = reflect_new(k, event, &config, &c->reflect, err);
    if (r < 0)
        return r;
    *ret = c;
    c = NULL;
    return 0;
}

void cache_free(struct cache *c)
{
    struct item *it, *next;

    if (!c)
        return;
    reflect_free(c->reflect);
    HASH_ITER(hh, c->items, it, next)
    drop(c, it);
    free(c);
}

bool cache_fresh(const struct cache *c)
{
    return c->fresh;
}

bool cache_synced(const struct cache *c)
{
    return c->synced;
}

size_t cache_count(const struct cache *c)
{
    return HASH_COUNT(c->items);
}

const void *cache_get(const struct cache *c, const char *name)
{
    const struct item *it = find(c, name);

    return it ? it->value : NULL;
}

const void *cache_find_alias(const struct cache *c, const char *alias,
                             bool (*better)(const void *a, const void *b))
{
    const void *best = NULL;
    struct alias *a;

    HASH_FIND_STR(c->aliases, alias, a);
    for (const struct item *it = a ? a->items : NULL; it; it = it->next) {
        if (!best || better(it->value, best))
            best = it->value;
    }
    return best;
}

const void **cache_values(const struct cache *c, size_t *ret_n)
{
    const void **values = mem_calloc(HASH_COUNT(c->items), sizeof(*values));
    struct item *it, *next;
    size_t n = 0;

    HASH_ITER(hh, c->items, it, next)
    values[n++] = it->value;
    *ret_n = n;
    return values;
}
