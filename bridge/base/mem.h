/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Memory: one owner, freed by attribute. Small allocations that fail abort the process, since every
 * part can be restarted at any moment; what outside bytes can size goes through a capped `buf`.
 */
#ifndef TG_BASE_MEM_H
#define TG_BASE_MEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>

#include "base/err.h"

#define _cleanup_(f) __attribute__((cleanup(f)))
#define TG_LEN(a)    (sizeof(a) / sizeof((a)[0]))

/* Defines x_freep() for use with _cleanup_(x_freep). */
#define TG_DEFINE_FREEP(type, fn)                                                        \
    static inline void fn##p(type **p)                                                   \
    {                                                                                    \
        fn(*p);                                                                          \
        *p = NULL;                                                                       \
    }                                                                                    \
    static inline void fn##p(type **p) /* takes the semicolon */

void *mem_zalloc(size_t size) __attribute__((malloc, returns_nonnull));
void *mem_calloc(size_t n, size_t size) __attribute__((malloc, returns_nonnull));
/* Grows or shrinks to n elements; the product is checked. */
void *mem_resize(void *p, size_t n, size_t size) __attribute__((returns_nonnull));
char *mem_strdup(const char *s) __attribute__((malloc)); /* NULL gives NULL */
char *mem_strndup(const char *s, size_t n) __attribute__((malloc, returns_nonnull));
char *mem_printf(const char *fmt, ...) _printf_(1, 2)
    __attribute__((malloc, returns_nonnull));

/* Frees the string in *p and puts a copy of s (or NULL) there. */
void mem_set(char **p, const char *s);

/* The same text, or both NULL. */
bool mem_same_str(const char *a, const char *b);

static inline void mem_freep(void *p)
{
    free(*(void **)p);
    *(void **)p = NULL;
}

#endif
