// SPDX-License-Identifier: GPL-2.0-or-later
#include "io/ctld.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "io/ctld_priv.h"

#define DEFAULT_CONF "/etc/slurm/slurm.conf"

/* A call on its way to the worker (todo) and back (done). */
struct call {
    struct call *next;
    enum { CALL_LOAD, CALL_APPLY, CALL_WORK } kind;
    void *userdata;
    /* load */
    ctld_load_cb load_cb;
    int code;
    char *error;
    struct slurm_snapshot *snapshot;
    struct ctld_prints seen;
    /* apply */
    ctld_apply_cb apply_cb;
    struct ctld_batch batch;
    /* work */
    void (*work)(struct ctld_source *s, void *data);
    void (*work_done)(void *data);
    void (*work_drop)(void *data);
};

struct queue {
    struct call *first;
    struct call **end;
};

struct ctld {
    sd_event_source *source;
    int done_fd;
    pthread_t thread;
    bool running;
    /* of the loop's thread: as of the last snapshot that was given away */
    struct ctld_prints seen;
    /* of both, under the lock */
    pthread_mutex_t lock;
    pthread_cond_t wake;
    bool stop;
    struct queue todo;
    struct queue done;
};

static void queue_add(struct queue *q, struct call *c)
{
    c->next = NULL;
    if (!q->first)
        q->end = &q->first;
    *q->end = c;
    q->end = &c->next;
}

static struct call *queue_take(struct queue *q)
{
    struct call *c = q->first;

    if (c)
        q->first = c->next;
    return c;
}

/* ---- what is handed over ----------------------------------------------------------- */

static void batch_clear(struct ctld_batch *b)
{
    for (size_t i = 0; i < b->n_outcomes; i++)
        free((char *)b->outcomes[i].error);
    for (size_t i = 0; i < b->n; i++) {
        for (size_t k = 0; k < b->actions[i].n; k++)
            free(b->targets[i][k].name);
        free(b->targets[i]);
        action_clear(&b->actions[i]);
    }
    free(b->actions);
    free(b->targets);
    free(b->outcomes);
}

static void call_free(struct call *c)
{
    slurm_snapshot_free(c->snapshot);
    ctld_prints_clear(&c->seen);
    free(c->error);
    batch_clear(&c->batch);
    if (c->kind == CALL_WORK)
        c->work_drop(c->userdata);
    free(c);
}

static void copy_action(const struct ctld *ctld, struct ctld_batch *b, size_t index,
                        const struct action *from)
{
    struct action *to = &b->actions[index];

    *to = *from;
    to->reason = mem_strdup(from->reason);
    to->extra_other = mem_strdup(from->extra_other);
    to->features = mem_strdup(from->features);
    to->names = mem_calloc(from->n, sizeof(*to->names));
    b->targets[index] = mem_calloc(from->n, sizeof(**b->targets));
    for (size_t i = 0; i < from->n; i++) {
        struct ctld_target *t = &b->targets[index][i];
        const struct ctld_print *found = ctld_prints_find(&ctld->seen, from->names[i]);

        t->name = mem_strdup(from->names[i]);
        t->known = found;
        t->fingerprint = found ? found->fingerprint : 0;
        to->names[i] = t->name;
        b->outcomes[b->n_outcomes++] =
            (struct ctld_outcome){.name = t->name, .code = -ECANCELED, .action = index};
    }
}

/* ---- the worker's side ------------------------------------------------------------- */

static void do_load(struct call *c, struct ctld_source *s, uint64_t *given)
{
    struct err err;

    c->code = ctld_source_refresh(s, &err);
    if (c->code == 0 && *given != s->changes && !s->nodes)
        c->code = ctld_source_hold(s, &err);
    if (c->code < 0) {
        c->error = mem_strdup(err.text);
    } else if (*given != s->changes) {
        c->snapshot = ctld_source_snapshot(s);
        ctld_prints_copy(&s->prints, &c->seen);
        *given = s->changes;
        ctld_source_release(s);
    }
}

