// SPDX-License-Identifier: GPL-2.0-or-later
#include "io/kube.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "codec/json.h"
#include "io/curlloop.h"
#include "io/timer.h"

#define BODY_CAP_DEFAULT   (1 << 20)
#define TOKEN_MAX          (16 << 10)
#define CONNECT_TIMEOUT_MS 5000L
#define CA_CACHE_S         600L /* how long a CA file may stand unread (libcurl: a day) */
/* A peer that has vanished without a word is noticed after 5 + 3 * 3 seconds. */
#define KEEP_IDLE_S  5L
#define KEEP_INTVL_S 3L
#define KEEP_PROBES  3L

struct kube {
    sd_event *event;
    struct curlloop *loop;
    char *server;
    char *ca_file;
    char *token_file;
    char *cert_file;
    char *key_file;
    struct kube_request *requests;
};

enum state {
    QUEUED,  /* libcurl does not know it yet: a callback of libcurl may have begun it */
    RUNNING, /* libcurl has it */
    ENDING,  /* on_done is running */
    DEAD,    /* cancelled, and still to be taken from libcurl */
};

struct kube_request {
    struct kube *kube;
    struct kube_request *next; /* of kube->requests, when linked */
    bool linked;
    enum state state;
    bool added; /* libcurl has it */
    CURL *easy;
    struct curl_slist *headers;
    char curl_error[CURL_ERROR_SIZE];
    char *what; /* "GET /api/v1/nodes", for sentences */
    sd_event_source *timer;
    int64_t begun_at;
    int64_t heard_at;
    int64_t timeout_ms;
    int64_t idle_ms;
    struct buf body;
    bool opened;
    int code; /* why our side ended it */
    struct err err;
    kube_open_cb on_open;
    kube_data_cb on_data;
    kube_done_cb on_done;
    void *userdata;
};

/* ---- requests ---------------------------------------------------------------------- */

static void request_unlink(struct kube_request *r)
{
    struct kube_request **p = &r->kube->requests;

    if (!r->linked)
        return;
    while (*p != r)
        p = &(*p)->next;
    *p = r->next;
    r->linked = false;
}

static void request_free(struct kube_request *r)
{
    if (!r)
        return;
    request_unlink(r);
    if (r->added)
        curlloop_remove(r->kube->loop, r->easy);
    curl_easy_cleanup(r->easy);
    curl_slist_free_all(r->headers);
    sd_event_source_disable_unref(r->timer);
    buf_free(&r->body);
    free(r->what);
    free(r);
}
TG_DEFINE_FREEP(struct kube_request, request_free);

static long http_status(const struct kube_request *r)
{
    long status = 0;

    (void)curl_easy_getinfo(r->easy, CURLINFO_RESPONSE_CODE, &status);
    return status;
}

static int64_t retry_after_ms(const struct kube_request *r)
{
    curl_off_t s = 0;

    (void)curl_easy_getinfo(r->easy, CURLINFO_RETRY_AFTER, &s);
    return s > 0 && s < 1000000 ? (int64_t)s * 1000 : 0;
}

static int64_t date_ms(const struct kube_request *r)
{
    struct curl_header *h = NULL;
    time_t t;

    if (curl_easy_header(r->easy, "Date", 0, CURLH_HEADER, -1, &h) != CURLHE_OK)
        return 0;
    t = curl_getdate(h->value, NULL);
    return t > 0 ? (int64_t)t * 1000 : 0;
}

/* What the server says of itself: the message of a Status, else nothing. */
static void status_sentence(const struct kube_request *r, long status, struct err *err)
{
    _cleanup_(cJSON_Deletep) cJSON *obj = NULL;
    const char *message = NULL;

    if (r->body.len && json_parse(r->body.data, r->body.len, &obj, NULL) == 0 &&
        json_opt_str(obj, "message", &message, NULL) < 0)
        message = NULL;
    err_set(err, -EIO, "%s: HTTP status %ld%s%s", r->what, status, message ? ": " : "",
            message ? message : "");
}

