// SPDX-License-Identifier: GPL-2.0-or-later
/* tidegated: keeps Kubernetes and Slurm in step. See docs/man/tidegated.8. */
#include "app/tidegated.h"

#include <errno.h>
#include <malloc.h>
#include <signal.h>
#include <string.h>
#include <sysexits.h>

#include "base/log.h"

static int on_signal(sd_event_source *s, const struct signalfd_siginfo *si,
                     void *userdata)
{
    (void)s;
    log_info("stopping", LOG_STR("signal", strsignal((int)si->ssi_signo)));
    bridge_stop(userdata);
    return 0;
}

static int run_bridge(sd_event *event, struct kube *kube, const struct options *o,
                      struct err *err)
{
    _cleanup_(bridge_freep) struct bridge *bridge = NULL;
    _cleanup_(httpd_freep) struct httpd *httpd = NULL;
    int r = bridge_new(event, kube, o, &bridge, err);

    if (r < 0)
        return r;
    r = httpd_new(event, o->listen, answers_serve, bridge, &httpd, err);
    if (r < 0)
        return r;
    r = sd_event_add_signal(event, NULL, SIGTERM, on_signal, bridge);
    if (r >= 0)
        r = sd_event_add_signal(event, NULL, SIGINT, on_signal, bridge);
    if (r < 0)
        return err_set(err, r, "cannot listen to signals: %s", strerror(-r));
    log_info("started", LOG_STR("version", TIDEGATE_VERSION),
             LOG_STR("identity", o->identity), LOG_STR("namespace", o->namespace),
             LOG_NUM("port", httpd_port(httpd)));
    r = sd_event_loop(event);
    if (r < 0)
        return err_set(err, r, "event loop: %s", strerror(-r));
    log_info("stopped");
    return 0;
}

static int run(const struct options *o, struct err *err)
{
    _cleanup_(sd_event_unrefp) sd_event *event = NULL;
    _cleanup_(kube_freep) struct kube *kube = NULL;
    struct kube_config config = {
        .server = o->kube_server,
        .ca_file = o->kube_ca,
        .token_file = o->kube_token,
        .cert_file = o->kube_cert,
        .key_file = o->kube_key,
    };
    int r = sd_event_default(&event);

    if (r < 0)
        return err_set(err, r, "cannot make an event loop: %s", strerror(-r));
    r = kube_new(event, &config, &kube, err);
    if (r < 0)
        return r;
    if (o->apply)
        return apply_file(event, kube, o->apply, err);
    return run_bridge(event, kube, o, err);
}

/* Blocked before any thread starts, so that only the event loop sees them. */
static void block_signals(void)
{
    sigset_t set;

    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGTERM);
    (void)sigaddset(&set, SIGINT);
    (void)sigprocmask(SIG_BLOCK, &set, NULL);
    (void)signal(SIGPIPE, SIG_IGN);
}

/* What is read from slurmctld is large, and given back at once: it must not grow the heap of each
 * thread. Fixed limits keep glibc from raising them with the first large block. */
static void keep_heap_small(void)
{
    (void)mallopt(M_ARENA_MAX, 1);
    (void)mallopt(M_MMAP_THRESHOLD, 64 * 1024);
    (void)mallopt(M_TRIM_THRESHOLD, 128 * 1024);
}

int main(int argc, char **argv)
{
    struct options o = {0};
    struct err err = {0};
    int r;

    keep_heap_small();
    r = options_parse(argc, argv, &o, &err);
    if (r == 0) {
        block_signals();
        r = run(&o, &err);
        if (r < 0)
            log_error("cannot go on", LOG_STR("error", err.text));
        r = r < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
    } else if (r < 0) {
        log_error("bad option", LOG_STR("error", err.text));
        r = EX_USAGE;
    } else {
        r = EXIT_SUCCESS;
    }
    options_clear(&o);
    return r;
}
