/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * logfmt lines on stderr: time=... level=... msg="..." key=value. Used by io and app only, once,
 * where an error is handled; never a secret. One write(2) a line, so that threads do not mix.
 *
 *     log_info("node drained", LOG_STR("node", name), LOG_NUM("jobs", n));
 */
#ifndef TG_BASE_LOG_H
#define TG_BASE_LOG_H

#include <stdint.h>

enum log_level { LOG_LEVEL_ERROR, LOG_LEVEL_WARN, LOG_LEVEL_INFO, LOG_LEVEL_DEBUG };

struct log_field {
    const char *key;
    const char *str; /* used when not NULL, quoted where needed */
    int64_t num;
};

static inline const char *log_text(const char *s)
{
    return s ? s : "";
}

#define LOG_STR(k, v) {.key = (k), .str = log_text(v)}
#define LOG_NUM(k, v) {.key = (k), .num = (v)}

void log_set_level(
    enum log_level level); /* default LOG_LEVEL_INFO; with the name the only globals */
/* Puts program=NAME into each line, for one that shares its stderr with others. Not copied. */
void log_set_program(const char *name);
/* The fields up to one without a key; the macros put the message first. */
void log_emit(enum log_level level, const struct log_field *fields);

#define log_at(level, msg, ...)                                                          \
    log_emit(level, (const struct log_field[]){LOG_STR("msg", msg), ##__VA_ARGS__, {0}})
#define log_error(msg, ...) log_at(LOG_LEVEL_ERROR, msg, ##__VA_ARGS__)
#define log_warn(msg, ...)  log_at(LOG_LEVEL_WARN, msg, ##__VA_ARGS__)
#define log_info(msg, ...)  log_at(LOG_LEVEL_INFO, msg, ##__VA_ARGS__)
#define log_debug(msg, ...) log_at(LOG_LEVEL_DEBUG, msg, ##__VA_ARGS__)

#endif
