/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * HTTP requests to a kube-apiserver on the event loop: libcurl multi under sd-event,
 * HTTP/1.1, one connection per watch. Callbacks run on the loop's thread, never from
 * inside the call that began the request. Tokens are read again from their file for each
 * request (they are rotated).
 */
#ifndef TG_IO_KUBE_H
#define TG_IO_KUBE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <systemd/sd-event.h>

#include "base/err.h"
#include "base/mem.h"

struct kube_config {
    const char *server;     /* https://host:port, no slash at the end */
    const char *ca_file;    /* NULL: the system's */
    const char *token_file; /* NULL: none */
    const char *cert_file;  /* client certificate, NULL: none */
    const char *key_file;
};

struct kube;
struct kube_request;

/* Strings are copied. -EINVAL, -ENOENT (a file that is not there, named), -ENOMEM. */
int kube_new(sd_event *event, const struct kube_config *config, struct kube **ret,
             struct err *err) _must_use_;
/* Ends what is under way, without calling back. Not from inside a callback. */
void kube_free(struct kube *k);
TG_DEFINE_FREEP(struct kube, kube_free);

struct kube_result {
    int code;         /* 0: an HTTP answer came; else -Exxx: -ETIMEDOUT -ECONNREFUSED -EIO
                         -EMSGSIZE ... */
    long status;      /* HTTP status, 0 without an answer */
    const char *body; /* NUL-terminated; of a stream only the body of a status >= 300 */
    size_t body_len;
    int64_t retry_after_ms; /* from Retry-After, 0: none */
    int64_t date_ms;        /* the server's clock, from Date: whole seconds; 0: none */
    const char
        *error; /* sentence when code < 0 or status >= 300 (Status.message if JSON) */
};

/* The head of a 2xx answer has come, so a stream stands; once, before its bytes. */
typedef void (*kube_open_cb)(void *userdata);
/* Bytes of a 2xx answer as they come; negative ends the request with that code. */
typedef int (*kube_data_cb)(const char *data, size_t n, void *userdata, struct err *err);
/* The end, once. The request is freed by kube after it returns. */
typedef void (*kube_done_cb)(const struct kube_result *result, void *userdata);

struct kube_call {
    const char *method;       /* "GET", "POST", "PUT", "PATCH", "DELETE" */
    const char *path;         /* with query, escaped */
    const char *content_type; /* NULL: application/json */
    const char *body;         /* NULL: none; copied */
    int64_t timeout_ms;       /* whole request; 0: none (streams) */
    int64_t idle_ms;          /* no byte for so long ends it with -ETIMEDOUT; 0: none */
    size_t body_cap;          /* of the gathered body; 0: 1 MiB */
    kube_open_cb on_open;     /* NULL: not needed */
    kube_data_cb on_data;     /* NULL: the body is gathered for on_done */
    kube_done_cb on_done;
    void *userdata;
};

int kube_start(struct kube *k, const struct kube_call *call, struct kube_request **ret,
               struct err *err) _must_use_;
/* Ends it without calling back; NULL is fine, and so is doing it from its own on_data. */
void kube_cancel(struct kube_request *r);

/* %-escapes one part of a path or query. The caller frees. */
char *kube_escape(const char *s);

#endif
