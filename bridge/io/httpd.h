/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A small HTTP server for GET (libmicrohttpd on the event loop): health, metrics and the node view. */
#ifndef TG_IO_HTTPD_H
#define TG_IO_HTTPD_H

#include <systemd/sd-event.h>

#include "base/err.h"
#include "base/mem.h"

struct httpd;

struct httpd_reply {
    unsigned status;
    const char *content_type; /* static */
    char *body;               /* given away */
};

/* Called on the loop's thread for every GET or HEAD; `path` is decoded, without the query. */
typedef void (*httpd_cb)(const char *path, struct httpd_reply *ret, void *userdata);

/* `listen` as "0.0.0.0:8080", "127.0.0.1:0" or "[::]:8080". */
int httpd_new(sd_event *event, const char *listen, httpd_cb cb, void *userdata,
              struct httpd **ret, struct err *err) _must_use_;
void httpd_free(struct httpd *h);
TG_DEFINE_FREEP(struct httpd, httpd_free);
unsigned httpd_port(const struct httpd *h); /* the one that was bound */

#endif
