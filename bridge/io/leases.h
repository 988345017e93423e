/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Does a node's kubelet renew its Lease in kube-node-lease? It does so every 10 s, and Kubernetes calls
 * a node NotReady only after 40 s or more without. Looked up for suspects only, 16 at a time.
 *
 * YES: renewed within stale_ms. NO: not. UNKNOWN: the look-up has failed, or there is no Lease. The
 * clock of this machine plays no part: it goes by the API server's clock on both ends (Date of the
 * answer, and the time at which it wrote the renewal down), and by whether the Lease was seen to change
 * on our monotonic clock.
 */
#ifndef TG_IO_LEASES_H
#define TG_IO_LEASES_H

#include "core/decide.h"
#include "io/kube.h"

struct leases_config {
    int64_t stale_ms;                  /* 0: KUBELET_STALE_MS */
    int64_t period_ms;                 /* between two looks at one Lease; 0: 2000 */
    int64_t timeout_ms;                /* of one look; 0: 3000 */
    void (*on_change)(void *userdata); /* of an answer of leases_get() */
    void *userdata;
};

struct leases;

int leases_new(struct kube *k, sd_event *event, const struct leases_config *config,
               struct leases **ret, struct err *err) _must_use_;
void leases_free(struct leases *l); /* before the kube */
TG_DEFINE_FREEP(struct leases, leases_free);

/* The suspects from now on; what was learnt of those that stay is kept. Names are copied. */
void leases_set_suspects(struct leases *l, const char *const *names, size_t n);
/* TRI_UNKNOWN for who is no suspect. */
struct lease_fact leases_get(const struct leases *l, const char *name);

#endif
