/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A server that speaks real HTTP/1.1 over a socket from a thread of its own, and does
 * what its script says: the faults that a real kube-apiserver does not have at hand.
 */
#ifndef TG_TESTS_FAKE_HTTP_H
#define TG_TESTS_FAKE_HTTP_H

#include <stdbool.h>
#include <stddef.h>

enum fake_end {
    FAKE_END =
        0, /* the answer ends as it should; the connection stays for the next request */
    FAKE_CUT,        /* the connection is closed in the middle of the answer */
    FAKE_RESET,      /* the same, by RST */
    FAKE_HALF_CLOSE, /* no more is sent, but the socket stays open for reading */
    FAKE_HOLD, /* nothing more happens until fake_http_free() or the client leaves */
};

/* The answer to one request; requests take them in order, whatever the connection. */
struct fake_reply {
    const char
        *want;    /* must be in the request's first line; else it counts as unexpected */
    int delay_ms; /* before the head */
    int status;   /* 0: no head at all */
    const char *headers; /* further lines, each with \r\n; NULL: none */
    const char *body;    /* sent chunked; NULL: none */
    size_t split;        /* bytes sent at a time; 0: all at once */
    int body_delay_ms;   /* between head and body */
    enum fake_end end;
    bool repeat; /* for every request until one comes that only the next reply wants */
};

struct fake_http;

/* Listens on 127.0.0.1. `script` ends with want NULL and must stay. */
struct fake_http *fake_http_new(const struct fake_reply *script);
void fake_http_free(struct fake_http *f);
const char *fake_http_url(const struct fake_http *f); /* http://127.0.0.1:PORT */
/* How many requests came; -1: one that the script did not expect. */
int fake_http_count(struct fake_http *f);
/* The i-th request, head and body; NULL: not yet. Stays until the end. */
const char *fake_http_request(struct fake_http *f, size_t i);

#endif