/* Calls back and frees. */
static void request_finish(struct kube_request *r, int code)
{
    _cleanup_(request_freep) struct kube_request *owned = r;
    struct kube_result result = {.code = code, .status = http_status(r)};

    assert(r->state != ENDING);
    if (r->state == DEAD)
        return;
    r->state = ENDING;
    if (code < 0) {
        result.error = r->err.text;
        result.status = 0;
    } else if (result.status >= 300) {
        status_sentence(r, result.status, &r->err);
        result.error = r->err.text;
    }
    result.body = buf_str(&r->body);
    result.body_len = r->body.len;
    result.retry_after_ms = retry_after_ms(r);
    result.date_ms = code < 0 ? 0 : date_ms(r);
    r->on_done(&result, r->userdata);
}

static int code_of_connect(const struct kube_request *r)
{
    long os = 0;

    (void)curl_easy_getinfo(r->easy, CURLINFO_OS_ERRNO, &os);
    return os > 0 && os < 4096 ? -(int)os : -ECONNREFUSED;
}

static int code_of_curl(struct kube_request *r, CURLcode code)
{
    int e;

    if (r->code < 0) /* our own callbacks ended it, and have left their sentence */
        return err_context(&r->err, r->code, "%s", r->what);
    switch (code) {
    case CURLE_OK:
        return 0;
    case CURLE_COULDNT_RESOLVE_HOST:
        e = -EHOSTUNREACH;
        break;
    case CURLE_COULDNT_CONNECT:
        e = code_of_connect(r);
        break;
    case CURLE_OPERATION_TIMEDOUT:
        e = -ETIMEDOUT;
        break;
    case CURLE_OUT_OF_MEMORY:
        e = -ENOMEM;
        break;
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CONNECT_ERROR:
    case CURLE_SSL_CERTPROBLEM:
    case CURLE_SSL_CACERT_BADFILE:
        e = -EPROTO;
        break;
    default:
        e = -EIO;
        break;
    }
    return err_set(&r->err, e, "%s: %s", r->what,
                   r->curl_error[0] ? r->curl_error : curl_easy_strerror(code));
}

static void on_ended(CURL *easy, CURLcode code, void *userdata)
{
    struct kube_request *r = NULL;

    (void)userdata;
    (void)curl_easy_getinfo(easy, CURLINFO_PRIVATE, (char **)&r);
    request_finish(r, code_of_curl(r, code));
}

/* What could not be done from where it was asked for. */
static void on_woken(void *userdata)
{
    struct kube *k = userdata;
    struct kube_request **p = &k->requests, *r;

    while ((r = *p)) {
        if (r->state == DEAD) {
            *p = r->next;
            r->linked = false;
            request_free(r);
            continue;
        }
        if (r->state == QUEUED) {
            r->state = RUNNING;
            r->code = curlloop_add(k->loop, r->easy, &r->err);
            r->added = r->code == 0;
            if (r->code < 0)
                timer_arm(r->timer, 0); /* calls back from there */
        }
        p = &r->next;
    }
}

static int64_t due_at(const struct kube_request *r)
{
    int64_t at = INT64_MAX;

    if (r->timeout_ms)
        at = r->begun_at + r->timeout_ms;
    if (r->idle_ms && r->heard_at + r->idle_ms < at)
        at = r->heard_at + r->idle_ms;
    return at;
}

static int on_deadline(sd_event_source *s, uint64_t usec, void *userdata)
{
    struct kube_request *r = userdata;
    int64_t now = clock_mono_ms();

    (void)s;
    (void)usec;
    if (r->state != QUEUED && r->state != RUNNING)
        return 0;
    if (r->code < 0) {
        request_finish(r, err_context(&r->err, r->code, "%s", r->what));
        return 0;
    }
    if (now < due_at(r)) {
        timer_arm(r->timer, due_at(r));
        return 0;
    }
    if (r->idle_ms && now >= r->heard_at + r->idle_ms)
        err_set(&r->err, -ETIMEDOUT, "%s: not a byte came for %lld ms", r->what,
                (long long)r->idle_ms);
    else
        err_set(&r->err, -ETIMEDOUT, "%s: not done within %lld ms", r->what,
                (long long)r->timeout_ms);
    request_finish(r, -ETIMEDOUT);
    return 0;
}

