// SPDX-License-Identifier: GPL-2.0-or-later
#include "base/mem.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static void *checked(void *p)
{
    if (!p)
        abort();
    return p;
}

void *mem_zalloc(size_t size)
{
    return checked(calloc(1, size ? size : 1));
}

void *mem_calloc(size_t n, size_t size)
{
    return checked(calloc(n ? n : 1, size ? size : 1));
}

void *mem_resize(void *p, size_t n, size_t size)
{
    return checked(reallocarray(p, n ? n : 1, size ? size : 1));
}

char *mem_strdup(const char *s)
{
    return s ? checked(strdup(s)) : NULL;
}

char *mem_strndup(const char *s, size_t n)
{
    return checked(strndup(s, n));
}

char *mem_printf(const char *fmt, ...)
{
    va_list args;
    char *s;
    int n;

    va_start(args, fmt);
    n = vasprintf(&s, fmt, args);
    va_end(args);
    if (n < 0)
        abort();
    return s;
}

void mem_set(char **p, const char *s)
{
    char *copy = mem_strdup(s);

    free(*p);
    *p = copy;
}

bool mem_same_str(const char *a, const char *b)
{
    return a == b || (a && b && strcmp(a, b) == 0);
}
