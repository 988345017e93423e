/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The agent's side of its connection to the bridge (codec/agent_frame.h). It looks for the bridge for
 * ever: each loss, refusal or silence is followed by another try, a little later each time. The address
 * is one in numbers: nothing here needs DNS. Nobody waits: the credential is made by a child.
 */
#ifndef TG_IO_AGENT_LINK_H
#define TG_IO_AGENT_LINK_H

#include <systemd/sd-event.h>

#include "base/err.h"
#include "codec/agent_frame.h"
#include "io/children.h"

struct agent_link;

/* What it points to must live as long as the link. */
struct agent_link_config {
    const char *address; /* "10.96.0.9:6821" or "[fd00::9]:6821" */
    /* Makes the credential: finds a greeting's payload on stdin, prints the credential. Ended by NULL. */
    const char *const *greet;
    const char *node;
    const char *pod_uid;
    const char *boot_id;
    const char *instance;
    /* Fill in what is to be sent now. What a report points to is borrowed until the call returns to the loop. */
    void (*heartbeat)(struct agent_heartbeat *ret, void *userdata);
    void (*report)(struct agent_report *ret, void *userdata);
    /* The bridge asks for something; may not free the link. */
    void (*asked)(const struct agent_asked *asked, void *userdata);
    /* The link stands, is lost, or a heartbeat was answered. */
    void (*on_change)(void *userdata);
    void *userdata;
};

/* Begins to look for the bridge once the loop runs. -EINVAL: no address in numbers, or a name that does
 * not fit into a greeting. */
int agent_link_new(sd_event *event, struct children *children,
                   const struct agent_link_config *config, struct agent_link **ret,
                   struct err *err) _must_use_;
void agent_link_free(struct agent_link *l);
TG_DEFINE_FREEP(struct agent_link, agent_link_free);

/* Both do nothing while there is no link: whatever is sent is asked for when it stands again. */
void agent_link_heartbeat(struct agent_link *l); /* now, not when its turn comes */
void agent_link_report(struct agent_link *l);

bool agent_link_stands(const struct agent_link *l);
/* The bridge has answered the last heartbeat that was sent. */
bool agent_link_answered(const struct agent_link *l);
/* The bridge's clock minus this node's, in ms, known to half the time of a round trip (at most half a
 * second). False: not known. */
bool agent_link_clock_offset(const struct agent_link *l, int64_t *ret_ms);

#endif
