// SPDX-License-Identifier: GPL-2.0-or-later
#include "io/local.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"

/*
 * A question is "1 prolog JOB UID" or "1 release CHECK", an answer "1 yes" or "1 no SENTENCE"; 1 is the version. Both ends
 * are one program, but an old one may still be asked by a new one while an image is changed.
 */
#define PACKET_MAX      512
#define CONNECTIONS_MAX 256 /* prologs at once; the next ones wait in the backlog */
#define BACKLOG         128

static const char *const names[] = {
    [LOCAL_PROLOG] = "prolog",
    [LOCAL_EPILOG] = "epilog",
};

struct asker {
    struct local *local;
    struct asker *next;
    uint64_t id;
    int fd;
    bool asked;
    sd_event_source *io;
};

struct local {
    sd_event *event;
    int fd;
    char *path;
    sd_event_source *io;
    local_cb cb;
    void *userdata;
    struct asker *first;
    size_t n;
    uint64_t last_id;
};

/* ---- the agent ----------------------------------------------------------------------- */

static void asker_free(struct asker *a)
{
    struct local *l = a->local;
    struct asker **at = &l->first;

    while (*at != a)
        at = &(*at)->next;
    *at = a->next;
    l->n--;
    (void)sd_event_source_set_enabled(l->io, SD_EVENT_ON);
    (void)sd_event_source_disable_unref(a->io);
    (void)close(a->fd);
    free(a);
}

