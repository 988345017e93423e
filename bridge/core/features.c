// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/features.h"

#include <string.h>

#include "core/causes.h"

/* What is beyond these is left out. Nothing is allocated while all is right: every node is looked at in every
 * round. */
#define FEATURES_MAX 256
#define ARENA_SIZE   8192

struct word {
    const char *at;
    size_t len;
};

struct list {
    struct word items[FEATURES_MAX];
    size_t n;
};

/* Where the features from labels are written. */
struct arena {
    char text[ARENA_SIZE];
    size_t used;
};

static bool list_has(const struct list *l, struct word w)
{
    for (size_t i = 0; i < l->n; i++) {
        /* most differ at their end: cpu-1, cpu-2 */
        if (l->items[i].len == w.len && l->items[i].at[w.len - 1] == w.at[w.len - 1] &&
            memcmp(l->items[i].at, w.at, w.len) == 0)
            return true;
    }
    return false;
}

static void list_add(struct list *l, struct word w)
{
    if (w.len && l->n < FEATURES_MAX && !list_has(l, w))
        l->items[l->n++] = w;
}

static bool can_be_asked_for(struct word w)
{
    static const bool good[256] = {
        ['a' ... 'z'] = true, ['A' ... 'Z'] = true, ['0' ... '9'] = true,
        ['.'] = true,         ['_'] = true,         ['/'] = true,
        ['='] = true,         [':'] = true,         ['-'] = true};

    for (size_t i = 0; i < w.len; i++) {
        if (!good[(unsigned char)w.at[i]])
            return false;
    }
    return true;
}

/* Those of a comma separated text; of an agent only what can be asked for. */
static void list_add_text(struct list *l, const char *text, bool any)
{
    while (text && *text) {
        const char *end = strchrnul(text, ',');
        struct word w = {text, (size_t)(end - text)};

        if (any || can_be_asked_for(w))
            list_add(l, w);
        text = *end ? end + 1 : end;
    }
}

static bool wants_label(const struct kube_pool *pool, const char *key)
{
    for (size_t i = 0; i < pool->n_feature_labels; i++) {
        const char *wanted = pool->feature_labels[i];
        size_t n = strlen(wanted);

        if (strncmp(key, wanted, n) == 0 && n && (!key[n] || wanted[n - 1] == '/'))
            return true;
    }
    return false;
}

static void list_add_label(struct list *l, const struct label *label, struct arena *a)
{
    const char *slash = strrchr(label->key, '/');
    const char *name = slash ? slash + 1 : label->key;
    bool bare = !*label->value || strcmp(label->value, "true") == 0;
    size_t n = strlen(name), value = bare ? 0 : strlen(label->value) + 1;
    struct word w = {a->text + a->used, n + value};

    if (strcmp(label->value, "false") == 0 || w.len > sizeof(a->text) - a->used)
        return;
    memcpy(a->text + a->used, name, n);
    if (!bare) {
        a->text[a->used + n] = '=';
        memcpy(a->text + a->used + n + 1, label->value, value - 1);
    }
    a->used += w.len;
    if (can_be_asked_for(w))
        list_add(l, w);
}

/* What stands there and may stay, in its order, then what is missing. */
static char *merge(const struct list *wanted, const struct list *present, bool exact)
{
    struct list merged = {.n = 0};
    size_t size = 1;
    char *text, *p;

    for (size_t i = 0; i < present->n; i++) {
        if (!exact || list_has(wanted, present->items[i]))
            list_add(&merged, present->items[i]);
    }
    for (size_t i = 0; i < wanted->n; i++)
        list_add(&merged, wanted->items[i]);
    for (size_t i = 0; i < merged.n; i++)
        size += merged.items[i].len + 1;
    p = text = mem_zalloc(size);
    for (size_t i = 0; i < merged.n; i++) {
        if (i)
            *p++ = ',';
        p = mempcpy(p, merged.items[i].at, merged.items[i].len);
    }
    return text;
}

static bool all_in(const struct list *these, const struct list *those)
{
    for (size_t i = 0; i < these->n; i++) {
        if (!list_has(those, these->items[i]))
            return false;
    }
    return true;
}

char *features_wanted(const struct node_facts *f)
{
    bool told = agent_reports(f) && f->agent->line.cpus, exact;
    struct list wanted, present;
    struct arena arena;

    if (!f->pool || !f->pool->feature || !f->slurm || !f->kube ||
        (!f->pool->n_feature_labels && !(told && f->agent->line.features)))
        return NULL;
    wanted.n = present.n = arena.used = 0;
    list_add(&wanted, (struct word){f->pool->feature, strlen(f->pool->feature)});
    if (told)
        list_add_text(&wanted, f->agent->line.features, false);
    for (size_t i = 0; i < f->kube->labels.n; i++) {
        if (wants_label(f->pool, f->kube->labels.items[i].key))
            list_add_label(&wanted, &f->kube->labels.items[i], &arena);
    }
    list_add_text(&present, f->slurm->features, true);
    exact = told && f->pool->n_feature_labels;
    if (present.n == FEATURES_MAX ||
        (all_in(&wanted, &present) && (!exact || all_in(&present, &wanted))))
        return NULL;
    return merge(&wanted, &present, exact);
}
