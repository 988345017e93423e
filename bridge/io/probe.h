/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Does slurmd answer? TCP connects to the suspects' slurmd port, once a second each, at most 256 at a
 * time. Connected: YES. Refused, unreachable or no answer in 2 s, three times in a row: NO. Anything that is our own lack
 * (no descriptor, no route of ours): UNKNOWN, which is never taken for NO.
 */
#ifndef TG_IO_PROBE_H
#define TG_IO_PROBE_H

#include <systemd/sd-event.h>

#include "core/decide.h"

struct probe;

int probe_new(sd_event *event, void (*on_change)(void *userdata), void *userdata,
              struct probe **ret, struct err *err) _must_use_;
void probe_free(struct probe *p);
TG_DEFINE_FREEP(struct probe, probe_free);

struct probe_target {
    const char *name;
    const char
        *addr; /* IPv4 or IPv6 in numbers; a name is not looked up (no DNS): UNKNOWN */
    uint16_t port;
};

/* The suspects from now on; what was learnt of those that stay (same name, addr, port) is kept. */
void probe_set_targets(struct probe *p, const struct probe_target *targets, size_t n);
/* TRI_UNKNOWN for who is no target. */
struct probe_fact probe_get(const struct probe *p, const char *name);

#endif
