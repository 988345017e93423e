/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Encrypted munge credentials for one reader. Both calls talk to munged and may block as long as it
 * hangs: call them where nobody waits (a child of the agent, the worker thread of the bridge).
 */
#ifndef TG_IO_CRED_H
#define TG_IO_CRED_H

#include <stddef.h>
#include <sys/types.h>

#include "base/buf.h"
#include "base/err.h"

#define CRED_TTL_S       60 /* munged's default is 300 */
#define CRED_PAYLOAD_MAX 4096

/* `socket` NULL: munged's usual one. The text is appended to `to`. */
int cred_encode(const char *socket, uid_t reader, const void *payload, size_t size,
                struct buf *to, struct err *err) _must_use_;

struct cred {
    uid_t uid; /* who had it made, as the munged on that host saw it */
    gid_t gid;
    void *payload;
    size_t size;
};
void cred_clear(struct cred *c); /* wipes the payload, too */

/* -EKEYREJECTED: not made with our munge key, not encrypted, or not for this process's uid alone; -EALREADY: seen before; -ETIME: too
 * old, or the clocks differ; -EIO: munged does not answer. */
int cred_decode(const char *socket, const char *text, size_t size, struct cred *ret,
                struct err *err) _must_use_;

#endif