static void do_call(struct call *c, struct ctld_source *source, uint64_t *given)
{
    switch (c->kind) {
    case CALL_LOAD:
        do_load(c, source, given);
        break;
    case CALL_APPLY:
        ctld_batch_run(&c->batch, source);
        break;
    case CALL_WORK:
        c->work(source, c->userdata);
        break;
    }
}

static void *work(void *userdata)
{
    struct ctld *ctld = userdata;
    struct ctld_source source = {0};
    const uint64_t one = 1;
    uint64_t given = 0; /* `changes` at the last snapshot */

    (void)pthread_mutex_lock(&ctld->lock);
    while (!ctld->stop) {
        struct call *c = queue_take(&ctld->todo);

        if (!c) {
            (void)pthread_cond_wait(&ctld->wake, &ctld->lock);
            continue;
        }
        (void)pthread_mutex_unlock(&ctld->lock);
        do_call(c, &source, &given);
        (void)pthread_mutex_lock(&ctld->lock);
        queue_add(&ctld->done, c);
        if (write(ctld->done_fd, &one, sizeof(one)) < 0) {
            /* only a full counter can fail, and then the loop is awake already */
        }
    }
    (void)pthread_mutex_unlock(&ctld->lock);
    ctld_source_clear(&source);
    return NULL;
}

/* ---- the loop's side --------------------------------------------------------------- */

static void give_load(struct ctld *ctld, struct call *c)
{
    struct slurm_snapshot *snapshot = c->snapshot;

    if (snapshot) {
        ctld_prints_clear(&ctld->seen);
        ctld->seen = c->seen;
        c->seen = (struct ctld_prints){0};
        c->snapshot = NULL;
    }
    c->load_cb(c->code, snapshot, c->error, c->userdata);
}

static void give(struct ctld *ctld, struct call *c)
{
    switch (c->kind) {
    case CALL_LOAD:
        give_load(ctld, c);
        break;
    case CALL_APPLY:
        c->apply_cb(c->batch.outcomes, c->batch.n_outcomes, c->batch.rpcs, c->userdata);
        break;
    case CALL_WORK:
        c->work_done(c->userdata);
        break;
    }
}

static int on_done(sd_event_source *source, int fd, uint32_t revents, void *userdata)
{
    struct ctld *ctld = userdata;
    uint64_t count;

    (void)source;
    (void)revents;
    if (read(fd, &count, sizeof(count)) < 0) {
        /* nothing was done yet: the queue is empty, too */
    }
    for (;;) {
        struct call *c;

        (void)pthread_mutex_lock(&ctld->lock);
        c = queue_take(&ctld->done);
        (void)pthread_mutex_unlock(&ctld->lock);
        if (!c)
            return 0;
        give(ctld, c);
        call_free(c);
    }
}

static void submit(struct ctld *ctld, struct call *c)
{
    (void)pthread_mutex_lock(&ctld->lock);
    queue_add(&ctld->todo, c);
    (void)pthread_cond_signal(&ctld->wake);
    (void)pthread_mutex_unlock(&ctld->lock);
}

bool ctld_load(struct ctld *ctld, ctld_load_cb cb, void *userdata)
{
    bool waiting = false;
    struct call *c;

    (void)pthread_mutex_lock(&ctld->lock);
    for (c = ctld->todo.first; c; c = c->next)
        waiting |= c->kind == CALL_LOAD;
    (void)pthread_mutex_unlock(&ctld->lock);
    if (waiting)
        return false;
    c = mem_zalloc(sizeof(*c));
    c->kind = CALL_LOAD;
    c->load_cb = cb;
    c->userdata = userdata;
    submit(ctld, c);
    return true;
}

