// SPDX-License-Identifier: GPL-2.0-or-later
/* The file with the states of the checks. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "io/checks_priv.h"

#define PATIENCE_MS 2000 /* for a write that is under way when the agent ends */

/* One write. It belongs to its thread until `done` can be read. */
struct job {
    char *directory, *path, *temporary;
    char *data;
    size_t size;
    int done; /* eventfd */
    int result;
};

struct keeper {
    char *path;
    sd_event_source *io;
    int done;
    struct job *job;   /* under way; NULL: none */
    struct buf wanted; /* what is to stand there */
    struct buf written;
    bool failed; /* the last time; it is said once */
};

static void job_free(struct job *j)
{
    free(j->directory);
    free(j->path);
    free(j->temporary);
    free(j->data);
    free(j);
}

/* ---- the thread: system calls only, so that a fork at this moment finds no lock taken -------------- */

static int write_all(int fd, const char *data, size_t size)
{
    while (size) {
        ssize_t n = write(fd, data, size);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? -errno : -EIO;
        data += n;
        size -= (size_t)n;
    }
    return fsync(fd) < 0 ? -errno : 0;
}

static int sync_directory(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC), r;

    if (fd < 0)
        return -errno;
    r = fsync(fd) < 0 ? -errno : 0;
    (void)close(fd);
    return r;
}

static int write_file(const struct job *j)
{
    int fd, r;

    (void)mkdir(j->directory, 0700);
    (void)unlink(j->temporary);
    fd = open(j->temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return -errno;
    r = write_all(fd, j->data, j->size);
    if (close(fd) < 0 && r == 0)
        r = -errno;
    if (r == 0 && rename(j->temporary, j->path) < 0)
        r = -errno;
    return r < 0 ? r : sync_directory(j->directory);
}

static void *run_job(void *arg)
{
    struct job *j = arg;
    uint64_t one = 1;
    int done = j->done;

    j->result = write_file(j);
    /* From here on the job is the keeper's again. */
    if (write(done, &one, sizeof(one)) < 0)
        abort();
    return NULL;
}

/* No signal is for this thread: they are taken from the event loop. */
static int start_thread(struct job *j)
{
    pthread_t thread;
    sigset_t all, old;
    int r;

    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &old);
    r = pthread_create(&thread, NULL, run_job, j);
    (void)pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (r == 0)
        (void)pthread_detach(thread);
    return -r;
}

/* ---- the keeper -------------------------------------------------------------------- */

static void failed(struct keeper *k, int r)
{
    if (!k->failed)
        log_warn("the state of the health checks cannot be kept: after a restart of this "
                 "pod they "
                 "start from nothing; see that the directory can be written",
                 LOG_STR("file", k->path), LOG_STR("error", strerror(-r)));
    k->failed = true;
}

static void start(struct keeper *k)
{
    const char *slash = strrchr(k->path, '/');
    struct job *j = mem_zalloc(sizeof(*j));
    int r;

    j->directory =
        slash ? mem_strndup(k->path, (size_t)(slash - k->path)) : mem_strdup(".");
    j->path = mem_strdup(k->path);
    j->temporary = mem_printf("%s.new", k->path);
    j->data = mem_strndup(buf_str(&k->wanted), k->wanted.len);
    j->size = k->wanted.len;
    j->done = k->done;
    r = start_thread(j);
    if (r < 0) {
        failed(k, r);
        job_free(j);
        return;
    }
    k->job = j;
}

static bool same(const struct buf *b, const char *data, size_t size)
{
    return b->len == size && memcmp(buf_str(b), data, size) == 0;
}

/* The job has ended: what it wrote stands there. */
static void finish(struct keeper *k)
{
    struct job *j = k->job;

    k->job = NULL;
    if (j->result < 0) {
        failed(k, j->result);
    } else {
        k->failed = false;
        buf_clear(&k->written);
        if (buf_add(&k->written, j->data, j->size) < 0)
            abort(); /* it came out of a buffer with the same cap */
    }
    /* What did not succeed is tried again with the next change, not at once. */
    if (!same(&k->wanted, j->data, j->size))
        start(k);
    job_free(j);
}

static int on_done(sd_event_source *s, int fd, uint32_t revents, void *userdata)
{
    uint64_t n;

    (void)s;
    (void)revents;
    if (read(fd, &n, sizeof(n)) == (ssize_t)sizeof(n))
        finish(userdata);
    return 0;
}

void keeper_put(struct keeper *k, const char *text, size_t size)
{
    buf_clear(&k->wanted);
    if (buf_add(&k->wanted, text, size) < 0)
        abort(); /* checksave_render() keeps to the cap */
    if (!k->job && !same(&k->written, text, size))
        start(k);
}

int keeper_new(sd_event *event, const char *path, struct keeper **ret, struct err *err)
{
    struct keeper *k;
    int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), r;

    if (fd < 0)
        return err_set(err, -errno, "cannot make an eventfd: %s", strerror(errno));
    k = mem_zalloc(sizeof(*k));
    *k = (struct keeper){.path = mem_strdup(path),
                         .done = fd,
                         .wanted = BUF_INIT(CHECKSAVE_MAX),
                         .written = BUF_INIT(CHECKSAVE_MAX)};
    r = sd_event_add_io(event, &k->io, fd, EPOLLIN, on_done, k);
    if (r < 0) {
        keeper_free(k);
        return err_set(err, r, "cannot watch an eventfd: %s", strerror(-r));
    }
    *ret = k;
    return 0;
}

void keeper_free(struct keeper *k)
{
    struct pollfd fd;

    if (!k)
        return;
    fd = (struct pollfd){.fd = k->done, .events = POLLIN};
    (void)sd_event_source_disable_unref(k->io);
    while (k->job && poll(&fd, 1, PATIENCE_MS) > 0) {
        uint64_t n;

        if (read(k->done, &n, sizeof(n)) == (ssize_t)sizeof(n))
            finish(k);
    }
    if (!k->job) /* else both stay the thread's */
        (void)close(k->done);
    buf_free(&k->wanted);
    buf_free(&k->written);
    free(k->path);
    free(k);
}

/* ---- reading ----------------------------------------------------------------------- */

static int read_trusted(int fd, struct buf *to, struct err *err)
{
    struct stat st;
    char part[4096];
    ssize_t n;

    if (fstat(fd, &st) < 0)
        return err_set(err, -errno, "%s", strerror(errno));
    if (!S_ISREG(st.st_mode) || st.st_uid != geteuid() || (st.st_mode & 022))
        return err_set(
            err, -EPERM,
            "no regular file that only uid %u may write, it has uid %u and mode %o",
            (unsigned)geteuid(), (unsigned)st.st_uid, (unsigned)(st.st_mode & 07777));
    while ((n = read(fd, part, sizeof(part))) > 0) {
        if (buf_add(to, part, (size_t)n) < 0)
            return err_set(err, -EMSGSIZE, "longer than %d bytes", CHECKSAVE_MAX);
    }
    return n < 0 ? err_set(err, -errno, "%s", strerror(errno)) : 0;
}

int keeper_load(const char *path, struct checksave **ret, struct err *err)
{
    struct buf b = BUF_INIT(CHECKSAVE_MAX);
    int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC), r;

    if (fd < 0)
        return err_set(err, -errno, "%s: %s", path, strerror(errno));
    r = read_trusted(fd, &b, err);
    (void)close(fd);
    if (r == 0)
        r = checksave_parse(buf_str(&b), b.len, ret, err);
    buf_free(&b);
    return r < 0 ? err_context(err, r, "%s", path) : 0;
}
