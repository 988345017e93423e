// SPDX-License-Identifier: GPL-2.0-or-later
#include "codec/agent_frame.h"

#include <endian.h>
#include <errno.h>
#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/params.h>
#include <string.h>

static const uint8_t magic[4] = {'T', 'G', 'N', 'F'};
static const uint8_t greeting_magic[4] = {'T', 'G', 'N', 'G'};

#define AT_VERSION 4
#define AT_TYPE    5
#define AT_ZERO    6
#define AT_SIZE    8
#define AT_COUNTER 12

static bool has_mac(enum agent_frame_type type)
{
    return type != AGENT_CHALLENGE && type != AGENT_REFUSE && type != AGENT_GREETING;
}

static size_t body_max(enum agent_frame_type type)
{
    return type == AGENT_GREETING ? AGENT_CREDENTIAL_MAX : AGENT_BODY_MAX;
}

void agent_frame_clear(struct agent_frame *f)
{
    if (f->type == AGENT_REPORT) {
        node_line_clear(&f->report.line);
        for (size_t i = 0; i < f->report.n_checks; i++)
            check_fact_clear(&f->report.checks[i]);
        free(f->report.checks);
    }
    memset(f, 0, sizeof(*f));
}

/* ---- keys and MACs ----------------------------------------------------------------- */

/* One context for each thread: OpenSSL's HMAC() looks the algorithm up by name at each call, which takes
 * four times as long as the MAC of a heartbeat. */
static EVP_MAC_CTX *mac_context(void)
{
    static _Thread_local EVP_MAC_CTX *context;
    char digest[] = OSSL_DIGEST_NAME_SHA2_256;
    const OSSL_PARAM params[] = {
        OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, digest, 0),
        OSSL_PARAM_construct_end()};
    EVP_MAC *mac;

    if (context)
        return context;
    mac = EVP_MAC_fetch(NULL, OSSL_MAC_NAME_HMAC, NULL);
    context = EVP_MAC_CTX_new(mac); /* NULL without a mac */
    EVP_MAC_free(mac);
    if (context && !EVP_MAC_CTX_set_params(context, params)) {
        EVP_MAC_CTX_free(context);
        context = NULL;
    }
    return context;
}

static int hmac(const uint8_t *key, const void *data, size_t size,
                uint8_t ret[AGENT_MAC_SIZE], struct err *err)
{
    EVP_MAC_CTX *c = mac_context();
    size_t n = 0;

    if (!c || !EVP_MAC_init(c, key, AGENT_KEY_SIZE, NULL) ||
        !EVP_MAC_update(c, data, size) || !EVP_MAC_final(c, ret, &n, AGENT_MAC_SIZE) ||
        n != AGENT_MAC_SIZE)
        return err_set(err, -EIO, "OpenSSL cannot compute an HMAC-SHA256");
    return 0;
}

int agent_keys_derive(const uint8_t key[AGENT_KEY_SIZE], struct agent_keys *ret,
                      struct err *err)
{
    static const char to_bridge[] = "tidegate agent to bridge 1";
    static const char to_agent[] = "tidegate bridge to agent 1";
    struct agent_keys k;
    int r;

    r = hmac(key, to_bridge, strlen(to_bridge), k.to_bridge, err);
    if (r == 0)
        r = hmac(key, to_agent, strlen(to_agent), k.to_agent, err);
    if (r == 0)
        *ret = k;
    OPENSSL_cleanse(&k, sizeof(k));
    return r;
}

/* ---- writing ----------------------------------------------------------------------- */

static int put8(struct buf *b, unsigned v)
{
    uint8_t n = (uint8_t)v;

    return buf_add(b, &n, sizeof(n));
}

static int put32(struct buf *b, uint32_t v)
{
    v = htobe32(v);
    return buf_add(b, &v, sizeof(v));
}

static int put64(struct buf *b, uint64_t v)
{
    v = htobe64(v);
    return buf_add(b, &v, sizeof(v));
}

static bool is_clean(unsigned char c)
{
    return c >= ' ' && c <= '~';
}

/* A size of two bytes and the text, NULL as "". At most `max` bytes of it; what is no printable ASCII
 * becomes '?': the reader takes nothing else. */
static int put_text(struct buf *b, const char *text, size_t max)
{
    size_t n = text ? strnlen(text, max) : 0, start = b->len + sizeof(uint16_t);
    uint16_t size = htobe16((uint16_t)n);
    int r = buf_add(b, &size, sizeof(size));

    if (r == 0)
        r = buf_add(b, text, n);
    for (size_t i = start; r == 0 && i < start + n; i++) {
        if (!is_clean((unsigned char)b->data[i]))
            b->data[i] = '?';
    }
    return r;
}

