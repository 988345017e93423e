/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Every sentence that a person may read in a Slurm reason, an Event or an answer of `why`. */
#ifndef TG_CORE_TEXT_H
#define TG_CORE_TEXT_H

#include "core/decide.h"

#define TEXT_PREFIX "tidegate/"

/* What slurmd registers a node of a new record with, and State=DRAIN: ours, so that decide() lets it go
 * once its checks have passed. */
#define TEXT_NEW_NODE                                                                    \
    TEXT_PREFIX "health: new node, the checks of its start have not passed yet"
#define TEXT_REASON_MAX 200 /* bytes of a reason; a longer one is cut at a word */

/* True when a reason is of this bridge's making: tidegate/<class>: <text>, with a class it knows. */
bool text_is_ours(const char *reason);

/* True when it is our reason for that cause. More may stand behind it: that slurmd does not answer, or what
 * slurmctld appended. */
bool text_names(const char *reason, enum cause c);

/* The Slurm reason for a verdict, or for a cause alone (`down`: for DOWN). Printable ASCII, also where an agent's
 * own words are in it. The caller frees. */
char *text_reason_for(const struct node_facts *f, const struct verdict *v);
char *text_reason(const struct node_facts *f, enum cause c, bool down);
/* The one for CAUSE_HEALTH when this check fails. */
char *text_reason_of_check(const struct check_fact *c);

/* One sentence for a person: why the node stands as it does. The caller frees. */
char *text_why(const struct node_facts *f, const struct verdict *v);

/* What will end this state, as a sentence; "" when there is nothing to end. The caller frees. */
char *text_ends(const struct node_facts *f, const struct verdict *v);

/* Event reason (CamelCase, Kubernetes' convention) and message for an action that was done. */
const char *text_event_reason(enum verb v);
/* "Warning" for what somebody should look at, "Normal" for planned work and for good news. */
const char *text_event_type(enum verb v, enum cause c);
/* Behind a RESUME of a node that has to prove itself first. */
#define TEXT_ON_PROBATION                                                                \
    "behind a reservation of Tidegate's: it proves itself before it takes jobs"
/* `detail`: the action's reason; of FEATURES the features. */
char *text_event_message(enum verb v, const char *detail);

#endif
