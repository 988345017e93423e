// SPDX-License-Identifier: GPL-2.0-or-later
#include "base/err.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int err_set(struct err *err, int code, const char *fmt, ...)
{
    va_list args;

    if (!err)
        return code;
    va_start(args, fmt);
    (void)vsnprintf(err->text, sizeof(err->text), fmt, args);
    va_end(args);
    return code;
}

int err_context(struct err *err, int code, const char *fmt, ...)
{
    char old[TG_ERR_TEXT_MAX];
    va_list args;
    int n;

    if (!err)
        return code;
    memcpy(old, err->text, sizeof(old));
    va_start(args, fmt);
    n = vsnprintf(err->text, sizeof(err->text), fmt, args);
    va_end(args);
    if (n >= 0 && (size_t)n < sizeof(err->text))
        (void)snprintf(err->text + n, sizeof(err->text) - (size_t)n, ": %.*s",
                       (int)(sizeof(err->text) - (size_t)n), old);
    return code;
}
