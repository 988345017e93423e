/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The bridge's side of the agents' connections: accepts them, proves who is there, keeps what each
 * said last. Only addresses of compute pods get as far as a CHALLENGE; munge's daemon is asked on a
 * worker thread, so that it can hang without the loop. A lost connection is no verdict: it makes the
 * node a suspect.
 */
#ifndef TG_IO_AGENTS_H
#define TG_IO_AGENTS_H

#include <systemd/sd-event.h>

#include "base/err.h"
#include "codec/agent_frame.h"
#include "core/model.h"

/*
 * Connections that are not accepted yet, in all and from one address. When they are full, one that
 * is silent makes room: the oldest of all, or any of the same address. Each has a descriptor and at
 * most 4 KiB of memory, for at most 10 s.
 */
#define AGENTS_WAITING_MAX         1024
#define AGENTS_WAITING_PER_ADDRESS 4

struct agents;

struct agents_config {
    const char *listen; /* "0.0.0.0:6821" */
    uint32_t period_ms; /* of heartbeats; after three without one the link is lost */
    size_t max_links; /* accepted agents; at most AGENTS_WAITING_MAX more wait for that */
    const char *munge_socket; /* NULL: munged's usual one */
    /* Called for each accept(), so a look-up has to be cheap; the pod is not kept. The compute pod with this address (numbers, as in podIP), or NULL. */
    const struct kube_pod *(*pod_of)(const char *addr, void *userdata);
    /* Something that may matter has changed: link made or lost, phase, checks, line, slurmd, steps from
     * or to none. Never for a mere heartbeat; never from a call of agents_*(). */
    void (*on_change)(void *userdata);
    void *userdata;
};

int agents_new(sd_event *event, const struct agents_config *config, struct agents **ret,
               struct err *err) _must_use_;
void agents_free(struct agents *a);
TG_DEFINE_FREEP(struct agents, agents_free);

/* At first it does not lead. A bridge that does not lead refuses every agent (RETRY) and drops those it has, with all facts. */
void agents_set_leader(struct agents *a, bool leader);
/* NULL: never heard of since this bridge leads; a link counts from its first heartbeat on. Good until
 * the loop runs again. What a lost link has said is kept, and so are line and checks while a new one has not
 * `reported` yet. */
const struct agent_fact *agents_get(const struct agents *a, const char *node);
/* -ENOTCONN when there is no link. */
int agents_ask(struct agents *a, const char *node, enum agent_ask what, const char *arg,
               struct err *err) _must_use_;
/* Forgets nodes that are no more: keep() says which stay. */
void agents_trim(struct agents *a, bool (*keep)(const char *node, void *userdata),
                 void *userdata);

struct agents_counts {
    uint64_t links; /* that stand now */
    uint64_t accepted, refused, lost, frames, bad_frames, closed_at_once;
};
struct agents_counts agents_counts(const struct agents *a);
unsigned agents_port(const struct agents *a); /* the one that was bound */

#endif
