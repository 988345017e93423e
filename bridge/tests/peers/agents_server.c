// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The bridge's side of the agents' links alone, for attack scripts and the load generator:
 *
 *   agents_server LISTEN PERIOD_MS FILE|N [REPORT_MS]
 *
 * FILE: a line "ADDR NODE POD_UID" for each compute pod; N: that many pods, n0 with the uid u0 at
 * 127.1.0.0 and so on (the addresses of agents_load). Every REPORT_MS (100; 0: never) a line of JSON
 * on stdout when it differs from the one before: the counts and, with FILE, each node's facts.
 * SIGTERM ends it.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "base/clock.h"
#include "io/agents.h"
#include "io/timer.h"

#define REPORT_MS  100
#define LINE_MAX_  65536
#define FIRST_ADDR 0x7f010000 /* 127.1.0.0 */

struct server {
    sd_event *event;
    sd_event_source *timer;
    struct agents *agents;
    int64_t report_ms;
    struct kube_pod *pods;
    size_t n;
    bool many; /* the pods' addresses are counted */
    struct buf line, last;
    uint64_t changes;
};

static const struct kube_pod *pod_of(const char *addr, void *userdata)
{
    struct server *s = userdata;
    struct in_addr a;

    if (s->many) {
        size_t i =
            inet_pton(AF_INET, addr, &a) == 1 ? ntohl(a.s_addr) - FIRST_ADDR : s->n;

        return i < s->n ? &s->pods[i] : NULL;
    }
    for (size_t i = 0; i < s->n; i++) {
        if (strcmp(s->pods[i].ip, addr) == 0)
            return &s->pods[i];
    }
    return NULL;
}

static void on_change(void *userdata)
{
    ((struct server *)userdata)->changes++;
}

/* ---- what it prints ------------------------------------------------------------------ */

static int put_node(struct buf *b, const char *before, const char *node,
                    const struct agent_fact *f)
{
    static const char *const tri[] = {"unknown", "no", "yes"};

    if (!f)
        return buf_printf(b, "%s\"%s\":null", before, node);
    return buf_printf(
        b,
        "%s\"%s\":{\"linked\":\"%s\",\"instance\":\"%s\",\"pod_uid\":\"%s\","
        "\"phase\":%d,\"slurmd\":%d,\"steps\":%u,\"cpus\":%u,"
        "\"reported\":%s,\"checks\":%zu}",
        before, node, tri[f->linked], f->instance, f->pod_uid, (int)f->phase,
        (int)f->slurmd, f->steps, f->line.cpus, f->reported ? "true" : "false",
        f->n_checks);
}

static int put_line(struct server *s, struct buf *b)
{
    struct agents_counts c = agents_counts(s->agents);
    int r =
        buf_printf(b,
                   "{\"links\":%llu,\"accepted\":%llu,\"refused\":%llu,\"lost\":%llu,"
                   "\"frames\":%llu,\"bad_frames\":%llu,\"closed_at_once\":%llu,"
                   "\"changes\":%llu,\"nodes\":{",
                   (unsigned long long)c.links, (unsigned long long)c.accepted,
                   (unsigned long long)c.refused, (unsigned long long)c.lost,
                   (unsigned long long)c.frames, (unsigned long long)c.bad_frames,
                   (unsigned long long)c.closed_at_once, (unsigned long long)s->changes);

    for (size_t i = 0; !s->many && i < s->n && r == 0; i++)
        r = put_node(b, i ? "," : "", s->pods[i].node,
                     agents_get(s->agents, s->pods[i].node));
    return r < 0 ? r : buf_puts(b, "}}\n");
}

static int on_timer(sd_event_source *source, uint64_t usec, void *userdata)
{
    struct server *s = userdata;

    (void)usec;
    timer_arm(source, clock_mono_ms() + s->report_ms);
    buf_clear(&s->line);
    if (put_line(s, &s->line) < 0)
        return -EMSGSIZE;
    if (strcmp(buf_str(&s->line), buf_str(&s->last)) != 0) {
        struct buf swap = s->last;

        s->last = s->line;
        s->line = swap;
        (void)fputs(buf_str(&s->last), stdout);
        (void)fflush(stdout);
    }
    return 0;
}

/* ---- who there is -------------------------------------------------------------------- */

static void add_pod(struct server *s, const char *ip, const char *node, const char *uid)
{
    s->pods = mem_resize(s->pods, s->n + 1, sizeof(*s->pods));
    s->pods[s->n++] = (struct kube_pod){
        .ip = mem_strdup(ip), .node = mem_strdup(node), .uid = mem_strdup(uid)};
}

static int read_pods(struct server *s, const char *file)
{
    char ip[64], node[64], uid[64], *end;
    unsigned long n = strtoul(file, &end, 10);
    FILE *f;

    if (!*end) {
        s->many = true;
        s->n = n;
        s->pods = mem_calloc(n, sizeof(*s->pods));
        for (size_t i = 0; i < n; i++)
            s->pods[i] = (struct kube_pod){.node = mem_printf("n%zu", i),
                                           .uid = mem_printf("u%zu", i)};
        return 0;
    }
    f = fopen(file, "re");
    if (!f)
        return -errno;
    while (fscanf(f, "%63s %63s %63s", ip, node, uid) == 3)
        add_pod(s, ip, node, uid);
    (void)fclose(f);
    return 0;
}

static int run(struct server *s, const char *listen, uint32_t period_ms, struct err *err)
{
    struct agents_config config = {
        .listen = listen,
        .period_ms = period_ms,
        .max_links = 16384,
        .pod_of = pod_of,
        .on_change = on_change,
        .userdata = s,
    };
    struct rlimit files;
    sigset_t set;
    int r;

    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &files);
    }
    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGTERM);
    (void)sigprocmask(SIG_BLOCK, &set, NULL);
    r = sd_event_new(&s->event);
    if (r >= 0)
        r = sd_event_add_signal(s->event, NULL, SIGTERM, NULL, NULL);
    if (r < 0)
        return err_set(err, r, "cannot make an event loop: %s", strerror(-r));
    r = agents_new(s->event, &config, &s->agents, err);
    if (r < 0)
        return r;
    agents_set_leader(s->agents, true);
    r = timer_new(s->event, on_timer, s, &s->timer, err);
    if (r < 0)
        return r;
    if (s->report_ms)
        timer_arm(s->timer, 0);
    return sd_event_loop(s->event);
}

int main(int argc, char **argv)
{
    struct server s = {.line = BUF_INIT(LINE_MAX_), .last = BUF_INIT(LINE_MAX_)};
    struct err err = {""};
    int r;

    if (argc < 4) {
        (void)fprintf(stderr,
                      "usage: agents_server LISTEN PERIOD_MS FILE|N [REPORT_MS]\n");
        return 64;
    }
    s.report_ms = argc > 4 ? atoi(argv[4]) : REPORT_MS;
    r = read_pods(&s, argv[3]);
    if (r < 0) {
        (void)fprintf(stderr, "agents_server: %s: %s\n", argv[3], strerror(-r));
        return 66;
    }
    r = run(&s, argv[1], (uint32_t)atoi(argv[2]), &err);
    agents_free(s.agents);
    sd_event_source_disable_unref(s.timer);
    sd_event_unref(s.event);
    for (size_t i = 0; i < s.n; i++)
        kube_pod_clear(&s.pods[i]);
    free(s.pods);
    buf_free(&s.line);
    buf_free(&s.last);
    if (r < 0)
        (void)fprintf(stderr, "agents_server: %s\n", err.text);
    return r < 0 ? 70 : 0;
}
