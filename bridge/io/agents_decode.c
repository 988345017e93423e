// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * munge_decode() on a thread of its own: a munged that hangs holds it for 10 s a call, and must not
 * hold the loop.
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "io/agents_priv.h"

TAILQ_HEAD(jobs, decode_job);

struct decoder {
    char *munge_socket;
    void (*on_done)(struct decode_job *job, void *userdata);
    void *userdata;
    sd_event_source *source;
    int done_fd;
    pthread_t thread;
    bool running;
    /* of both threads, under the lock */
    pthread_mutex_t lock;
    pthread_cond_t wake;
    bool stop;
    bool abandoned; /* the thread frees all when munged has let it go */
    struct decode_job *busy;
    struct jobs todo;
    struct jobs done;
};

static void job_free(struct decode_job *j)
{
    cred_clear(&j->cred);
    free(j->text);
    free(j);
}

static struct decode_job *take(struct jobs *q)
{
    struct decode_job *j = TAILQ_FIRST(q);

    if (j)
        TAILQ_REMOVE(q, j, entry);
    return j;
}

/* What both threads share, once only one of them is left. */
static void free_shared(struct decoder *d)
{
    struct decode_job *j;

    while ((j = take(&d->todo)) || (j = take(&d->done)))
        job_free(j);
    if (d->done_fd >= 0)
        (void)close(d->done_fd);
    (void)pthread_cond_destroy(&d->wake);
    (void)pthread_mutex_destroy(&d->lock);
    free(d->munge_socket);
    free(d);
}

static void *work(void *userdata)
{
    struct decoder *d = userdata;
    const uint64_t one = 1;
    bool abandoned;

    (void)pthread_mutex_lock(&d->lock);
    while (!d->stop) {
        struct decode_job *j = take(&d->todo);

        if (!j) {
            (void)pthread_cond_wait(&d->wake, &d->lock);
            continue;
        }
        d->busy = j;
        (void)pthread_mutex_unlock(&d->lock);
        j->code = cred_decode(d->munge_socket, j->text, j->size, &j->cred, &j->err);
        (void)pthread_mutex_lock(&d->lock);
        d->busy = NULL;
        TAILQ_INSERT_TAIL(&d->done, j, entry);
        if (write(d->done_fd, &one, sizeof(one)) < 0) {
            /* only a full counter can fail, and then the loop is awake already */
        }
    }
    abandoned = d->abandoned;
    (void)pthread_mutex_unlock(&d->lock);
    if (abandoned)
        free_shared(d);
    return NULL;
}

static int on_done(sd_event_source *source, int fd, uint32_t revents, void *userdata)
{
    struct decoder *d = userdata;
    uint64_t count;

    (void)source;
    (void)revents;
    if (read(fd, &count, sizeof(count)) < 0) {
        /* nothing was done yet: the queue is empty, too */
    }
    for (;;) {
        struct decode_job *j;

        (void)pthread_mutex_lock(&d->lock);
        j = take(&d->done);
        (void)pthread_mutex_unlock(&d->lock);
        if (!j)
            return 0;
        if (j->conn)
            d->on_done(j, d->userdata);
        job_free(j);
    }
}

struct decode_job *decoder_submit(struct decoder *d, struct conn *conn, const char *text,
                                  size_t size)
{
    struct decode_job *j = mem_zalloc(sizeof(*j));

    j->conn = conn;
    j->text = mem_strndup(text, size);
    j->size = size;
    (void)pthread_mutex_lock(&d->lock);
    TAILQ_INSERT_TAIL(&d->todo, j, entry);
    (void)pthread_cond_signal(&d->wake);
    (void)pthread_mutex_unlock(&d->lock);
    return j;
}

void decoder_cancel(struct decoder *d, struct decode_job *job)
{
    struct decode_job *j;

    job->conn = NULL;
    (void)pthread_mutex_lock(&d->lock);
    j = TAILQ_FIRST(&d->todo);
    while (j && j != job)
        j = TAILQ_NEXT(j, entry);
    if (j)
        TAILQ_REMOVE(&d->todo, j, entry);
    (void)pthread_mutex_unlock(&d->lock);
    if (j)
        job_free(j); /* else it is at munged's, or done: freed by on_done() */
}

static int start_worker(struct decoder *d, struct err *err)
{
    sigset_t all, old;
    int r;

    /* Signals are for the loop's thread. */
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &old);
    r = pthread_create(&d->thread, NULL, work, d);
    (void)pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (r)
        return err_set(err, -r, "cannot start a thread for munge: %s", strerror(r));
    d->running = true;
    return 0;
}

int decoder_new(sd_event *event, const char *munge_socket,
                void (*on_done_cb)(struct decode_job *job, void *userdata),
                void *userdata, struct decoder **ret, struct err *err)
{
    struct decoder *d = mem_zalloc(sizeof(*d));
    int r;

    d->munge_socket = mem_strdup(munge_socket);
    d->on_done = on_done_cb;
    d->userdata = userdata;
    TAILQ_INIT(&d->todo);
    TAILQ_INIT(&d->done);
    (void)pthread_mutex_init(&d->lock, NULL);
    (void)pthread_cond_init(&d->wake, NULL);
    d->done_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    r = d->done_fd < 0
            ? err_set(err, -errno, "cannot make an eventfd: %s", strerror(errno))
            : 0;
    if (r == 0) {
        r = sd_event_add_io(event, &d->source, d->done_fd, EPOLLIN, on_done, d);
        if (r < 0)
            err_set(err, r, "cannot watch an eventfd: %s", strerror(-r));
    }
    if (r >= 0)
        r = start_worker(d, err);
    if (r < 0) {
        decoder_free(d);
        return r;
    }
    *ret = d;
    return 0;
}

void decoder_free(struct decoder *d)
{
    bool abandoned;

    if (!d)
        return;
    (void)sd_event_source_disable_unref(d->source);
    d->source = NULL;
    if (!d->running) {
        free_shared(d);
        return;
    }
    (void)pthread_mutex_lock(&d->lock);
    d->stop = true;
    abandoned = d->abandoned = d->busy;
    (void)pthread_cond_signal(&d->wake);
    if (abandoned)
        (void)pthread_detach(d->thread);
    (void)pthread_mutex_unlock(&d->lock);
    if (abandoned)
        return;
    (void)pthread_join(d->thread, NULL);
    free_shared(d);
}
