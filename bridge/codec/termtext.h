/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Text from outside, for a person's terminal. */
#ifndef TG_CODEC_TERMTEXT_H
#define TG_CODEC_TERMTEXT_H

#include <stddef.h>
#include <stdint.h>

/*
 * Whoever may write a Slurm reason must not be able to move a reader's cursor, change colours or turn
 * the direction of writing: control characters, marks of direction and bytes that are no UTF-8 come
 * out as \xNN or \uNNNN. NULL: "". The caller frees.
 */
char *termtext_escape(const char *s);

/* The same for JSON: what stands in its strings comes out as an escape that means the same, or as
 * U+FFFD when it was no UTF-8. Line ends between values stay. */
char *termtext_escape_json(const char *json);

/* How many columns the text takes, with one for each character. */
size_t termtext_width(const char *s);

/* "45s", "3m", "2h", "5d"; of a negative span "0s". The caller frees. */
char *termtext_span(int64_t ms);

#endif
