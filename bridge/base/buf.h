/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A byte buffer that cannot be made without a cap: what outside bytes can size lives in one. */
#ifndef TG_BASE_BUF_H
#define TG_BASE_BUF_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "base/mem.h"

struct buf {
    char *
        data; /* always NUL-terminated behind len once something was added; NULL before */
    size_t len;
    size_t size; /* allocated */
    size_t cap;  /* len never passes it */
};

#define BUF_INIT(limit) ((struct buf){.cap = (limit)})

void buf_free(
    struct buf *b); /* the buffer can be used again afterwards, with the same cap */
void buf_clear(struct buf *b); /* forgets the content, keeps the memory */
/* -EMSGSIZE when the cap would be passed; nothing is added then. */
int buf_add(struct buf *b, const void *data, size_t n) _must_use_;
int buf_puts(struct buf *b, const char *s) _must_use_;
int buf_printf(struct buf *b, const char *fmt, ...) _must_use_ _printf_(2, 3);
/* Takes n bytes away at the front. */
void buf_drop(struct buf *b, size_t n);
/* The content as a string ("" when empty), owned by the buffer. */
const char *buf_str(const struct buf *b);

#endif
