/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * libcurl's multi interface under sd-event: its sockets and its timer become event
 * sources. Only curlloop_wake() may be called from inside a libcurl callback.
 */
#ifndef TG_IO_CURLLOOP_H
#define TG_IO_CURLLOOP_H

#include <curl/curl.h>
#include <systemd/sd-event.h>

#include "base/err.h"
#include "base/mem.h"

struct curlloop;

struct curlloop_ops {
    /* A transfer has ended. It is to be removed, and may then be freed. */
    void (*ended)(CURL *easy, CURLcode code, void *userdata);
    /* The loop's next turn after curlloop_wake(). */
    void (*woken)(void *userdata);
};

int curlloop_new(sd_event *event, const struct curlloop_ops *ops, void *userdata,
                 struct curlloop **ret, struct err *err) _must_use_;
/* Every transfer has been removed before. */
void curlloop_free(struct curlloop *c);
TG_DEFINE_FREEP(struct curlloop, curlloop_free);

int curlloop_add(struct curlloop *c, CURL *easy, struct err *err) _must_use_;
void curlloop_remove(struct curlloop *c, CURL *easy);
void curlloop_wake(struct curlloop *c);

#endif
