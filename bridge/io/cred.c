// SPDX-License-Identifier: GPL-2.0-or-later
#include "io/cred.h"

#include <errno.h>
#include <limits.h>
#include <munge.h>
#include <openssl/crypto.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"

static inline void context_freep(munge_ctx_t *ctx)
{
    munge_ctx_destroy(*ctx); /* NULL is fine */
}

static int context_new(const char *socket, munge_ctx_t *ret, struct err *err)
{
    munge_ctx_t ctx = munge_ctx_create();

    if (!ctx)
        abort(); /* out of memory */
    if (socket && munge_ctx_set(ctx, MUNGE_OPT_SOCKET, socket) != EMUNGE_SUCCESS) {
        munge_ctx_destroy(ctx);
        return err_set(err, -EINVAL, "munge's socket \"%s\" cannot be used", socket);
    }
    *ret = ctx;
    return 0;
}

static const char *says(munge_ctx_t ctx, munge_err_t e)
{
    const char *text = munge_ctx_strerror(ctx);

    return text ? text : munge_strerror(e);
}

int cred_encode(const char *socket, uid_t reader, const void *payload, size_t size,
                struct buf *to, struct err *err)
{
    _cleanup_(context_freep) munge_ctx_t ctx = NULL;
    _cleanup_(mem_freep) char *text = NULL;
    munge_err_t e;
    int r;

    if (size > CRED_PAYLOAD_MAX)
        return err_set(err, -EMSGSIZE,
                       "%zu bytes do not go into a credential, at most %d do", size,
                       CRED_PAYLOAD_MAX);
    r = context_new(socket, &ctx, err);
    if (r < 0)
        return r;
    e = munge_ctx_set(ctx, MUNGE_OPT_CIPHER_TYPE, MUNGE_CIPHER_AES256);
    if (e == EMUNGE_SUCCESS)
        e = munge_ctx_set(ctx, MUNGE_OPT_MAC_TYPE, MUNGE_MAC_SHA256);
    if (e == EMUNGE_SUCCESS)
        e = munge_ctx_set(ctx, MUNGE_OPT_TTL, CRED_TTL_S);
    if (e == EMUNGE_SUCCESS)
        e = munge_ctx_set(ctx, MUNGE_OPT_UID_RESTRICTION, reader);
    if (e == EMUNGE_SUCCESS)
        e = munge_encode(&text, ctx, payload, (int)size);
    if (e != EMUNGE_SUCCESS)
        return err_set(err, -EIO, "munged cannot make a credential: %s", says(ctx, e));
    r = buf_puts(to, text);
    if (r < 0)
        return err_set(err, r, "a credential of %zu bytes is too long", strlen(text));
    return 0;
}

/* What munged refused it for, as our code. */
static int refused(munge_ctx_t ctx, munge_err_t e, struct err *err)
{
    switch (e) {
    case EMUNGE_BAD_CRED:
    case EMUNGE_BAD_VERSION:
    case EMUNGE_BAD_CIPHER:
    case EMUNGE_BAD_MAC:
    case EMUNGE_BAD_ZIP:
    case EMUNGE_BAD_REALM:
    case EMUNGE_CRED_INVALID:
        return err_set(
            err, -EKEYREJECTED,
            "the credential was not made with the munge key of here (%s): give "
            "both sides the same key, and restart their munged",
            says(ctx, e));
    case EMUNGE_CRED_UNAUTHORIZED:
        return err_set(err, -EKEYREJECTED,
                       "the credential is for another reader than uid %u (%s)",
                       (unsigned)geteuid(), says(ctx, e));
    case EMUNGE_CRED_REPLAYED:
        return err_set(err, -EALREADY, "the credential was used before (%s)",
                       says(ctx, e));
    case EMUNGE_CRED_EXPIRED:
    case EMUNGE_CRED_REWOUND:
        return err_set(err, -ETIME,
                       "the credential is not of now (%s): the clocks of both sides must "
                       "agree within %d s",
                       says(ctx, e), CRED_TTL_S);
    default:
        return err_set(err, -EIO, "munged does not decode: %s", says(ctx, e));
    }
}

/* What the payload is worth: nobody else could have read it on its way. */
static int check_kept_secret(munge_ctx_t ctx, struct err *err)
{
    int cipher = MUNGE_CIPHER_NONE;
    uid_t reader = (uid_t)MUNGE_UID_ANY;

    if (munge_ctx_get(ctx, MUNGE_OPT_CIPHER_TYPE, &cipher) != EMUNGE_SUCCESS ||
        cipher == MUNGE_CIPHER_NONE)
        return err_set(err, -EKEYREJECTED, "the credential is not encrypted");
    if (munge_ctx_get(ctx, MUNGE_OPT_UID_RESTRICTION, &reader) != EMUNGE_SUCCESS ||
        reader != geteuid())
        return err_set(err, -EKEYREJECTED,
                       "the credential is not restricted to uid %u as its reader",
                       (unsigned)geteuid());
    return 0;
}

int cred_decode(const char *socket, const char *text, size_t size, struct cred *ret,
                struct err *err)
{
    _cleanup_(context_freep) munge_ctx_t ctx = NULL;
    _cleanup_(mem_freep) char *copy = NULL;
    struct cred c = {0};
    munge_err_t e;
    int n = 0, r = context_new(socket, &ctx, err);

    if (r < 0)
        return r;
    if (size > INT_MAX || memchr(text, '\0', size))
        return err_set(err, -EKEYREJECTED, "the credential is no text of munge");
    copy = mem_strndup(text, size);
    e = munge_decode(copy, ctx, &c.payload, &n, &c.uid, &c.gid);
    r = e == EMUNGE_SUCCESS ? check_kept_secret(ctx, err) : refused(ctx, e, err);
    if (r == 0 && (n < 0 || n > CRED_PAYLOAD_MAX))
        r = err_set(err, -EKEYREJECTED,
                    "the credential carries %d bytes, at most %d are read", n,
                    CRED_PAYLOAD_MAX);
    c.size = n > 0 ? (size_t)n : 0;
    if (r < 0) {
        cred_clear(&c);
        return r;
    }
    *ret = c;
    return 0;
}

void cred_clear(struct cred *c)
{
    if (c->payload)
        OPENSSL_cleanse(c->payload, c->size);
    free(c->payload);
    *c = (struct cred){0};
}
