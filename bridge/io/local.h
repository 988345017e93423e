/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * How Slurm's prolog and epilog, and a person, ask the agent of their node: a Unix socket (SOCK_SEQPACKET) that only
 * the agent's own uid (root) may use, one question and one answer a connection. The agent answers when it can; who asks
 * waits with a deadline.
 */
#ifndef TG_IO_LOCAL_H
#define TG_IO_LOCAL_H

#include <stdbool.h>
#include <stdint.h>
#include <systemd/sd-event.h>

#include "base/err.h"
#include "base/mem.h"
#include "codec/checkconf.h"

#define RUN_DIRECTORY  "/run/tidegate"
#define LOCAL_SOCKET   RUN_DIRECTORY "/agent.sock"
#define LOCAL_TEXT_MAX 256 /* bytes of an answer's sentence, with the NUL */

enum local_what {
    LOCAL_PROLOG = 1,
    LOCAL_EPILOG = 2,
    LOCAL_RELEASE =
        3, /* a person lets the node go in spite of a check: checks_release() */
};

struct local_question {
    enum local_what what;
    uint32_t job;                       /* SLURM_JOB_ID; 0: not given */
    uint32_t uid;                       /* SLURM_JOB_UID */
    char check[CHECKCONF_NAME_MAX + 1]; /* of RELEASE, instead of the two */
};

struct local;

/* A question has come; answer `id` by local_answer(), at once or later. */
typedef void (*local_cb)(uint64_t id, const struct local_question *question,
                         void *userdata);

/* Makes the directory of `path` (0700) when it is not there, and replaces a socket that was left. */
int local_new(sd_event *event, const char *path, local_cb cb, void *userdata,
              struct local **ret, struct err *err) _must_use_;
void local_free(struct local *l); /* who still waits gets no answer */
TG_DEFINE_FREEP(struct local, local_free);

/* `text`: why not, a sentence in printable ASCII, cut at LOCAL_TEXT_MAX; NULL with yes. Nothing happens when
 * the asker has gone. */
void local_answer(struct local *l, uint64_t id, bool yes, const char *text);

struct local_reply {
    bool yes;
    char text[LOCAL_TEXT_MAX];
};

/*
 * Asks, and waits for the answer. Blocks, and needs no event loop: for the programs that slurmd runs.
 * -ENOENT, -ECONNREFUSED: there is no agent. -ETIMEDOUT, -ECONNRESET, -EBADMSG: there is one, but it
 * has not answered.
 */
int local_ask(const char *path, const struct local_question *question, int64_t timeout_ms,
              struct local_reply *ret, struct err *err) _must_use_;

#endif