static bool parse_release(const char *text, struct local_question *ret)
{
    static const char start[] = "1 release ";
    const char *name = text + sizeof(start) - 1;

    if (strncmp(text, start, sizeof(start) - 1) != 0 || !*name ||
        strlen(name) > CHECKCONF_NAME_MAX ||
        strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789-") != strlen(name))
        return false;
    ret->what = LOCAL_RELEASE;
    (void)snprintf(ret->check, sizeof(ret->check), "%.*s", CHECKCONF_NAME_MAX, name);
    return true;
}

static bool parse_question(const char *text, struct local_question *ret)
{
    char what[16];
    int end = 0;

    *ret = (struct local_question){.what = LOCAL_PROLOG};
    if (parse_release(text, ret))
        return true;
    if (strchr(text, '-') ||
        sscanf(text, "1 %15[a-z] %u %u%n", what, &ret->job, &ret->uid, &end) != 3 ||
        text[end])
        return false;
    for (size_t i = 1; i < TG_LEN(names); i++) {
        if (strcmp(what, names[i]) == 0) {
            ret->what = (enum local_what)i;
            return true;
        }
    }
    return false;
}

static int on_asker(sd_event_source *s, int fd, uint32_t revents, void *userdata)
{
    struct asker *a = userdata;
    struct local_question q;
    char text[PACKET_MAX + 1];
    ssize_t n = recv(fd, text, PACKET_MAX, MSG_DONTWAIT | MSG_TRUNC);

    (void)s;
    (void)revents;
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    text[n > 0 && n <= PACKET_MAX ? n : 0] = '\0';
    if (a->asked || !parse_question(text, &q)) {
        /* It has gone, or speaks nothing that we know. */
        asker_free(a);
        return 0;
    }
    a->asked = true;
    a->local->cb(a->id, &q, a->local->userdata); /* `a` may be gone now */
    return 0;
}

static void add_asker(struct local *l, int fd)
{
    struct asker *a = mem_zalloc(sizeof(*a));
    int r;

    *a = (struct asker){.local = l, .next = l->first, .id = ++l->last_id, .fd = fd};
    l->first = a;
    l->n++;
    r = sd_event_add_io(l->event, &a->io, fd, EPOLLIN, on_asker, a);
    if (r < 0) {
        log_error("who asks cannot be heard", LOG_STR("error", strerror(-r)));
        asker_free(a);
    } else if (l->n == CONNECTIONS_MAX) {
        (void)sd_event_source_set_enabled(l->io, SD_EVENT_OFF);
    }
}

static int on_connection(sd_event_source *s, int fd, uint32_t revents, void *userdata)
{
    struct local *l = userdata;
    struct ucred who;
    socklen_t len = sizeof(who);
    int client = accept4(fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

    (void)s;
    (void)revents;
    if (client < 0)
        return 0; /* gone again */
    if (getsockopt(client, SOL_SOCKET, SO_PEERCRED, &who, &len) < 0 ||
        who.uid != geteuid()) {
        (void)close(client);
        return 0;
    }
    add_asker(l, client);
    return 0;
}

void local_answer(struct local *l, uint64_t id, bool yes, const char *text)
{
    char packet[PACKET_MAX];
    int n = snprintf(packet, sizeof(packet), yes ? "1 yes" : "1 no %.*s",
                     LOCAL_TEXT_MAX - 1, text ? text : "");

    for (struct asker *a = l->first; a; a = a->next) {
        if (a->id != id)
            continue;
        /* An asker that is not there any more has lost interest. */
        (void)send(a->fd, packet, (size_t)n, MSG_DONTWAIT | MSG_NOSIGNAL);
        asker_free(a);
        return;
    }
}

static int address_of(const char *path, struct sockaddr_un *ret, struct err *err)
{
    *ret = (struct sockaddr_un){.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof(ret->sun_path))
        return err_set(err, -ENAMETOOLONG,
                       "%s: %zu bytes, a socket's name has less than %zu", path,
                       strlen(path), sizeof(ret->sun_path));
    (void)snprintf(ret->sun_path, sizeof(ret->sun_path), "%s", path);
    return 0;
}

/* It holds the socket; others may not even see it. */
static void make_directory(const char *path)
{
    const char *slash = strrchr(path, '/');
    _cleanup_(mem_freep) char *directory =
        mem_strndup(path, slash ? (size_t)(slash - path) : 0);

    if (*directory)
        (void)mkdir(directory, 0700); /* bind() says what is wrong */
}

/* A descriptor, or a negative errno. */
static int open_socket(const char *path, struct err *err)
{
    struct sockaddr_un a;
    mode_t old;
    int fd, r = address_of(path, &a, err);

    if (r < 0)
        return r;
    make_directory(path);
    (void)unlink(path);
    fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return err_set(err, -errno, "%s: no socket: %s", path, strerror(errno));
    old = umask(0177);
    r = bind(fd, (struct sockaddr *)&a, sizeof(a)) < 0 ? -errno : 0;
    (void)umask(old);
    if (r == 0 && listen(fd, BACKLOG) < 0)
        r = -errno;
    if (r == 0)
        return fd;
    (void)close(fd);
    return err_set(err, r, "%s: cannot listen there: %s", path, strerror(-r));
}

int local_new(sd_event *event, const char *path, local_cb cb, void *userdata,
              struct local **ret, struct err *err)
{
    _cleanup_(local_freep) struct local *l = mem_zalloc(sizeof(*l));
    int r;

    *l = (struct local){.event = event,
                        .fd = -1,
                        .path = mem_strdup(path),
                        .cb = cb,
                        .userdata = userdata};
    l->fd = open_socket(path, err);
    if (l->fd < 0)
        return l->fd;
    r = sd_event_add_io(l->event, &l->io, l->fd, EPOLLIN, on_connection, l);
    if (r < 0)
        return err_set(err, r, "%s: cannot be watched: %s", path, strerror(-r));
    *ret = l;
    l = NULL;
    return 0;
}

void local_free(struct local *l)
{
    if (!l)
        return;
    while (l->first)
        asker_free(l->first);
    (void)sd_event_source_disable_unref(l->io);
    if (l->fd >= 0) {
        (void)unlink(l->path);
        (void)close(l->fd);
    }
    free(l->path);
    free(l);
}

/* ---- who asks ------------------------------------------------------------------------ */

static int wait_for(int fd, short events, int64_t until)
{
    struct pollfd p = {.fd = fd, .events = events};
    int64_t left;
    int r;

    do {
        left = until - clock_mono_ms();
        r = poll(&p, 1, left > 0 ? (int)left : 0);
    } while (r < 0 && errno == EINTR);
    return r < 0 ? -errno : r == 0 ? -ETIMEDOUT : 0;
}

/* A full backlog is EAGAIN, for which poll() does not wait: try again until the deadline. */
static int reach(int fd, const struct sockaddr_un *a, int64_t until)
{
    while (connect(fd, (const struct sockaddr *)a, sizeof(*a)) < 0) {
        if (errno != EAGAIN && errno != EINTR)
            return -errno;
        if (clock_mono_ms() >= until)
            return -ETIMEDOUT;
        (void)usleep(20000);
    }
    return 0;
}

static int exchange(int fd, const struct sockaddr_un *a, const char *question,
                    int64_t until, char *answer)
{
    ssize_t n;
    int r = reach(fd, a, until);

    if (r < 0)
        return r;
    if (send(fd, question, strlen(question), MSG_NOSIGNAL) < 0)
        return errno == EPIPE ? -ECONNRESET : -errno;
    r = wait_for(fd, POLLIN, until);
    if (r < 0)
        return r;
    n = recv(fd, answer, PACKET_MAX, 0);
    if (n <= 0)
        return n < 0 ? -errno : -ECONNRESET;
    answer[n] = '\0';
    return 0;
}

static int parse_answer(const char *text, struct local_reply *ret)
{
    *ret = (struct local_reply){0};
    if (strcmp(text, "1 yes") == 0) {
        ret->yes = true;
        return 0;
    }
    if (strncmp(text, "1 no ", 5) != 0)
        return -EBADMSG;
    for (const char *p = text; *p; p++) {
        if (*p < ' ' || *p > '~')
            return -EBADMSG;
    }
    (void)snprintf(ret->text, sizeof(ret->text), "%.*s", LOCAL_TEXT_MAX - 1, text + 5);
    return 0;
}

int local_ask(const char *path, const struct local_question *question, int64_t timeout_ms,
              struct local_reply *ret, struct err *err)
{
    char text[64], answer[PACKET_MAX + 1];
    struct sockaddr_un a;
    int fd, r = address_of(path, &a, err);

    if (r < 0)
        return r;
    if (question->what == LOCAL_RELEASE)
        (void)snprintf(text, sizeof(text), "1 release %s", question->check);
    else
        (void)snprintf(text, sizeof(text), "1 %s %u %u", names[question->what],
                       question->job, question->uid);
    fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return err_set(err, -errno, "%s: no socket: %s", path, strerror(errno));
    r = exchange(fd, &a, text, clock_mono_ms() + timeout_ms, answer);
    (void)close(fd);
    if (r == 0)
        r = parse_answer(answer, ret);
    if (r < 0)
        return err_set(err, r, "the agent at %s: %s", path, strerror(-r));
    return 0;
}