static size_t on_header(char *data, size_t size, size_t n, void *userdata)
{
    struct kube_request *r = userdata;
    long status = http_status(r);

    r->heard_at = clock_mono_ms();
    if (r->state == DEAD)
        return CURL_WRITEFUNC_ERROR;
    /* The empty line is the end of the head. */
    if (size * n <= 2 && (data[0] == '\r' || data[0] == '\n') && status >= 200 &&
        status < 300 && !r->opened) {
        r->opened = true;
        if (r->on_open)
            r->on_open(r->userdata);
    }
    return size * n;
}

static size_t on_body(char *data, size_t size, size_t n, void *userdata)
{
    struct kube_request *r = userdata;
    long status = http_status(r);
    size_t len = size * n;

    r->heard_at = clock_mono_ms();
    if (r->state == DEAD)
        return CURL_WRITEFUNC_ERROR;
    if (status < 300) {
        if (r->on_data)
            r->code = r->on_data(data, len, r->userdata, &r->err);
        else if (buf_add(&r->body, data, len) < 0)
            r->code = err_set(&r->err, -EMSGSIZE, "the answer is larger than %zu bytes",
                              r->body.cap);
        return r->code < 0 ? CURL_WRITEFUNC_ERROR : len;
    }
    /* Of an error the status counts; a sentence that is too long is let go. */
    if (buf_add(&r->body, data, len) < 0)
        buf_clear(&r->body);
    return len;
}

/* ---- beginning one ----------------------------------------------------------------- */

static int read_token(const char *path, struct buf *ret, struct err *err)
{
    char chunk[4096];
    ssize_t n;
    int r = 0, fd = open(path, O_RDONLY | O_CLOEXEC);

    if (fd < 0)
        return err_set(err, -errno, "token file %s: %s", path, strerror(errno));
    while (r == 0 && (n = read(fd, chunk, sizeof(chunk))) != 0)
        r = n < 0 ? -errno : buf_add(ret, chunk, (size_t)n);
    close(fd);
    if (r < 0)
        return err_set(err, r, "token file %s: %s", path, strerror(-r));
    while (ret->len && strchr(" \t\r\n", ret->data[ret->len - 1]))
        ret->data[--ret->len] = '\0';
    /* Anything else might end the header line and begin another. */
    for (size_t i = 0; i < ret->len; i++) {
        if (ret->data[i] <= ' ' || ret->data[i] == 0x7f)
            return err_set(err, -EINVAL, "token file %s: byte %zu is not of a token",
                           path, i);
    }
    if (!ret->len)
        return err_set(err, -EINVAL, "token file %s: it is empty", path);
    return 0;
}

static void add_header(struct kube_request *r, const char *line)
{
    struct curl_slist *l = curl_slist_append(r->headers, line);

    if (!l)
        abort();
    r->headers = l;
}

static int add_headers(struct kube_request *r, const struct kube_call *call,
                       struct err *err)
{
    const char *token_file = r->kube->token_file;
    _cleanup_(mem_freep) char *type = mem_printf(
        "Content-Type: %s", call->content_type ? call->content_type : "application/json");
    int code;

    add_header(r, "Accept: application/json");
    add_header(r, "Expect:"); /* none: it would cost a round trip */
    if (call->body)
        add_header(r, type);
    if (token_file) {
        struct buf token = BUF_INIT(TOKEN_MAX);
        _cleanup_(mem_freep) char *line = NULL;

        code = read_token(token_file, &token, err);
        if (code == 0)
            line = mem_printf("Authorization: Bearer %s", buf_str(&token));
        if (line)
            add_header(r, line);
        buf_free(&token);
        if (code < 0)
            return code;
    }
    curl_easy_setopt(r->easy, CURLOPT_HTTPHEADER, r->headers);
    return 0;
}

