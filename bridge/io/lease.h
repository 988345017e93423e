/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * One leader by a coordination.k8s.io Lease. The leader renews every `renew_ms`; when it has
 * not managed to for `deadline_ms` it is no longer leader, which is before another may take
 * the lease (`duration_s` after that one last saw it change, by its own clock).
 */
#ifndef TG_IO_LEASE_H
#define TG_IO_LEASE_H

#include "io/kube.h"

struct lease_config {
    const char *namespace;
    const char *name;
    const char
        *identity;  /* the same over a restart of this container, unlike any other's */
    int duration_s; /* 0: 15 */
    int64_t deadline_ms; /* 0: 10000 */
    int64_t renew_ms;    /* 0: 2000 */
    void (*on_change)(bool leader, void *userdata);
    void *userdata;
};

struct lease;

int lease_new(struct kube *k, sd_event *event, const struct lease_config *config,
              struct lease **ret, struct err *err) _must_use_;
void lease_free(struct lease *l);
TG_DEFINE_FREEP(struct lease, lease_free);

/* Also false once the deadline has passed without a timer having run (a paused
 * process). */
bool lease_is_leader(const struct lease *l);
/* CLOCK_BOOTTIME ms until which this process may act; 0: not leader. */
int64_t lease_valid_until(const struct lease *l);
/* Who holds it as last seen, "" when not known. */
const char *lease_holder(const struct lease *l);
/* Gives it up, so that another need not wait, and tries for it no more. on_change comes at
 * once, from inside this call; `done` is called once, later, also on failure (within 4 s). */
void lease_release(struct lease *l, void (*done)(void *userdata), void *userdata);

#endif
