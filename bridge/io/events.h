/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Kubernetes Events on Nodes, sent in the background: a capped queue, a few requests at a
 * time. An Event that cannot be sent is tried a few times, then dropped and counted: it never
 * holds up the rest.
 */
#ifndef TG_IO_EVENTS_H
#define TG_IO_EVENTS_H

#include "io/kube.h"

struct events;

int events_new(struct kube *k, sd_event *event, const char *identity, struct events **ret,
               struct err *err) _must_use_;
void events_free(struct events *e);
TG_DEFINE_FREEP(struct events, events_free);

/* `type`: "Normal" or "Warning"; node_uid may be NULL (the Node is gone). Strings are
 * copied. */
void events_post(struct events *e, const char *node, const char *node_uid,
                 const char *type, const char *reason, const char *message);
uint64_t events_dropped(const struct events *e);

#endif
