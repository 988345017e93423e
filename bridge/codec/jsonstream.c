// SPDX-License-Identifier: GPL-2.0-or-later
#include "codec/jsonstream.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "base/buf.h"

#define KEY_ITEMS "items"

/* Where in the stream the next byte stands. */
enum where {
    BETWEEN,    /* outside every object */
    PIECE,      /* inside a piece */
    ENVELOPE,   /* LIST: inside the list object, outside its items */
    ITEM_FIRST, /* LIST: behind the [ */
    ITEM_NEXT,  /* LIST: behind a comma between items */
    ITEM_AFTER, /* LIST: behind an item */
    ENDED,      /* LIST: behind the list object */
};

struct jsonstream {
    enum jsonstream_mode mode;
    jsonstream_cb cb;
    void *userdata;
    enum where where;
    int code; /* how it failed; nothing is taken any more */

    /* Of the value that is being walked through. */
    size_t depth;
    bool in_string;
    bool escaped;
    struct buf piece;

    /* Of the envelope. */
    struct buf envelope;
    size_t envelope_depth;       /* while an item is walked through */
    bool want_key;               /* at depth 1: the next string is a member's name */
    char key[sizeof(KEY_ITEMS)]; /* the name at depth 1 as far as it fits */
    size_t key_len;
    bool want_items; /* behind "items": */
    bool seen_items;
};

struct jsonstream *jsonstream_new(enum jsonstream_mode mode, size_t cap, jsonstream_cb cb,
                                  void *userdata)
{
    struct jsonstream *s = mem_zalloc(sizeof(*s));

    s->mode = mode;
    s->cb = cb;
    s->userdata = userdata;
    s->piece = BUF_INIT(cap);
    s->envelope = BUF_INIT(cap);
    return s;
}

void jsonstream_free(struct jsonstream *s)
{
    if (!s)
        return;
    buf_free(&s->piece);
    buf_free(&s->envelope);
    free(s);
}

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static int unexpected(char c, const char *expected, struct err *err)
{
    return err_set(err, -EBADMSG, "JSON stream: byte 0x%02x, expected %s",
                   (unsigned char)c, expected);
}

static int gather(struct buf *b, const char *from, const char *to, struct err *err)
{
    if (buf_add(b, from, (size_t)(to - from)) < 0)
        return err_set(err, -EMSGSIZE, "JSON stream: an object is larger than %zu bytes",
                       b->cap);
    return 0;
}

static int emit(struct jsonstream *s, enum jsonstream_piece kind, struct buf *b,
                struct err *err)
{
    int r = s->cb(kind, buf_str(b), b->len, s->userdata, err);

    buf_clear(b);
    return r < 0 ? r : 0;
}

/* Walks to behind the bracket that closes the piece, or to the end of the bytes. */
static const char *walk(struct jsonstream *s, const char *p, const char *end)
{
    while (p < end) {
        char c = *p++;

        if (s->in_string) {
            if (s->escaped)
                s->escaped = false;
            else if (c == '\\')
                s->escaped = true;
            else if (c == '"')
                s->in_string = false;
        } else if (c == '"') {
            s->in_string = true;
        } else if (c == '{' || c == '[') {
            s->depth++;
        } else if ((c == '}' || c == ']') && --s->depth == 0) {
            break;
        }
    }
    return p;
}

static int feed_piece(struct jsonstream *s, const char **p, const char *end,
                      struct err *err)
{
    const char *from = *p;
    int r;

    *p = walk(s, from, end);
    r = gather(&s->piece, from, *p, err);
    if (r < 0 || s->depth > 0)
        return r;
    if (s->mode == JSONSTREAM_LIST) {
        s->where = ITEM_AFTER;
        s->depth = s->envelope_depth;
    } else {
        s->where = BETWEEN;
    }
    return emit(s, JSONSTREAM_ITEM, &s->piece, err);
}

static int end_of_key(struct jsonstream *s, struct err *err)
{
    s->want_key = false;
    if (s->key_len != strlen(KEY_ITEMS) || memcmp(s->key, KEY_ITEMS, s->key_len) != 0)
        return 0;
    if (s->seen_items)
        return err_set(err, -EBADMSG, "JSON stream: a list has \"items\" twice");
    s->seen_items = true;
    s->want_items = true;
    return 0;
}

