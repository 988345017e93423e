// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The first byte chooses mode and step; the rest is the stream. However it is split, the
 * same pieces must come out and the end must be the same.
 */
#include "codec/jsonstream.h"

#include <stdint.h>
#include <string.h>

#include "base/buf.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define CAP 512

static int gather(enum jsonstream_piece kind, const char *text, size_t len,
                  void *userdata, struct err *err)
{
    struct buf *b = userdata;

    (void)err;
    if (strlen(text) != len || len > CAP || text[0] != '{')
        abort();
    return buf_printf(b, "%d%s\n", (int)kind, text);
}

static int feed(enum jsonstream_mode mode, const uint8_t *data, size_t size, size_t step,
                struct buf *b)
{
    _cleanup_(jsonstream_freep) struct jsonstream *s =
        jsonstream_new(mode, CAP, gather, b);
    int r = 0;

    for (size_t at = 0; at < size && r == 0; at += step)
        r = jsonstream_feed(s, data + at, size - at < step ? size - at : step, NULL);
    return r < 0 ? r : jsonstream_finish(s, NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct buf whole = BUF_INIT(1 << 20), split = BUF_INIT(1 << 20);
    enum jsonstream_mode mode;
    int a, b;

    if (size < 2 || size > 1 << 16)
        return 0;
    mode = data[0] & 1 ? JSONSTREAM_LIST : JSONSTREAM_OBJECTS;
    a = feed(mode, data + 1, size - 1, size, &whole);
    b = feed(mode, data + 1, size - 1, 1 + (data[0] >> 1) % 16, &split);
    /* A zero byte is refused before anything of the same feed, so only the codes must
     * agree. */
    if ((a == 0) != (b == 0))
        abort();
    if (a == 0 && strcmp(buf_str(&whole), buf_str(&split)) != 0)
        abort();
    buf_free(&whole);
    buf_free(&split);
    return 0;
}
