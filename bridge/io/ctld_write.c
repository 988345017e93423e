// SPDX-License-Identifier: GPL-2.0-or-later
/* Writing to slurmctld: one ranged RPC for each action, split where it fails for some
 * nodes. */
#include <assert.h>
#include <errno.h>
#include <slurm/slurm_errno.h>
#include <string.h>
#include <strings.h>

#include "base/clock.h"
#include "codec/ledger.h"
#include "io/ctld_priv.h"

/* So few nodes are looked at one by one before they are changed: an RPC each costs less than all nodes
 * of a large cluster, which slurmctld sends whole when one of them has changed in the last second. */
#define SINGLES_MAX  8
#define HOSTLIST_MAX (8 << 20) /* bytes; 65,536 nodes with names of 100 */

/* One action under way. */
struct change {
    struct ctld_batch *batch;
    struct ctld_source *source;
    const struct action *action;
    struct ctld_outcome *outcomes; /* of the action's nodes */
    char *extra;                   /* NULL: not written */
    const char *reason;            /* NULL: not written */
};

static void settle(const struct change *c, size_t i, int code, const char *error)
{
    struct ctld_outcome *o = &c->outcomes[i];

    o->code = code;
    o->error = code < 0 ? mem_strdup(error) : NULL;
}

static void settle_all(const struct change *c, const size_t *which, size_t n, int code,
                       const char *error)
{
    for (size_t i = 0; i < n; i++)
        settle(c, which[i], code, error);
}

/* "d[1-3,7]"; NULL when it is too long. The caller frees. */
static char *ranged_names(const struct action *a, const size_t *which, size_t n)
{
    hostlist_t *list = slurm_hostlist_create(NULL);
    size_t size = 4096;
    char *text = NULL;

    if (!list)
        abort();
    for (size_t i = 0; i < n; i++)
        (void)slurm_hostlist_push_host(list, a->names[which[i]]);
    do {
        text = mem_resize(text, size, 1);
        if (slurm_hostlist_ranged_string(list, size, text) >= 0)
            break;
        size *= 2;
    } while (size <= HOSTLIST_MAX);
    slurm_hostlist_destroy(list);
    if (size <= HOSTLIST_MAX)
        return text;
    free(text);
    return NULL;
}

static uint32_t state_for(enum verb v)
{
    switch (v) {
    case VERB_DRAIN:
        return NODE_STATE_DRAIN;
    case VERB_DOWN:
        return NODE_STATE_DOWN;
    case VERB_RESUME:
        return NODE_RESUME;
    case VERB_NONE:
    case VERB_NOTE:
    case VERB_FEATURES:
    case VERB_DELETE:
        break;
    }
    return NO_VAL;
}

/* Whether an action of this verb has something for slurmctld to do. */
static bool asks_for_something(const struct change *c)
{
    return state_for(c->action->verb) != NO_VAL || c->action->verb == VERB_DELETE ||
           c->action->features || c->reason || c->extra;
}

/* Slurm does not change state, reason and Extra together or not at all: a state that it
 * refuses leaves the other two written. */
static int ask_slurm(const struct change *c, const size_t *which, size_t n,
                     int *ret_errno, struct err *err)
{
    _cleanup_(mem_freep) char *names = ranged_names(c->action, which, n);
    _cleanup_(mem_freep) char *what = NULL;
    update_node_msg_t msg;

    if (!names) {
        *ret_errno = ESLURM_INVALID_NODE_NAME; /* halves will fit */
        return err_set(err, -EMSGSIZE, "%zu node names make too long a list", n);
    }
    slurm_init_update_node_msg(&msg);
    msg.node_names = names;
    msg.node_state = state_for(c->action->verb);
    msg.reason = (char *)c->reason;
    msg.extra = c->extra;
    /* the active ones, too: alone the others only grow (2031) */
    msg.features = msg.features_act = c->action->features;
    c->batch->rpcs++;
    if (c->action->verb == VERB_DELETE) {
        /* slurmctld answers 'no change' to the next look, as if the record were still there */
        c->source->nodes_full = true;
        if (slurm_delete_node(&msg) == SLURM_SUCCESS)
            return 0;
    } else if (slurm_update_node(&msg) == SLURM_SUCCESS) {
        return 0;
    }
    *ret_errno = errno;
    what = mem_printf("cannot %s %s", verb_name(c->action->verb), names);
    return ctld_error(*ret_errno, what, err);
}

