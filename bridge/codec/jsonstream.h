/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Cuts a stream of JSON into single objects without holding the whole: a Kubernetes list
 * into its items, a watch into its events. Bytes may be split anywhere. Knows only as
 * much of JSON as it takes to find where an object ends; cJSON judges the pieces.
 */
#ifndef TG_CODEC_JSONSTREAM_H
#define TG_CODEC_JSONSTREAM_H

#include <stddef.h>

#include "base/err.h"
#include "base/mem.h"

enum jsonstream_mode {
    /* One object whose member "items" is an array: each element is a piece; the object
     * without its items ("items":[], metadata, kind, ...) is the last piece. */
    JSONSTREAM_LIST,
    /* Objects one after the other: each is a piece. */
    JSONSTREAM_OBJECTS,
};

enum jsonstream_piece { JSONSTREAM_ITEM, JSONSTREAM_ENVELOPE /* of LIST only */ };

/* `text` is NUL-terminated and valid during the call. A negative return ends the feed
 * with it. */
typedef int (*jsonstream_cb)(enum jsonstream_piece kind, const char *text, size_t len,
                             void *userdata, struct err *err);

struct jsonstream;

/* `cap`: bytes that one piece may have; -EMSGSIZE beyond it. */
struct jsonstream *jsonstream_new(enum jsonstream_mode mode, size_t cap, jsonstream_cb cb,
                                  void *userdata);
void jsonstream_free(struct jsonstream *s);
TG_DEFINE_FREEP(struct jsonstream, jsonstream_free);

/* -EBADMSG: no JSON of the expected form; -EMSGSIZE: a piece is too large; or the
 * callback's. */
int jsonstream_feed(struct jsonstream *s, const void *data, size_t n, struct err *err)
    _must_use_;
/* -EBADMSG when the stream ended inside an object (LIST: before the end of the list). */
int jsonstream_finish(struct jsonstream *s, struct err *err) _must_use_;

#endif
