// SPDX-License-Identifier: GPL-2.0-or-later
/* tidegate-node greet: a program of its own, since munged may hang while the agent may not. */
#include "app/tidegate-node.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sysexits.h>
#include <unistd.h>

#include "base/buf.h"
#include "io/cred.h"

/* The uid that alone can read the credential: the bridge's. */
static int read_uid(uid_t *ret, struct err *err)
{
    const char *text = getenv("TIDEGATE_BRIDGE_UID");
    char *end = NULL;
    unsigned long n = text && *text >= '0' && *text <= '9' ? strtoul(text, &end, 10) : 0;

    if (!end || *end || n >= UINT32_MAX)
        return err_set(err, -EINVAL, "TIDEGATE_BRIDGE_UID is \"%s\", expected a number",
                       text ? text : "");
    *ret = (uid_t)n;
    return 0;
}

static int read_payload(struct buf *to, struct err *err)
{
    char part[CRED_PAYLOAD_MAX];
    ssize_t n;
    int r = 0;

    while (r == 0 && (n = read(STDIN_FILENO, part, sizeof(part))) > 0)
        r = buf_add(to, part, (size_t)n);
    if (r < 0)
        return err_set(err, r, "the payload on stdin has more than %d bytes",
                       CRED_PAYLOAD_MAX);
    return n < 0 ? err_set(err, -errno, "stdin: %s", strerror(errno)) : 0;
}

int verb_greet(int argc, char **argv)
{
    _cleanup_(buf_free) struct buf payload = BUF_INIT(CRED_PAYLOAD_MAX);
    _cleanup_(buf_free) struct buf credential = BUF_INIT((size_t)4 * CRED_PAYLOAD_MAX);
    struct err err;
    uid_t reader = 0;
    int r = read_uid(&reader, &err);

    (void)argc;
    (void)argv;
    if (r < 0) {
        (void)fprintf(stderr, "%s\n", err.text);
        return EX_CONFIG;
    }
    r = read_payload(&payload, &err);
    if (r == 0)
        r = cred_encode(NULL, reader, payload.data, payload.len, &credential, &err);
    if (r < 0) {
        (void)fprintf(stderr, "%s\n", err.text);
        return EX_UNAVAILABLE;
    }
    return puts(buf_str(&credential)) < 0 || fflush(stdout) != 0 ? EX_IOERR : EX_OK;
}
