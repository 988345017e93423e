/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The one error channel: a function that can fail returns 0 or a negative errno, and writes a
 * sentence for a person into its last parameter `struct err *err` (NULL: nobody asks). The text is
 * written only on failure. Callers that know more put it in front with err_context().
 */
#ifndef TG_BASE_ERR_H
#define TG_BASE_ERR_H

#define TG_ERR_TEXT_MAX 512 /* longer texts are cut; a log line must stay readable */

struct err {
    char text[TG_ERR_TEXT_MAX];
};

#define _must_use_          __attribute__((warn_unused_result))
#define _printf_(fmt, args) __attribute__((format(printf, fmt, args)))

/* Writes the text and returns `code` (a negative errno). */
int err_set(struct err *err, int code, const char *fmt, ...) _printf_(3, 4);

/* Puts "fmt: " in front of the text that is there and returns `code`. */
int err_context(struct err *err, int code, const char *fmt, ...) _printf_(3, 4);

#endif