static int check_report(const struct agent_report *p, struct err *err)
{
    const struct node_line *l = &p->line;

    if (p->n_checks > AGENT_CHECKS_MAX)
        return err_set(err, -EMSGSIZE, "a report of %zu checks: at most %d can be sent",
                       p->n_checks, AGENT_CHECKS_MAX);
    if (strlen(l->gres ? l->gres : "") > AGENT_LINE_TEXT_MAX ||
        strlen(l->features ? l->features : "") > AGENT_LINE_TEXT_MAX)
        return err_set(err, -EMSGSIZE,
                       "GRES or features of the node's line are longer than %d bytes",
                       AGENT_LINE_TEXT_MAX);
    return 0;
}

static int put_report(struct buf *b, const struct agent_report *p)
{
    const struct node_line *l = &p->line;
    const uint32_t numbers[] = {l->boards, l->sockets, l->cores, l->threads, l->cpus};
    int r = 0;

    for (size_t i = 0; i < TG_LEN(numbers) && r == 0; i++)
        r = put32(b, numbers[i]);
    if (r == 0)
        r = put64(b, l->memory_mib);
    if (r == 0)
        r = put_text(b, l->gres, AGENT_LINE_TEXT_MAX);
    if (r == 0)
        r = put_text(b, l->features, AGENT_LINE_TEXT_MAX);
    if (r == 0)
        r = put8(b, (unsigned)p->n_checks);
    for (size_t i = 0; i < p->n_checks && r == 0; i++) {
        r = put_text(b, p->checks[i].name, AGENT_CHECK_NAME_MAX);
        if (r == 0)
            r = put_text(b, p->checks[i].text, AGENT_CHECK_TEXT_MAX);
        if (r == 0)
            r = put64(b, (uint64_t)p->checks[i].since);
    }
    return r;
}

static int put_heartbeat(struct buf *b, const struct agent_heartbeat *h)
{
    int r = put64(b, h->mono_ms);

    if (r == 0)
        r = put8(b, h->phase);
    if (r == 0)
        r = put8(b, h->slurmd);
    if (r == 0)
        r = put32(b, h->slurmd_pid);
    if (r == 0)
        r = put32(b, h->slurmd_restarts);
    return r < 0 ? r : put32(b, h->steps);
}

static int put_body(struct buf *b, const struct agent_frame *f)
{
    int r;

    switch (f->type) {
    case AGENT_CHALLENGE:
        return buf_add(b, f->challenge.nonce, AGENT_NONCE_SIZE);
    case AGENT_REFUSE:
        r = put8(b, f->refuse.code);
        return r < 0 ? r : put_text(b, f->refuse.text, sizeof(f->refuse.text) - 1);
    case AGENT_GREETING:
        return buf_add(b, f->credential.text, f->credential.size);
    case AGENT_ACCEPT:
        r = put32(b, f->accept.period_ms);
        return r < 0 ? r : put64(b, (uint64_t)f->accept.wall_ms);
    case AGENT_HEARTBEAT:
        return put_heartbeat(b, &f->heartbeat);
    case AGENT_REPORT:
        return put_report(b, &f->report);
    case AGENT_ACK:
        r = put64(b, f->ack.counter);
        return r < 0 ? r : put64(b, (uint64_t)f->ack.wall_ms);
    case AGENT_ASK:
        r = put8(b, f->ask.what);
        return r < 0 ? r : put_text(b, f->ask.arg, sizeof(f->ask.arg) - 1);
    }
    return -EINVAL;
}

static int put_header(struct buf *b, const struct agent_frame *f)
{
    const uint8_t about[4] = {AGENT_VERSION, (uint8_t)f->type, 0, 0};
    int r = buf_add(b, magic, sizeof(magic));

    if (r == 0)
        r = buf_add(b, about, sizeof(about));
    if (r == 0)
        r = put32(b, 0); /* the size, set once it is known */
    return r < 0 ? r : put64(b, has_mac(f->type) ? f->counter : 0);
}

static int put_frame(struct buf *b, const struct agent_frame *f, const uint8_t *key,
                     struct err *err)
{
    size_t start = b->len, body;
    uint8_t mac[AGENT_MAC_SIZE];
    uint32_t size;
    int r = put_header(b, f);

