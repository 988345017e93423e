// SPDX-License-Identifier: GPL-2.0-or-later
/* The status of Pool objects. What cannot be written is written by a later round. */
#include <cjson/cJSON.h>
#include <math.h>
#include <string.h>

#include "app/tidegated.h"
#include "base/clock.h"
#include "base/log.h"

#define PATCH_TIMEOUT_MS 5000
/* Status follows jobs, which may come and go by the hundred a second. */
#define PATCH_EVERY_MS 1000

struct pool_count {
    unsigned nodes, ready, drained, down;
    double jobs;
    char *message;
};

/* What was last asked for; one request a pool at a time. */
struct written {
    struct pool_status *owner;
    char *pool_uid;
    char *body;
    int64_t at;
    struct kube_request *request; /* NULL: none is under way */
};

struct pool_status {
    struct kube *kube;
    char *namespace;
    struct written **items;
    size_t n;
};

struct pool_status *pool_status_new(struct kube *kube, const char *namespace)
{
    struct pool_status *s = mem_zalloc(sizeof(*s));

    s->kube = kube;
    s->namespace = mem_strdup(namespace);
    return s;
}

void pool_status_free(struct pool_status *s)
{
    if (!s)
        return;
    for (size_t i = 0; i < s->n; i++) {
        kube_cancel(s->items[i]->request);
        free(s->items[i]->pool_uid);
        free(s->items[i]->body);
        free(s->items[i]);
    }
    free(s->items);
    free(s->namespace);
    free(s);
}

static struct written *written_for(struct pool_status *s, const char *pool_uid)
{
    struct written *w;

    for (size_t i = 0; i < s->n; i++) {
        if (strcmp(s->items[i]->pool_uid, pool_uid) == 0)
            return s->items[i];
    }
    w = mem_zalloc(sizeof(*w));
    w->owner = s;
    w->pool_uid = mem_strdup(pool_uid);
    s->items = mem_resize(s->items, s->n + 1, sizeof(struct written *));
    s->items[s->n++] = w;
    return w;
}

static void on_patched(const struct kube_result *result, void *userdata)
{
    struct written *w = userdata;

    w->request = NULL;
    if (result->code == 0 && result->status < 300)
        return;
    mem_set(&w->body, NULL); /* so that the next round tries again */
    log_warn("status of a pool cannot be written", LOG_STR("error", result->error));
}

static void count_row(struct pool_count *c, const struct node_facts *f,
                      const struct verdict *v)
{
    const struct slurm_node *s = f->slurm;

    c->nodes++;
    if (s) {
        c->jobs += s->job_share;
        c->drained += s->drain;
        c->down += s->base == SLURM_BASE_DOWN;
    }
    c->ready += s && v->holder == HOLDER_NOBODY && !s->not_responding && f->kube &&
                f->kube->ready == TRI_YES;
    if (f->rival && !c->message)
        c->message =
            mem_printf("node %s is selected by the pools %s and %s; Tidegate leaves "
                       "it alone until only one selects it",
                       f->name, f->selected->name, f->rival->name);
}

/* A node of two pools is told of in both, whichever it has in Slurm. */
static bool is_of(const struct node_facts *f, const struct kube_pool *pool)
{
    return f->pool == pool || f->rival == pool || (f->rival && f->selected == pool);
}

static void add_number(cJSON *o, const char *key, double n)
{
    if (!cJSON_AddNumberToObject(o, key, n))
        abort();
}

static char *status_body(const struct kube_pool *p, const struct pool_count *c)
{
    cJSON *o = cJSON_CreateObject();
    cJSON *status = cJSON_AddObjectToObject(o, "status");
    char *text;

    if (!status)
        abort();
    add_number(status, "nodes", c->nodes);
    add_number(status, "ready", c->ready);
    add_number(status, "drained", c->drained);
    add_number(status, "down", c->down);
    add_number(status, "jobs", round(c->jobs));
    add_number(status, "observedGeneration", (double)p->generation);
    if (!cJSON_AddStringToObject(status, "message", c->message ? c->message : ""))
        abort();
    text = cJSON_PrintUnformatted(o);
    cJSON_Delete(o);
    if (!text)
        abort();
    return text;
}

/* Takes the body. */
static void send_status(struct pool_status *s, const struct kube_pool *p,
                        struct written *w, char *body)
{
    _cleanup_(mem_freep) char *ns = kube_escape(s->namespace);
    _cleanup_(mem_freep) char *name = kube_escape(p->name);
    _cleanup_(mem_freep) char *path =
        mem_printf("/apis/tidegate.dev/v1alpha1/namespaces/%s/pools/%s/status", ns, name);
    struct kube_call call = {.method = "PATCH",
                             .path = path,
                             .content_type = "application/merge-patch+json",
                             .body = body,
                             .timeout_ms = PATCH_TIMEOUT_MS,
                             .on_done = on_patched,
                             .userdata = w};
    struct err err = {0};

    free(w->body);
    w->body = body;
    w->at = clock_mono_ms();
    if (kube_start(s->kube, &call, &w->request, &err) < 0) {
        mem_set(&w->body, NULL);
        log_warn("status of a pool cannot be written", LOG_STR("error", err.text));
    }
}

bool pool_status_update(struct pool_status *s, const struct world *w,
                        const struct verdict *verdicts,
                        const struct kube_pool *const *pools, size_t n_pools)
{
    int64_t mono = clock_mono_ms();
    bool settled = true;

    for (size_t p = 0; p < n_pools; p++) {
        struct written *last = written_for(s, pools[p]->uid);
        struct pool_count c = {0};
        char *body;

        for (size_t i = 0; i < w->n; i++) {
            if (is_of(&w->rows[i], pools[p]))
                count_row(&c, &w->rows[i], &verdicts[i]);
        }
        body = status_body(pools[p], &c);
        free(c.message);
        if (!last->request && last->body && strcmp(last->body, body) == 0) {
            free(body);
            continue;
        }
        settled = false;
        if (last->request || mono - last->at < PATCH_EVERY_MS)
            free(body);
        else
            send_status(s, pools[p], last, body);
    }
    return settled;
}
