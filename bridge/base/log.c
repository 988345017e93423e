// SPDX-License-Identifier: GPL-2.0-or-later
#include "base/log.h"

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/buf.h"

#define LINE_MAX_BYTES 8192

static enum log_level max_level = LOG_LEVEL_INFO;
static const char *program;

void log_set_level(enum log_level level)
{
    max_level = level;
}

void log_set_program(const char *name)
{
    program = name;
}

/* A value stands bare when no reader of logfmt could take it apart. */
static int is_bare(const char *s)
{
    if (!*s)
        return 0;
    for (; *s; s++) {
        if ((unsigned char)*s <= ' ' || *s == '"' || *s == '=' || *s == '\\' ||
            *s == 0x7f)
            return 0;
    }
    return 1;
}

static int add_value(struct buf *b, const char *s)
{
    int r;

    if (is_bare(s))
        return buf_puts(b, s);
    r = buf_puts(b, "\"");
    for (; *s && r == 0; s++) {
        unsigned char c = (unsigned char)*s;

        if (c == '"' || c == '\\')
            r = buf_printf(b, "\\%c", c);
        else if (c == '\n')
            r = buf_puts(b, "\\n");
        else if (c < ' ' || c == 0x7f)
            r = buf_printf(b, "\\x%02x", c);
        else
            r = buf_add(b, s, 1);
    }
    return r < 0 ? r : buf_puts(b, "\"");
}

void log_emit(enum log_level level, const struct log_field *fields)
{
    static const char *const names[] = {"error", "warn", "info", "debug"};
    struct buf b = BUF_INIT(LINE_MAX_BYTES - 1); /* room for the newline */
    struct timespec ts;
    struct tm tm;
    int r;

    if (level > max_level)
        return;
    (void)clock_gettime(CLOCK_REALTIME, &ts);
    (void)gmtime_r(&ts.tv_sec, &tm);
    r = buf_printf(&b, "time=%04d-%02d-%02dT%02d:%02d:%02d.%03ldZ level=%s",
                   tm.tm_year + 1900, tm.tm_mon + 1, tm.tm_mday, tm.tm_hour, tm.tm_min,
                   tm.tm_sec, ts.tv_nsec / 1000000, names[level]);
    if (program && r == 0)
        r = buf_printf(&b, " program=%s", program);
    for (; fields->key && r == 0; fields++) {
        r = buf_printf(&b, " %s=", fields->key);
        if (r == 0)
            r = fields->str ? add_value(&b, fields->str)
                            : buf_printf(&b, "%lld", (long long)fields->num);
    }
    /* A line that is too long is cut; the start of it says the most. */
    b.cap++;
    if (buf_puts(&b, "\n") == 0) {
        ssize_t n = write(STDERR_FILENO, b.data, b.len);

        (void)n; /* nowhere to report it */
    }
    buf_free(&b);
}