    if (r == 0)
        r = put_body(b, f);
    if (r < 0)
        return r;
    body = b->len - start - AGENT_HEADER_SIZE;
    if (body > body_max(f->type))
        return -EMSGSIZE;
    size = htobe32((uint32_t)body);
    memcpy(b->data + start + AT_SIZE, &size, sizeof(size));
    if (!has_mac(f->type))
        return 0;
    r = hmac(key, b->data + start, b->len - start, mac, err);
    return r < 0 ? r : buf_add(b, mac, sizeof(mac));
}

int agent_frame_write(const struct agent_frame *f, const uint8_t *key, struct buf *to,
                      struct err *err)
{
    size_t start = to->len;
    int r = 0;

    if (has_mac(f->type) && !key)
        return err_set(err, -EINVAL, "a frame of type %d needs a key", (int)f->type);
    if (f->type == AGENT_REPORT)
        r = check_report(&f->report, err);
    if (r < 0)
        return r;
    r = put_frame(to, f, key, err);
    if (r == 0)
        return 0;
    to->len = start;
    if (to->data)
        to->data[start] = '\0';
    if (r == -EMSGSIZE)
        err_set(err, r,
                "a frame of type %d is longer than %zu bytes, or its buffer is full",
                (int)f->type, body_max(f->type));
    if (r == -EINVAL)
        err_set(err, r, "there is no frame of type %d", (int)f->type);
    return r;
}

/* ---- reading ----------------------------------------------------------------------- */

/* What is left of a body. Once something is missing or bad, all that follows is 0 and `bad` stands. */
struct cursor {
    const uint8_t *at;
    size_t left;
    bool bad;
};

static const uint8_t *take(struct cursor *c, size_t n)
{
    const uint8_t *at = c->at;

    if (c->bad || n > c->left) {
        c->bad = true;
        return NULL;
    }
    c->at += n;
    c->left -= n;
    return at;
}

static void take_bytes(struct cursor *c, void *ret, size_t n)
{
    const uint8_t *at = take(c, n);

    if (at)
        memcpy(ret, at, n);
}

static uint8_t take8(struct cursor *c)
{
    uint8_t v = 0;

    take_bytes(c, &v, sizeof(v));
    return v;
}

static uint16_t take16(struct cursor *c)
{
    uint16_t v = 0;

    take_bytes(c, &v, sizeof(v));
    return be16toh(v);
}

static uint32_t take32(struct cursor *c)
{
    uint32_t v = 0;

    take_bytes(c, &v, sizeof(v));
    return be32toh(v);
}

static uint64_t take64(struct cursor *c)
{
    uint64_t v = 0;

    take_bytes(c, &v, sizeof(v));
    return be64toh(v);
}

/* A time or a count that has to fit where it is kept: never negative. */
static int64_t take_time(struct cursor *c)
{
    uint64_t v = take64(c);

    if (v > INT64_MAX)
        c->bad = true;
    return c->bad ? 0 : (int64_t)v;
}

/* One of 'from'..'to'. */
static unsigned take_one_of(struct cursor *c, unsigned from, unsigned to)
{
    unsigned v = take8(c);

    if (v < from || v > to)
        c->bad = true;
    return c->bad ? from : v;
}

/* NULL when it is bad; else the text within the input, with its size. */
static const char *take_text(struct cursor *c, size_t max, size_t *ret_size)
{
    size_t n = take16(c);
    const uint8_t *at = n <= max ? take(c, n) : NULL;

    if (!at)
        c->bad = true;
    for (size_t i = 0; at && i < n; i++) {
        if (!is_clean(at[i]))
            c->bad = true;
    }
    *ret_size = n;
    return c->bad ? NULL : (const char *)at;
}

/* Into a field of `size` bytes. */
static void take_field(struct cursor *c, char *ret, size_t size)
{
    size_t n;
    const char *at = take_text(c, size - 1, &n);

    ret[0] = '\0';
    if (at) {
        memcpy(ret, at, n);
        ret[n] = '\0';
    }
}

/* The caller frees; NULL for "" and when it is bad. */
static char *take_string(struct cursor *c, size_t max)
{
    size_t n;
    const char *at = take_text(c, max, &n);

    return at && n ? mem_strndup(at, n) : NULL;
}