static void set_transport(struct kube_request *r)
{
    const struct kube *k = r->kube;
    CURL *e = r->easy;

    curl_easy_setopt(e, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(e, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(e, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(e, CURLOPT_PROXY, ""); /* whatever the environment says */
    curl_easy_setopt(e, CURLOPT_USERAGENT, "tidegated/" TIDEGATE_VERSION);
    curl_easy_setopt(e, CURLOPT_CONNECTTIMEOUT_MS, CONNECT_TIMEOUT_MS);
    curl_easy_setopt(e, CURLOPT_TCP_KEEPALIVE, 1L);
    curl_easy_setopt(e, CURLOPT_TCP_KEEPIDLE, KEEP_IDLE_S);
    curl_easy_setopt(e, CURLOPT_TCP_KEEPINTVL, KEEP_INTVL_S);
    curl_easy_setopt(e, CURLOPT_TCP_KEEPCNT, KEEP_PROBES);
    curl_easy_setopt(e, CURLOPT_SSL_VERIFYPEER, 1L);
    curl_easy_setopt(e, CURLOPT_SSL_VERIFYHOST, 2L);
    if (k->ca_file) {
        curl_easy_setopt(e, CURLOPT_CAINFO, k->ca_file);
        curl_easy_setopt(e, CURLOPT_CAPATH, NULL); /* this one and no other */
        curl_easy_setopt(e, CURLOPT_CA_CACHE_TIMEOUT, CA_CACHE_S);
    }
    if (k->cert_file)
        curl_easy_setopt(e, CURLOPT_SSLCERT, k->cert_file);
    if (k->key_file)
        curl_easy_setopt(e, CURLOPT_SSLKEY, k->key_file);
}

static void set_call(struct kube_request *r, const struct kube_call *call)
{
    _cleanup_(mem_freep) char *url = mem_printf("%s%s", r->kube->server, call->path);
    CURL *e = r->easy;

    curl_easy_setopt(e, CURLOPT_URL, url);
    curl_easy_setopt(e, CURLOPT_CUSTOMREQUEST, call->method);
    if (call->body) {
        curl_easy_setopt(e, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)strlen(call->body));
        curl_easy_setopt(e, CURLOPT_COPYPOSTFIELDS, call->body);
    }
    curl_easy_setopt(e, CURLOPT_PRIVATE, r);
    curl_easy_setopt(e, CURLOPT_ERRORBUFFER, r->curl_error);
    curl_easy_setopt(e, CURLOPT_HEADERFUNCTION, on_header);
    curl_easy_setopt(e, CURLOPT_HEADERDATA, r);
    curl_easy_setopt(e, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(e, CURLOPT_WRITEDATA, r);
}

int kube_start(struct kube *k, const struct kube_call *call, struct kube_request **ret,
               struct err *err)
{
    _cleanup_(request_freep) struct kube_request *r = mem_zalloc(sizeof(*r));
    int code;

    r->kube = k;
    r->what =
        mem_printf("%s %.*s", call->method, (int)strcspn(call->path, "?"), call->path);
    r->body = BUF_INIT(call->body_cap ? call->body_cap : BODY_CAP_DEFAULT);
    r->begun_at = r->heard_at = clock_mono_ms();
    r->timeout_ms = call->timeout_ms;
    r->idle_ms = call->idle_ms;
    r->on_open = call->on_open;
    r->on_data = call->on_data;
    r->on_done = call->on_done;
    r->userdata = call->userdata;
    r->easy = curl_easy_init();
    if (!r->easy)
        return err_set(err, -ENOMEM, "%s: cannot make a libcurl handle", r->what);
    code = timer_new(k->event, on_deadline, r, &r->timer, err);
    if (code == 0)
        code = add_headers(r, call, err);
    if (code < 0)
        return err_context(err, code, "%s", r->what);
    set_transport(r);
    set_call(r, call);
    if (due_at(r) != INT64_MAX)
        timer_arm(r->timer, due_at(r));
    r->next = k->requests;
    r->linked = true;
    k->requests = r;
    curlloop_wake(k->loop);
    *ret = r;
    r = NULL;
    return 0;
}

void kube_cancel(struct kube_request *r)
{
    if (!r || r->state == ENDING)
        return;
    r->state = DEAD;
    curlloop_wake(r->kube->loop);
}

char *kube_escape(const char *s)
{
    char *escaped = curl_easy_escape(NULL, s, 0), *copy = mem_strdup(escaped);

    if (!escaped)
        abort();
    curl_free(escaped);
    return copy;
}

/* ---- the whole --------------------------------------------------------------------- */

static int check_file(const char *what, const char *path, struct err *err)
{
    if (path && access(path, R_OK) < 0)
        return err_set(err, -errno, "%s %s: %s", what, path, strerror(errno));
    return 0;
}

/* A token in the clear may travel inside this machine only (a proxy, a test). */
static bool is_loopback(const char *server)
{
    static const char *const hosts[] = {"http://127.0.0.1", "http://localhost",
                                        "http://[::1]"};

    for (size_t i = 0; i < TG_LEN(hosts); i++) {
        size_t n = strlen(hosts[i]);

        if (strncasecmp(server, hosts[i], n) == 0 && (server[n] == ':' || !server[n]))
            return true;
    }
    return false;
}

static int check_config(const struct kube_config *c, struct err *err)
{
    bool tls = strncasecmp(c->server, "https://", 8) == 0;
    size_t n = strlen(c->server);
    int r;

    if (!tls && strncasecmp(c->server, "http://", 7) != 0)
        return err_set(err, -EINVAL, "server '%s': expected https://HOST:PORT",
                       c->server);
    if (c->server[n - 1] == '/')
        return err_set(err, -EINVAL, "server '%s': expected no slash at the end",
                       c->server);
    if (!tls && c->token_file && !is_loopback(c->server))
        return err_set(
            err, -EINVAL,
            "server '%s': a token is sent over https only, or give no token file",
            c->server);
    r = check_file("CA file", c->ca_file, err);
    if (r == 0)
        r = check_file("token file", c->token_file, err);
    if (r == 0)
        r = check_file("certificate file", c->cert_file, err);
    if (r == 0)
        r = check_file("key file", c->key_file, err);
    return r;
}

int kube_new(sd_event *event, const struct kube_config *config, struct kube **ret,
             struct err *err)
{
    static const struct curlloop_ops ops = {.ended = on_ended, .woken = on_woken};
    _cleanup_(kube_freep) struct kube *k = NULL;
    int r = check_config(config, err);

    if (r < 0)
        return r;
    if (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK) /* counted; see kube_free() */
        return err_set(err, -EIO, "libcurl cannot be initialised");
    k = mem_zalloc(sizeof(*k));
    k->event = sd_event_ref(event);
    k->server = mem_strdup(config->server);
    k->ca_file = mem_strdup(config->ca_file);
    k->token_file = mem_strdup(config->token_file);
    k->cert_file = mem_strdup(config->cert_file);
    k->key_file = mem_strdup(config->key_file);
    r = curlloop_new(event, &ops, k, &k->loop, err);
    if (r < 0)
        return r;
    *ret = k;
    k = NULL;
    return 0;
}

void kube_free(struct kube *k)
{
    struct kube_request *r;

    if (!k)
        return;
    while ((r = k->requests)) {
        k->requests = r->next;
        r->linked = false;
        request_free(r);
    }
    curlloop_free(k->loop);
    free(k->server);
    free(k->ca_file);
    free(k->token_file);
    free(k->cert_file);
    free(k->key_file);
    sd_event_unref(k->event);
    free(k);
    curl_global_cleanup();
}