static int envelope_string(struct jsonstream *s, char c, struct err *err)
{
    bool is_key = s->depth == 1 && s->want_key;

    if (s->escaped) {
        s->escaped = false;
    } else if (c == '\\') {
        s->escaped = true;
    } else if (c == '"') {
        s->in_string = false;
        return is_key ? end_of_key(s, err) : 0;
    }
    if (is_key && s->key_len < sizeof(s->key))
        s->key[s->key_len++] = c;
    return 0;
}

/* One byte of the list object that belongs to no item. */
static int envelope_byte(struct jsonstream *s, char c, struct err *err)
{
    if (s->in_string)
        return envelope_string(s, c, err);
    if (s->want_items && !is_space(c) && c != ':') {
        s->want_items = false;
        if (c == '[') {
            s->where = ITEM_FIRST;
            return 0;
        }
        if (c != 'n') /* null: an empty list, as Go writes it */
            return unexpected(c, "the array of \"items\"", err);
    }
    switch (c) {
    case '"':
        s->in_string = true;
        s->key_len = 0;
        break;
    case '{':
    case '[':
        s->depth++;
        break;
    case '}':
    case ']':
        if (--s->depth == 0)
            s->where = ENDED;
        break;
    case ',':
        s->want_key = s->depth == 1;
        break;
    default:
        break;
    }
    return 0;
}

static int feed_envelope(struct jsonstream *s, const char **p, const char *end,
                         struct err *err)
{
    const char *from = *p;
    int r = 0;

    while (*p < end && s->where == ENVELOPE && r == 0)
        r = envelope_byte(s, *(*p)++, err);
    if (r == 0)
        r = gather(&s->envelope, from, *p, err);
    if (r < 0 || s->where != ENDED)
        return r;
    if (!s->seen_items)
        return err_set(err, -EBADMSG,
                       "JSON stream: an object without \"items\", expected a list");
    return emit(s, JSONSTREAM_ENVELOPE, &s->envelope, err);
}

/* One byte that stands between objects or between items. */
static int feed_gap(struct jsonstream *s, const char **p, struct err *err)
{
    char c = **p;

    if (is_space(c)) {
        (*p)++;
        return 0;
    }
    if (s->where == ENDED)
        return unexpected(c, "nothing behind the list", err);
    if (c == ']' && (s->where == ITEM_FIRST || s->where == ITEM_AFTER)) {
        s->where = ENVELOPE;
        (*p)++;
        return gather(&s->envelope, *p - 1, *p, err);
    }
    if (s->where == ITEM_AFTER) {
        (*p)++;
        s->where = ITEM_NEXT;
        return c == ',' ? 0 : unexpected(c, "a comma or the end of the items", err);
    }
    if (c != '{')
        return unexpected(c, "an object", err);
    if (s->where == BETWEEN && s->mode == JSONSTREAM_LIST) {
        s->where = ENVELOPE;
        s->want_key = true;
    } else {
        s->envelope_depth = s->depth;
        s->depth = 0;
        s->where = PIECE;
    }
    return 0;
}

int jsonstream_feed(struct jsonstream *s, const void *data, size_t n, struct err *err)
{
    const char *p = data, *end = p + n;
    int r = 0;

    if (s->code < 0)
        return err_set(err, s->code, "JSON stream: it has failed before");
    if (n && memchr(data, '\0', n))
        r = unexpected('\0', "text", err);
    while (r == 0 && p < end) {
        if (s->where == PIECE)
            r = feed_piece(s, &p, end, err);
        else if (s->where == ENVELOPE)
            r = feed_envelope(s, &p, end, err);
        else
            r = feed_gap(s, &p, err);
    }
    s->code = r;
    return r;
}

int jsonstream_finish(struct jsonstream *s, struct err *err)
{
    if (s->code < 0)
        return err_set(err, s->code, "JSON stream: it has failed before");
    if (s->where != (s->mode == JSONSTREAM_LIST ? ENDED : BETWEEN))
        return err_set(err, -EBADMSG, "JSON stream: it ended inside %s",
                       s->mode == JSONSTREAM_LIST ? "the list" : "an object");
    return 0;
}