static void take_report(struct cursor *c, struct agent_report *ret)
{
    struct node_line *l = &ret->line;
    size_t n;

    *ret = (struct agent_report){0};
    l->boards = take32(c);
    l->sockets = take32(c);
    l->cores = take32(c);
    l->threads = take32(c);
    l->cpus = take32(c);
    l->memory_mib = take64(c);
    l->gres = take_string(c, AGENT_LINE_TEXT_MAX);
    l->features = take_string(c, AGENT_LINE_TEXT_MAX);
    n = take_one_of(c, 0, AGENT_CHECKS_MAX);
    if (n)
        ret->checks = mem_calloc(n, sizeof(*ret->checks));
    for (size_t i = 0; i < n && !c->bad; i++) {
        struct check_fact *k = &ret->checks[ret->n_checks++];

        k->name = take_string(c, AGENT_CHECK_NAME_MAX);
        k->text = take_string(c, AGENT_CHECK_TEXT_MAX);
        k->since = take_time(c);
        if (!k->name || !k->text)
            c->bad = true;
    }
}

static void take_heartbeat(struct cursor *c, struct agent_heartbeat *ret)
{
    ret->mono_ms = take64(c);
    ret->phase = take_one_of(c, AGENT_STARTING, AGENT_GIVING_UP);
    ret->slurmd = take_one_of(c, SLURMD_OFF, SLURMD_WAITING);
    ret->slurmd_pid = take32(c);
    ret->slurmd_restarts = take32(c);
    ret->steps = take32(c);
}

/* The whole body; for munge_decode(), which wants a string, it must have no NUL. */
static void take_credential(struct cursor *c, struct agent_frame *f)
{
    f->credential.size = c->left;
    f->credential.text = (const char *)take(c, c->left);
    if (!f->credential.size)
        c->bad = true;
    for (size_t i = 0; i < f->credential.size && !c->bad; i++) {
        if (!is_clean((unsigned char)f->credential.text[i]))
            c->bad = true;
    }
}

static void take_body(struct cursor *c, struct agent_frame *f)
{
    switch (f->type) {
    case AGENT_CHALLENGE:
        take_bytes(c, f->challenge.nonce, AGENT_NONCE_SIZE);
        break;
    case AGENT_REFUSE:
        f->refuse.code = take_one_of(c, AGENT_REFUSE_RETRY, AGENT_REFUSE_IDENTITY);
        take_field(c, f->refuse.text, sizeof(f->refuse.text));
        break;
    case AGENT_GREETING:
        take_credential(c, f);
        break;
    case AGENT_ACCEPT:
        f->accept.period_ms = take32(c);
        f->accept.wall_ms = take_time(c);
        if (f->accept.period_ms < AGENT_PERIOD_MIN_MS ||
            f->accept.period_ms > AGENT_PERIOD_MAX_MS)
            c->bad = true;
        break;
    case AGENT_HEARTBEAT:
        take_heartbeat(c, &f->heartbeat);
        break;
    case AGENT_REPORT:
        take_report(c, &f->report);
        break;
    case AGENT_ACK:
        f->ack.counter = take64(c);
        f->ack.wall_ms = take_time(c);
        break;
    case AGENT_ASK:
        f->ask.what = take_one_of(c, AGENT_ASK_RESTART_SLURMD, AGENT_ASK_STOP);
        take_field(c, f->ask.arg, sizeof(f->ask.arg));
        break;
    }
    if (c->left)
        c->bad = true;
}

/* Of a header that is whole: the type and the body's size. */
static int read_header(const uint8_t *data, const uint8_t *key, struct agent_frame *f,
                       size_t *ret_body, struct err *err)
{
    uint32_t size;

    if (memcmp(data, magic, sizeof(magic)) != 0 || data[AT_ZERO] || data[AT_ZERO + 1])
        return err_set(err, -EBADMSG,
                       "it does not speak the protocol of Tidegate's agents");
    if (data[AT_VERSION] != AGENT_VERSION)
        return err_set(err, -EBADMSG,
                       "it speaks version %d of the agents' protocol, here it is version "
                       "%d: run the same release on both sides",
                       data[AT_VERSION], AGENT_VERSION);
    f->type = data[AT_TYPE];
    if (f->type < AGENT_CHALLENGE || f->type > AGENT_ASK)
        return err_set(err, -EBADMSG, "there is no frame of type %d", data[AT_TYPE]);
    if (has_mac(f->type) && !key)
        return err_set(err, -EBADMSG, "a frame of type %d came before the greeting",
                       data[AT_TYPE]);
    if (!has_mac(f->type) && key && f->type != AGENT_REFUSE)
        return err_set(err, -EBADMSG, "a frame of type %d came after the greeting",
                       data[AT_TYPE]);
    memcpy(&size, data + AT_SIZE, sizeof(size));
    size = be32toh(size);
    if (size > body_max(f->type))
        return err_set(
            err, -EMSGSIZE,
            "a frame of type %d says to have %u bytes, at most %zu are allowed",
            data[AT_TYPE], (unsigned)size, body_max(f->type));
    memcpy(&f->counter, data + AT_COUNTER, sizeof(f->counter));
    f->counter = be64toh(f->counter);
    if (!has_mac(f->type) && f->counter)
        return err_set(err, -EBADMSG,
                       "a frame of type %d has a counter, which it may not",
                       data[AT_TYPE]);
    *ret_body = size;
    return 0;
}

