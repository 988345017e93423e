// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/model.h"

#include <string.h>

void labels_clear(struct labels *l)
{
    for (size_t i = 0; i < l->n; i++) {
        free(l->items[i].key);
        free(l->items[i].value);
    }
    free(l->items);
    *l = (struct labels){0};
}

void labels_add(struct labels *l, const char *key, const char *value)
{
    l->items = mem_resize(l->items, l->n + 1, sizeof(l->items[0]));
    l->items[l->n++] = (struct label){mem_strdup(key), mem_strdup(value)};
}

const char *labels_get(const struct labels *l, const char *key)
{
    for (size_t i = 0; i < l->n; i++) {
        if (strcmp(l->items[i].key, key) == 0)
            return l->items[i].value;
    }
    return NULL;
}

bool labels_match(const struct labels *selector, const struct labels *l)
{
    for (size_t i = 0; i < selector->n; i++) {
        const char *value = labels_get(l, selector->items[i].key);

        if (!value || strcmp(value, selector->items[i].value) != 0)
            return false;
    }
    return selector->n > 0;
}

void kube_node_clear(struct kube_node *n)
{
    free(n->name);
    free(n->uid);
    free(n->boot_id);
    labels_clear(&n->labels);
    *n = (struct kube_node){0};
}

void kube_pod_clear(struct kube_pod *p)
{
    free(p->name);
    free(p->uid);
    free(p->node);
    free(p->ip);
    *p = (struct kube_pod){0};
}

void kube_pool_clear(struct kube_pool *p)
{
    free(p->name);
    free(p->uid);
    labels_clear(&p->selector);
    free(p->partition);
    free(p->feature);
    for (size_t i = 0; i < p->n_feature_labels; i++)
        free(p->feature_labels[i]);
    free(p->feature_labels);
    *p = (struct kube_pool){0};
}

void node_line_clear(struct node_line *l)
{
    free(l->gres);
    free(l->features);
    *l = (struct node_line){0};
}

void check_fact_clear(struct check_fact *c)
{
    free(c->name);
    free(c->text);
    *c = (struct check_fact){0};
}

void agent_fact_clear(struct agent_fact *a)
{
    free(a->pod_uid);
    free(a->boot_id);
    free(a->instance);
    node_line_clear(&a->line);
    for (size_t i = 0; i < a->n_checks; i++)
        check_fact_clear(&a->checks[i]);
    free(a->checks);
    *a = (struct agent_fact){0};
}

/* FNV-1a, its high bits folded in. It stands in ledgers: never another one. */
uint64_t check_bit(const char *name)
{
    uint64_t h = UINT64_C(0xcbf29ce484222325);

    for (; *name; name++)
        h = (h ^ (unsigned char)*name) * UINT64_C(0x100000001b3);
    return UINT64_C(1) << ((h ^ (h >> 32)) % 64);
}

uint64_t agent_checks_mask(const struct agent_fact *a)
{
    uint64_t mask = 0;

    for (size_t i = 0; i < a->n_checks; i++)
        mask |= check_bit(a->checks[i].name);
    return mask;
}

static const char *const cause_names[CAUSE_COUNT_] = {
    [CAUSE_NONE] = "none",           [CAUSE_CORDONED] = "cordoned",
    [CAUSE_LEFT_POOL] = "left-pool", [CAUSE_NOT_READY] = "not-ready",
    [CAUSE_GONE] = "gone",           [CAUSE_SLURMD] = "slurmd",
    [CAUSE_STOPPING] = "stopping",   [CAUSE_HEALTH] = "health",
    [CAUSE_UNPROVED] = "unproved",   [CAUSE_LINE] = "line",
};

const char *cause_name(enum cause c)
{
    return c < CAUSE_COUNT_ ? cause_names[c] : "unknown";
}

enum cause cause_from_name(const char *name)
{
    for (enum cause c = CAUSE_NONE; c < CAUSE_COUNT_; c++) {
        if (name && strcmp(cause_names[c], name) == 0)
            return c;
    }
    return CAUSE_NONE;
}

void instance_copy(char ret[INSTANCE_SIZE], const char *from)
{
    size_t n = 0;

    for (; from && from[n] && n < INSTANCE_SIZE - 1; n++) {
        char c = from[n];
        bool good = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                    (c >= '0' && c <= '9') || c == '.' || c == '_' || c == '-';

        ret[n] = good ? c : '-';
    }
    memset(ret + n, 0, INSTANCE_SIZE - n);
}

bool instance_is(const char *instance, const char kept[INSTANCE_SIZE])
{
    char clean[INSTANCE_SIZE];

    instance_copy(clean, instance);
    return clean[0] && strcmp(clean, kept) == 0;
}

bool ledger_is_empty(const struct ledger *l)
{
    return l->episode == CAUSE_NONE && !l->overruled && !l->overruled_checks &&
           !l->proved[0] && !l->failed[0] && !l->line;
}

bool ledger_equal(const struct ledger *a, const struct ledger *b)
{
    return a->episode == b->episode && a->overruled == b->overruled &&
           (a->episode == CAUSE_NONE ||
            (a->episode_at == b->episode_at && a->checks == b->checks)) &&
           a->overruled_checks == b->overruled_checks &&
           strcmp(a->proved, b->proved) == 0 && strcmp(a->failed, b->failed) == 0 &&
           a->line == b->line;
}

void slurm_node_clear(struct slurm_node *n)
{
    free(n->name);
    free(n->addr);
    free(n->state);
    free(n->reason);
    free(n->features);
    free(n->extra_other);
    *n = (struct slurm_node){0};
}

void slurm_snapshot_free(struct slurm_snapshot *s)
{
    if (!s)
        return;
    for (size_t i = 0; i < s->n; i++)
        slurm_node_clear(&s->nodes[i]);
    free(s->nodes);
    free(s);
}

const char *verb_name(enum verb v)
{
    switch (v) {
    case VERB_NONE:
        return "none";
    case VERB_DRAIN:
        return "drain";
    case VERB_DOWN:
        return "down";
    case VERB_RESUME:
        return "resume";
    case VERB_NOTE:
        return "note";
    case VERB_FEATURES:
        return "features";
    case VERB_DELETE:
        return "delete";
    }
    return "unknown";
}

void action_clear(struct action *a)
{
    free(a->names);
    free(a->reason);
    free(a->extra_other);
    free(a->features);
    *a = (struct action){0};
}
