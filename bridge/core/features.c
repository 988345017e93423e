// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/features.h"

#include <string.h>

#include "core/causes.h"

#define FEATURES_MAX 256

struct list {
    char *items[FEATURES_MAX]; /* what is beyond is left out */
    size_t n;
};

static void list_clear(struct list *l)
{
    for (size_t i = 0; i < l->n; i++)
        free(l->items[i]);
    l->n = 0;
}

static bool list_has(const struct list *l, const char *feature)
{
    for (size_t i = 0; i < l->n; i++) {
        if (strcmp(l->items[i], feature) == 0)
            return true;
    }
    return false;
}

static bool can_be_asked_for(const char *feature)
{
    static const char good[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                               "0123456789._/=:-";

    return *feature && strspn(feature, good) == strlen(feature);
}

static void list_add(struct list *l, const char *feature)
{
    if (l->n < FEATURES_MAX && !list_has(l, feature))
        l->items[l->n++] = mem_strdup(feature);
}

/* Those of a comma separated text; of an agent only what can be asked for. */
static void list_add_text(struct list *l, const char *text, bool any)
{
    while (text && *text) {
        const char *end = strchrnul(text, ',');
        _cleanup_(mem_freep) char *one = mem_strndup(text, (size_t)(end - text));

        if (*one && (any || can_be_asked_for(one)))
            list_add(l, one);
        text = *end ? end + 1 : end;
    }
}

static bool wants_label(const struct kube_pool *pool, const char *key)
{
    for (size_t i = 0; i < pool->n_feature_labels; i++) {
        const char *wanted = pool->feature_labels[i];
        size_t n = strlen(wanted);

        if (n && wanted[n - 1] == '/' ? strncmp(key, wanted, n) == 0
                                      : strcmp(key, wanted) == 0)
            return true;
    }
    return false;
}

static void list_add_label(struct list *l, const struct label *label)
{
    const char *slash = strrchr(label->key, '/');
    const char *name = slash ? slash + 1 : label->key;
    bool bare = !*label->value || strcmp(label->value, "true") == 0;
    _cleanup_(mem_freep) char *feature =
        mem_printf("%s%s%s", name, bare ? "" : "=", bare ? "" : label->value);

    if (strcmp(label->value, "false") != 0 && can_be_asked_for(feature))
        list_add(l, feature);
}

static char *list_text(const struct list *l)
{
    size_t size = 1;
    char *text, *p;

    for (size_t i = 0; i < l->n; i++)
        size += strlen(l->items[i]) + 1;
    p = text = mem_zalloc(size);
    for (size_t i = 0; i < l->n; i++) {
        if (i)
            *p++ = ',';
        p = stpcpy(p, l->items[i]);
    }
    return text;
}

/* What stands there and may stay, in its order, then what is missing. */
static char *merge(const struct list *wanted, const struct list *present, bool exact)
{
    struct list merged = {.n = 0};
    bool same = true;
    char *text = NULL;

    for (size_t i = 0; i < present->n; i++) {
        if (!exact || list_has(wanted, present->items[i]))
            list_add(&merged, present->items[i]);
        else
            same = false;
    }
    for (size_t i = 0; i < wanted->n; i++) {
        size_t before = merged.n;

        list_add(&merged, wanted->items[i]);
        same = same && merged.n == before;
    }
    if (!same)
        text = list_text(&merged);
    list_clear(&merged);
    return text;
}

char *features_wanted(const struct node_facts *f)
{
    bool told = agent_reports(f) && f->agent->line.cpus;
    struct list wanted = {.n = 0}, present = {.n = 0};
    char *text = NULL;

    if (!f->pool || !f->pool->feature || !f->slurm || !f->kube ||
        (!f->pool->n_feature_labels && !(told && f->agent->line.features)))
        return NULL;
    list_add(&wanted, f->pool->feature);
    if (told)
        list_add_text(&wanted, f->agent->line.features, false);
    for (size_t i = 0; i < f->kube->labels.n; i++) {
        if (wants_label(f->pool, f->kube->labels.items[i].key))
            list_add_label(&wanted, &f->kube->labels.items[i]);
    }
    list_add_text(&present, f->slurm->features, true);
    if (present.n < FEATURES_MAX)
        text = merge(&wanted, &present, told && f->pool->n_feature_labels);
    list_clear(&wanted);
    list_clear(&present);
    return text;
}
