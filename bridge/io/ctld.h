/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * slurmctld by libslurm, on one worker thread (libslurm blocks, about 9 s when the controller is
 * away, and its errno is per thread). Slurm owns the prefix slurm_, hence the name. Callbacks run on
 * the loop's thread, in the order of the calls.
 */
#ifndef TG_IO_CTLD_H
#define TG_IO_CTLD_H

#include <stddef.h>
#include <stdint.h>
#include <systemd/sd-event.h>

#include "core/model.h"

struct ctld;

/* Checks first that slurm.conf (SLURM_CONF or /etc/slurm/slurm.conf) can be read: libslurm's own
 * slurm_init() ends the process when it cannot. */
int ctld_new(sd_event *event, struct ctld **ret, struct err *err) _must_use_;
void ctld_free(struct ctld *c); /* waits for the call that is under way */
TG_DEFINE_FREEP(struct ctld, ctld_free);

/*
 * code 0: snapshot is given away to the callback, or NULL when nothing has changed since the last
 * one. code < 0: -EHOSTDOWN slurmctld cannot be reached, -EIO else; the sentence in error.
 */
typedef void (*ctld_load_cb)(int code, struct slurm_snapshot *snapshot, const char *error,
                             void *userdata);
/* At most one load waits: asking again while one is waiting is the same one (false is returned). */
bool ctld_load(struct ctld *c, ctld_load_cb cb, void *userdata);

/* How one node of a batch fared. */
struct ctld_outcome {
    const char *name;
    int code;          /* 0 or -Exxx */
    const char *error; /* sentence, NULL when code is 0 */
    size_t action;     /* index into the batch */
};
typedef void (*ctld_apply_cb)(const struct ctld_outcome *outcomes, size_t n, size_t rpcs,
                              void *userdata);
/*
 * Does the actions in order, one ranged RPC each. An RPC that fails for a group is split until the
 * nodes that it fails for stand alone; the others are done. Nothing is sent once CLOCK_BOOTTIME has
 * passed `valid_until_ms` (those get -ECANCELED). The batch is copied.
 */
void ctld_apply(struct ctld *c, const struct action *actions, size_t n,
                int64_t valid_until_ms, ctld_apply_cb cb, void *userdata);

#endif
