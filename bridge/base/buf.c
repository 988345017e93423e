// SPDX-License-Identifier: GPL-2.0-or-later
#include "base/buf.h"

#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void buf_free(struct buf *b)
{
    free(b->data);
    *b = BUF_INIT(b->cap);
}

void buf_clear(struct buf *b)
{
    b->len = 0;
    if (b->data)
        b->data[0] = '\0';
}

static int reserve(struct buf *b, size_t n)
{
    size_t want;

    if (n > b->cap || b->len > b->cap - n)
        return -EMSGSIZE;
    want = b->len + n + 1;
    if (want > b->size) {
        size_t size = b->size ? b->size : 256;

        while (size < want)
            size *= 2;
        b->data = mem_resize(b->data, size, 1);
        b->size = size;
    }
    return 0;
}

int buf_add(struct buf *b, const void *data, size_t n)
{
    int r = reserve(b, n);

    if (r < 0)
        return r;
    if (n)
        memcpy(b->data + b->len, data, n);
    b->len += n;
    b->data[b->len] = '\0';
    return 0;
}

int buf_puts(struct buf *b, const char *s)
{
    return buf_add(b, s, strlen(s));
}

int buf_printf(struct buf *b, const char *fmt, ...)
{
    va_list args;
    int n, r;

    va_start(args, fmt);
    n = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    if (n < 0)
        return -EINVAL;
    r = reserve(b, (size_t)n);
    if (r < 0)
        return r;
    va_start(args, fmt);
    (void)vsnprintf(b->data + b->len, (size_t)n + 1, fmt, args);
    va_end(args);
    b->len += (size_t)n;
    return 0;
}

void buf_drop(struct buf *b, size_t n)
{
    assert(n <= b->len);
    if (!n)
        return;
    memmove(b->data, b->data + n, b->len - n + 1);
    b->len -= n;
}

const char *buf_str(const struct buf *b)
{
    return b->data ? b->data : "";
}