static int check_mac(const uint8_t *data, size_t size, const uint8_t *key,
                     struct err *err)
{
    uint8_t mac[AGENT_MAC_SIZE];
    int r = hmac(key, data, size, mac, err);

    if (r < 0)
        return r;
    if (CRYPTO_memcmp(mac, data + size, sizeof(mac)) != 0)
        return err_set(err, -EBADMSG, "a frame of type %d has a wrong MAC",
                       data[AT_TYPE]);
    return 0;
}

int agent_frame_read(const uint8_t *data, size_t size, const uint8_t *key,
                     struct agent_frame *ret, size_t *ret_used, struct err *err)
{
    struct cursor body = {0};
    struct agent_frame f;
    size_t whole;
    int r;

    memset(&f, 0, sizeof(f));
    *ret_used = 0;
    if (size < AGENT_HEADER_SIZE)
        return 0;
    r = read_header(data, key, &f, &body.left, err);
    if (r < 0)
        return r;
    whole = AGENT_HEADER_SIZE + body.left;
    if (size < whole + (has_mac(f.type) ? AGENT_MAC_SIZE : 0))
        return 0;
    if (has_mac(f.type)) {
        r = check_mac(data, whole, key, err);
        if (r < 0)
            return r;
    }
    body.at = data + AGENT_HEADER_SIZE;
    take_body(&body, &f);
    if (body.bad) {
        agent_frame_clear(&f);
        return err_set(err, -EBADMSG, "a frame of type %d has a body that cannot be read",
                       data[AT_TYPE]);
    }
    *ret = f;
    *ret_used = whole + (has_mac(f.type) ? AGENT_MAC_SIZE : 0);
    return 0;
}

/* ---- the greeting ------------------------------------------------------------------ */

int agent_greeting_write(const struct agent_greeting *g, struct buf *to, struct err *err)
{
    size_t start = to->len;
    int r = buf_add(to, greeting_magic, sizeof(greeting_magic));

    if (r == 0)
        r = put8(to, AGENT_VERSION);
    if (r == 0)
        r = buf_add(to, g->nonce, sizeof(g->nonce));
    if (r == 0)
        r = buf_add(to, g->key, sizeof(g->key));
    if (r == 0)
        r = put_text(to, g->node, sizeof(g->node) - 1);
    if (r == 0)
        r = put_text(to, g->pod_uid, sizeof(g->pod_uid) - 1);
    if (r == 0)
        r = put_text(to, g->boot_id, sizeof(g->boot_id) - 1);
    if (r == 0)
        r = put_text(to, g->instance, sizeof(g->instance) - 1);
    if (r < 0) {
        to->len = start;
        return err_set(err, r, "a greeting does not fit into %zu bytes", to->cap);
    }
    return 0;
}

int agent_greeting_read(const void *data, size_t size, struct agent_greeting *ret,
                        struct err *err)
{
    struct cursor c = {data, size, false};
    struct agent_greeting g;
    uint8_t begin[sizeof(greeting_magic)] = {0};

    take_bytes(&c, begin, sizeof(begin));
    if (c.bad || memcmp(begin, greeting_magic, sizeof(begin)) != 0)
        return err_set(err, -EBADMSG, "the credential does not hold an agent's greeting");
    if (take8(&c) != AGENT_VERSION)
        return err_set(
            err, -EBADMSG,
            "the greeting is not of version %d: run the same release on both sides",
            AGENT_VERSION);
    take_bytes(&c, g.nonce, sizeof(g.nonce));
    take_bytes(&c, g.key, sizeof(g.key));
    take_field(&c, g.node, sizeof(g.node));
    take_field(&c, g.pod_uid, sizeof(g.pod_uid));
    take_field(&c, g.boot_id, sizeof(g.boot_id));
    take_field(&c, g.instance, sizeof(g.instance));
    if (c.bad || c.left || !g.node[0] || !g.pod_uid[0] || !g.boot_id[0] || !g.instance[0])
        return err_set(err, -EBADMSG,
                       "the greeting cannot be read: node, pod uid, boot id and instance "
                       "must be there, in printable ASCII");
    *ret = g;
    return 0;
}