void ctld_apply(struct ctld *ctld, const struct action *actions, size_t n,
                int64_t valid_until_ms, ctld_apply_cb cb, void *userdata)
{
    struct call *c = mem_zalloc(sizeof(*c));
    size_t names = 0;

    for (size_t i = 0; i < n; i++)
        names += actions[i].n;
    c->kind = CALL_APPLY;
    c->apply_cb = cb;
    c->userdata = userdata;
    c->batch.n = n;
    c->batch.valid_until_ms = valid_until_ms;
    c->batch.actions = mem_calloc(n, sizeof(*c->batch.actions));
    c->batch.targets = mem_calloc(n, sizeof(*c->batch.targets));
    c->batch.outcomes = mem_calloc(names, sizeof(*c->batch.outcomes));
    for (size_t i = 0; i < n; i++)
        copy_action(ctld, &c->batch, i, &actions[i]);
    submit(ctld, c);
}

void ctld_run(struct ctld *ctld, void (*work_fn)(struct ctld_source *s, void *data),
              void (*done)(void *data), void (*drop)(void *data), void *data)
{
    struct call *c = mem_zalloc(sizeof(*c));

    c->kind = CALL_WORK;
    c->work = work_fn;
    c->work_done = done;
    c->work_drop = drop;
    c->userdata = data;
    submit(ctld, c);
}

static int check_conf(struct err *err)
{
    const char *path = getenv("SLURM_CONF");
    int fd;

    if (!path || !*path)
        path = DEFAULT_CONF;
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        int r = -errno;

        return err_set(err, r,
                       "cannot read %s: %s; set SLURM_CONF to the cluster's slurm.conf",
                       path, strerror(-r));
    }
    (void)close(fd);
    return 0;
}

static int start_worker(struct ctld *ctld, struct err *err)
{
    sigset_t all, old;
    int r;

    /* Signals are for the loop's thread. */
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &old);
    r = pthread_create(&ctld->thread, NULL, work, ctld);
    (void)pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (r)
        return err_set(err, -r, "cannot start a thread for Slurm: %s", strerror(r));
    ctld->running = true;
    return 0;
}

int ctld_new(sd_event *event, struct ctld **ret, struct err *err)
{
    _cleanup_(ctld_freep) struct ctld *ctld = NULL;
    int r = check_conf(err);

    if (r < 0)
        return r;
    slurm_init(NULL);
    ctld = mem_zalloc(sizeof(*ctld));
    (void)pthread_mutex_init(&ctld->lock, NULL);
    (void)pthread_cond_init(&ctld->wake, NULL);
    ctld->done_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (ctld->done_fd < 0)
        return err_set(err, -errno, "cannot make an eventfd: %s", strerror(errno));
    r = sd_event_add_io(event, &ctld->source, ctld->done_fd, EPOLLIN, on_done, ctld);
    if (r < 0)
        return err_set(err, r, "cannot watch an eventfd: %s", strerror(-r));
    r = start_worker(ctld, err);
    if (r < 0)
        return r;
    *ret = ctld;
    ctld = NULL;
    return 0;
}

void ctld_free(struct ctld *ctld)
{
    struct call *c;

    if (!ctld)
        return;
    if (ctld->running) {
        (void)pthread_mutex_lock(&ctld->lock);
        ctld->stop = true;
        (void)pthread_cond_signal(&ctld->wake);
        (void)pthread_mutex_unlock(&ctld->lock);
        (void)pthread_join(ctld->thread, NULL);
    }
    while ((c = queue_take(&ctld->todo)) || (c = queue_take(&ctld->done)))
        call_free(c);
    ctld_prints_clear(&ctld->seen);
    (void)sd_event_source_disable_unref(ctld->source);
    if (ctld->done_fd >= 0)
        (void)close(ctld->done_fd);
    (void)pthread_cond_destroy(&ctld->wake);
    (void)pthread_mutex_destroy(&ctld->lock);
    free(ctld);
}
