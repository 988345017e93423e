// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The bridge's side of one connection: any bytes from a peer that is not accepted yet, and from one
 * that is, cut into any pieces; an accepted one also sends frames under the right key whose bodies are
 * any bytes. The counts must stay right, and what is kept of the node readable.
 *
 * Input: a byte (bit 0: accepted), then pieces: a byte, a size of two bytes, that many bytes. Of the
 * first byte bit 7 means raw bytes; else it is the type of a frame with these bytes as its body.
 */
#include <endian.h>
#include <openssl/hmac.h>
#include <stdint.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "io/agents_priv.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct kube_pod pod = {.node = (char *)"w1", .uid = (char *)"uid-1"};
static struct agents *agents;
static sd_event *event;

static const struct kube_pod *pod_of(const char *addr, void *userdata)
{
    (void)addr;
    (void)userdata;
    return &pod;
}

static void on_change(void *userdata)
{
    (void)userdata;
}

static void begin(void)
{
    struct agents_config config = {.listen = "127.0.0.1:0",
                                   .period_ms = 3000,
                                   .max_links = 4,
                                   .munge_socket = "/nonexistent/munge",
                                   .pod_of = pod_of,
                                   .on_change = on_change};

    log_set_level(LOG_LEVEL_ERROR);
    if (sd_event_new(&event) < 0 || agents_new(event, &config, &agents, NULL) < 0)
        abort();
    agents_set_leader(agents, true);
}

/* A whole frame with its MAC, whatever the body. */
static size_t make_frame(uint8_t *to, uint8_t type, uint64_t counter, const uint8_t *body,
                         size_t size, const uint8_t *key)
{
    const uint8_t about[8] = {'T', 'G', 'N', 'F', AGENT_VERSION, type};
    uint32_t n = htobe32((uint32_t)size);
    unsigned mac = AGENT_MAC_SIZE;

    counter = htobe64(counter);
    memcpy(to, about, sizeof(about));
    memcpy(to + 8, &n, sizeof(n));
    memcpy(to + 12, &counter, sizeof(counter));
    memcpy(to + AGENT_HEADER_SIZE, body, size);
    if (!HMAC(EVP_sha256(), key, AGENT_KEY_SIZE, to, AGENT_HEADER_SIZE + size,
              to + AGENT_HEADER_SIZE + size, &mac))
        abort();
    return AGENT_HEADER_SIZE + size + mac;
}

static void check(const struct conn *c)
{
    const struct agent_fact *f = agents_get(agents, "w1");
    size_t n = 0;

    for (size_t i = 0; i < STEP_COUNT_; i++)
        n += agents->n_conns[i];
    if (n != 1 || agents->n_conns[c->step] != 1 ||
        (c->step == STEP_LINKED) != !!c->link || (c->step == STEP_MUNGE) != !!c->job ||
        c->in.len > c->in.cap)
        abort();
    if (f && (f->linked != (c->link ? TRI_YES : TRI_NO) || !f->pod_uid || !f->instance ||
              f->n_checks > AGENT_CHECKS_MAX))
        abort();
}

static void feed(struct conn *c, int fd, const uint8_t *data, size_t size)
{
    const struct agent_keys keys = c->link ? c->link->keys : (struct agent_keys){0};
    uint8_t whole[AGENT_FRAME_MAX + 1];

    while (size >= 3 && c->step != STEP_DEAD) {
        size_t n = (size_t)data[1] << 8 | data[2];
        uint8_t kind = data[0];

        data += 3;
        size -= 3;
        if (n > size)
            n = size;
        if (n > AGENT_BODY_MAX)
            n = AGENT_BODY_MAX;
        if (kind & 0x80 || !c->link) {
            (void)send(fd, data, n, MSG_NOSIGNAL | MSG_DONTWAIT);
        } else {
            size_t all =
                make_frame(whole, kind, c->link->received + 1, data, n, keys.to_bridge);

            (void)send(fd, whole, all, MSG_NOSIGNAL | MSG_DONTWAIT);
        }
        for (int i = 0; i < 8; i++)
            conn_ready(c, EPOLLIN);
        check(c);
        data += n;
        size -= n;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct agent_greeting g = {.key = "any key",
                                     .node = "w1",
                                     .pod_uid = "uid-1",
                                     .boot_id = "b",
                                     .instance = "i"};
    struct conn *c;
    int fds[2];

    if (!agents)
        begin();
    if (!size || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) < 0)
        return 0;
    c = conn_new(agents, fds[0], "10.0.0.1");
    if (data[0] & 1)
        conn_accept(c, node_get(agents, "w1"), &g);
    feed(c, fds[1], data + 1, size - 1);
    (void)close(fds[1]);
    conn_ready(c, EPOLLIN | EPOLLHUP | EPOLLRDHUP);
    if (c->step != STEP_DEAD)
        abort();
    conn_free(c);
    if (node_find(agents, "w1"))
        node_free(agents, node_find(agents, "w1"));
    return 0;
}