static bool same_text(const char *want, const char *is)
{
    return !want || strcmp(want, is ? is : "") == 0;
}

static bool stands_as_wanted(const struct change *c, const node_info_t *node)
{
    bool down = (node->node_state & NODE_STATE_BASE) == NODE_STATE_DOWN;
    bool kept = node->node_state & (NODE_STATE_DRAIN | NODE_STATE_FAIL);

    if (!same_text(c->reason, node->reason) || !same_text(c->extra, node->extra) ||
        !same_text(c->action->features, node->features) ||
        !same_text(c->action->features, node->features_act))
        return false;
    switch (c->action->verb) {
    case VERB_DRAIN:
        return node->node_state & NODE_STATE_DRAIN;
    case VERB_DOWN:
        return down;
    case VERB_RESUME:
        return !down && !kept;
    case VERB_DELETE:
        return false; /* it is still there */
    case VERB_NONE:
    case VERB_NOTE:
    case VERB_FEATURES:
        break;
    }
    return true;
}

/* Whether nothing is left to do; NULL: there is no such node. */
static bool is_done(const struct change *c, const node_info_t *node)
{
    return node ? stands_as_wanted(c, node) : c->action->verb == VERB_DELETE;
}

/*
 * After an RPC that failed: some of the nodes may have been changed all the same (those
 * before an unknown name, those beside one whose state does not allow it). They are taken
 * out of `which`.
 */
static int take_out_done(const struct change *c, size_t *which, size_t *n,
                         struct err *err)
{
    size_t left = 0;
    int r = ctld_source_hold(c->source, err);

    if (r < 0)
        return r;
    for (size_t i = 0; i < *n; i++) {
        const node_info_t *node = ctld_source_find(c->source, c->action->names[which[i]]);

        if (is_done(c, node))
            settle(c, which[i], 0, NULL);
        else
            which[left++] = which[i];
    }
    *n = left;
    return 0;
}

static void change_nodes(const struct change *c, size_t *which, size_t n)
{
    int r, slurm_errno = 0;
    struct err err = {0};

    if (n == 0)
        return;
    if (clock_mono_ms() >= c->batch->valid_until_ms) {
        settle_all(c, which, n, -ECANCELED, "no longer the leader when its turn came");
        return;
    }
    r = ask_slurm(c, which, n, &slurm_errno, &err);
    if (r == 0 || r == -EHOSTDOWN || r == -EACCES) {
        settle_all(c, which, n, r, err.text);
        return;
    }
    if (n == 1) {
        settle(c, which[0], r, err.text);
        return;
    }
    r = take_out_done(c, which, &n, &err);
    if (r < 0) {
        settle_all(c, which, n, r, err.text);
    } else if (n == 1) {
        change_nodes(c, which, n); /* for its own error */
    } else {
        change_nodes(c, which, n / 2);
        change_nodes(c, which + n / 2, n - n / 2);
    }
}

static void note_now(struct ctld_target *t, const node_info_t *node)
{
    t->there = node;
    t->now = node ? ctld_fingerprint(node) : 0;
}

static void note_print(struct ctld_target *t, const struct ctld_print *print)
{
    t->there = print;
    t->now = print ? print->fingerprint : 0;
}

