// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Any bytes as what a peer of the agents' protocol sends: a frame before there is a key, the same
 * frame with the MAC it would need to have, and a greeting out of a credential. What can be read must
 * come out the same when it is written and read again.
 */
#include <openssl/hmac.h>
#include <stdint.h>
#include <string.h>

#include "codec/agent_frame.h"

static const uint8_t key[AGENT_KEY_SIZE] = "the key of the fuzzer, 32 bytes";

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Written and read again, it is written as the same bytes. */
static void again(const struct agent_frame *f)
{
    struct buf first = BUF_INIT(AGENT_FRAME_MAX), second = BUF_INIT(AGENT_FRAME_MAX);
    bool has_key = f->type != AGENT_CHALLENGE && f->type != AGENT_GREETING;
    struct agent_frame g;
    size_t used;

    if (agent_frame_write(f, key, &first, NULL) < 0 ||
        agent_frame_read((const uint8_t *)first.data, first.len, has_key ? key : NULL, &g,
                         &used, NULL) < 0 ||
        used != first.len || agent_frame_write(&g, key, &second, NULL) < 0 ||
        first.len != second.len || memcmp(first.data, second.data, first.len) != 0)
        abort();
    agent_frame_clear(&g);
    buf_free(&first);
    buf_free(&second);
}

static void frame(const uint8_t *data, size_t size, const uint8_t *with)
{
    struct agent_frame f;
    struct err err;
    size_t used;

    if (agent_frame_read(data, size, with, &f, &used, &err) < 0 || !used)
        return;
    if (used > size)
        abort();
    again(&f);
    agent_frame_clear(&f);
}

/* The reader behind the MAC sees bytes of a peer too, if one that has been let in. */
static void frame_with_mac(const uint8_t *data, size_t size)
{
    unsigned n = AGENT_MAC_SIZE;
    uint8_t *all;

    if (size > AGENT_HEADER_SIZE + AGENT_BODY_MAX)
        return;
    all = mem_calloc(size + AGENT_MAC_SIZE, 1);
    if (size)
        memcpy(all, data, size);
    if (!HMAC(EVP_sha256(), key, AGENT_KEY_SIZE, all, size, all + size, &n))
        abort();
    frame(all, size + AGENT_MAC_SIZE, key);
    free(all);
}

static void greeting(const uint8_t *data, size_t size)
{
    struct agent_greeting g, h;
    struct buf b = BUF_INIT(4096);

    if (agent_greeting_read(data, size, &g, NULL) < 0)
        return;
    if (agent_greeting_write(&g, &b, NULL) < 0 || b.len != size ||
        memcmp(b.data, data, size) != 0 ||
        agent_greeting_read(b.data, b.len, &h, NULL) < 0)
        abort();
    buf_free(&b);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    frame(data, size, NULL);
    frame_with_mac(data, size);
    greeting(data, size);
    return 0;
}
