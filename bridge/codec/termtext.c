// SPDX-License-Identifier: GPL-2.0-or-later
#include "codec/termtext.h"

#include <stdbool.h>
#include <string.h>

#include "base/buf.h"

#define BYTES_MAX (256u << 20) /* six times the largest answer that is read */

/* The code point at s and its length; length 1 and UINT32_MAX for a byte that begins no good one. */
static uint32_t decode(const unsigned char *s, size_t *ret_len)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    size_t len = s[0] < 0x80 ? 1 : s[0] >= 0xf0 ? 4 : s[0] >= 0xe0 ? 3 : 2;
    uint32_t c = s[0];

    *ret_len = 1;
    if (len == 1)
        return c;
    if (s[0] < 0xc2 || s[0] > 0xf4)
        return UINT32_MAX;
    c = s[0] & (0x7fu >> len);
    for (size_t i = 1; i < len; i++) {
        if ((s[i] & 0xc0) != 0x80)
            return UINT32_MAX;
        c = c << 6 | (s[i] & 0x3fu);
    }
    if (c < least[len] || c > 0x10ffff || (c >= 0xd800 && c <= 0xdfff))
        return UINT32_MAX;
    *ret_len = len;
    return c;
}

static bool is_harmless(uint32_t c)
{
    if (c < 0x20 || (c >= 0x7f && c <= 0x9f))
        return false; /* control characters */
    if (c == 0x061c || c == 0x200e || c == 0x200f || (c >= 0x2028 && c <= 0x202e) ||
        (c >= 0x2066 && c <= 0x2069))
        return false; /* direction of writing, line separators */
    return c <= 0x10ffff;
}

static char *finish(struct buf *b, int r)
{
    if (r < 0)
        abort(); /* callers' texts are far below the cap */
    return b->data ? b->data : mem_strdup("");
}

char *termtext_escape(const char *s)
{
    struct buf b = BUF_INIT(BYTES_MAX);
    size_t len;
    int r = 0;

    for (; s && *s && r == 0; s += len) {
        uint32_t c = decode((const unsigned char *)s, &len);

        if (is_harmless(c))
            r = buf_add(&b, s, len);
        else if (c == UINT32_MAX || c < 0x80)
            r = buf_printf(&b, "\\x%02x", (unsigned char)*s);
        else
            r = buf_printf(&b, "\\u%04x", c);
    }
    return finish(&b, r);
}

char *termtext_escape_json(const char *json)
{
    struct buf b = BUF_INIT(BYTES_MAX);
    size_t len;
    int r = 0;

    for (; *json && r == 0; json += len) {
        uint32_t c = decode((const unsigned char *)json, &len);

        if (is_harmless(c) || c == '\n' || c == '\r' || c == '\t')
            r = buf_add(&b, json, len);
        else
            r = buf_printf(&b, "\\u%04x", c == UINT32_MAX ? 0xfffd : c);
    }
    return finish(&b, r);
}

size_t termtext_width(const char *s)
{
    size_t n = 0;

    for (; *s; s++)
        n += ((unsigned char)*s & 0xc0) != 0x80;
    return n;
}

char *termtext_span(int64_t ms)
{
    int64_t s = ms > 0 ? ms / 1000 : 0;

    if (s < 120)
        return mem_printf("%llds", (long long)s);
    if (s < INT64_C(2) * 3600)
        return mem_printf("%lldm", (long long)(s / 60));
    if (s < INT64_C(2) * 86400)
        return mem_printf("%lldh", (long long)(s / 3600));
    return mem_printf("%lldd", (long long)(s / 86400));
}