static int look_at_one(struct ctld_target *t, struct err *err)
{
    _cleanup_(mem_freep) char *what = NULL;
    node_info_msg_t *msg = NULL;

    note_now(t, NULL);
    if (slurm_load_node_single(&msg, t->name, SHOW_ALL)) {
        if (errno == ESLURM_INVALID_NODE_NAME)
            return 0;
        what = mem_printf("cannot read node %s", t->name);
        return ctld_error(errno, what, err);
    }
    for (uint32_t i = 0; msg && i < msg->record_count; i++) {
        const node_info_t *node = &msg->node_array[i];

        if (node->name && strcmp(node->name, t->name) == 0)
            note_now(t, node);
    }
    slurm_free_node_info_msg(msg);
    return 0;
}

/* How the targets are now. */
static int look(const struct ctld_batch *b, struct ctld_source *s, struct err *err)
{
    bool singly = b->n_outcomes <= SINGLES_MAX;
    int r = singly ? 0 : ctld_source_refresh(s, err);

    for (size_t i = 0; i < b->n && r == 0; i++) {
        for (size_t k = 0; k < b->actions[i].n && r == 0; k++) {
            struct ctld_target *t = &b->targets[i][k];

            if (!singly) {
                note_print(t, ctld_prints_find(&s->prints, t->name));
                continue;
            }
            r = look_at_one(t, err);
            /* what was read is old, and slurmctld may go on to say 'no change' to it */
            if (!t->there || t->now != t->fingerprint)
                s->nodes_full = true;
        }
    }
    return r;
}

/* The nodes that still are what they were when they were decided on. */
static size_t choose(const struct change *c, const struct ctld_target *targets,
                     size_t *which)
{
    size_t n = 0;

    for (size_t i = 0; i < c->action->n; i++) {
        const struct ctld_target *t = &targets[i];
        struct err err;

        if (strcasecmp(t->name, "all") == 0) {
            settle(c, i, -EINVAL, "Slurm takes a node name 'all' for all nodes");
        } else if (!t->there && c->action->verb == VERB_DELETE) {
            settle(c, i, 0, NULL);
        } else if (!t->there || !t->known) {
            (void)err_set(&err, 0, "slurmctld knows no node %s", t->name);
            settle(c, i, -ENOENT, err.text);
        } else if (t->now != t->fingerprint) {
            (void)err_set(&err, 0, "node %s was changed in Slurm in the meantime",
                          t->name);
            settle(c, i, -ESTALE, err.text);
        } else {
            which[n++] = i;
        }
    }
    return n;
}

static void do_action(struct change *c, const struct ctld_target *targets)
{
    const struct action *a = c->action;
    _cleanup_(mem_freep) size_t *which = mem_calloc(a->n, sizeof(*which));
    _cleanup_(mem_freep) char *extra = NULL;
    size_t n = choose(c, targets, which);

    /* else our text would stand on a node that works */
    c->reason = a->verb == VERB_RESUME ? REASON_BLANK : a->reason;
    if (a->write_extra)
        extra = ledger_render(&a->ledger, a->extra_other);
    c->extra = extra;
    if (!asks_for_something(c))
        settle_all(c, which, n, 0, NULL);
    else
        change_nodes(c, which, n);
}

void ctld_batch_run(struct ctld_batch *b, struct ctld_source *s)
{
    struct ctld_outcome *outcomes = b->outcomes;
    struct err err = {0};
    int r;

    if (clock_mono_ms() >= b->valid_until_ms)
        r = err_set(&err, -ECANCELED, "no longer the leader when its turn came");
    else
        r = look(b, s, &err);
    for (size_t i = 0; i < b->n; i++) {
        struct change c = {
            .batch = b, .source = s, .action = &b->actions[i], .outcomes = outcomes};

        outcomes += c.action->n;
        if (r == 0) {
            do_action(&c, b->targets[i]);
            continue;
        }
        for (size_t k = 0; k < c.action->n; k++)
            settle(&c, k, r, err.text);
    }
}
