/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The frames between a node's agent (tidegate-node) and the bridge; docs/agent-protocol.md is the
 * page for people. A frame is a header of 20 bytes, a body of at most AGENT_BODY_MAX bytes and, but
 * for the two that come before there is a key, an HMAC-SHA256 over both. Numbers are big-endian.
 *
 * The bridge speaks first: CHALLENGE with a nonce, or REFUSE at once. The agent answers GREETING, an encrypted munge
 * credential that only the bridge's uid can read and that carries nonce, session key and who it is.
 * Then ACCEPT, or REFUSE with a sentence. From then on each side counts its frames from 1 and takes
 * only the next number: a frame that is replayed, lost or out of order ends the connection.
 */
#ifndef TG_CODEC_AGENT_FRAME_H
#define TG_CODEC_AGENT_FRAME_H

#include <stdint.h>

#include "base/buf.h"
#include "core/model.h"

#define AGENT_VERSION 1
#define AGENT_HEADER_SIZE                                                                \
    20 /* magic[4] "TGNF", version, type, 2 zero bytes, body size[4], counter[8] */
#define AGENT_MAC_SIZE 32 /* SHA-256 */
#define AGENT_BODY_MAX                                                                   \
    16384 /* the longest, a report of 64 checks with their sentences, fits */
#define AGENT_FRAME_MAX (AGENT_HEADER_SIZE + AGENT_BODY_MAX + AGENT_MAC_SIZE)
#define AGENT_CREDENTIAL_MAX                                                             \
    2048 /* of a GREETING: one of munge with the longest payload has about 700 bytes */
#define AGENT_NONCE_SIZE 32
#define AGENT_KEY_SIZE   32

/* Of a report; with these and a line the longest fits into a body. What is longer is cut, but for the
 * line, which is then refused. */
#define AGENT_CHECKS_MAX     64
#define AGENT_CHECK_NAME_MAX 32
#define AGENT_CHECK_TEXT_MAX 200
#define AGENT_LINE_TEXT_MAX  256 /* GRES, features */

/* An ACCEPT with another period is no frame of ours. */
#define AGENT_PERIOD_MIN_MS 50
#define AGENT_PERIOD_MAX_MS 600000

enum agent_frame_type {
    AGENT_CHALLENGE = 1, /* bridge: nonce */
    AGENT_REFUSE =
        2, /* bridge: code and sentence; then it closes. No MAC: not to be trusted */
    AGENT_GREETING = 3,  /* agent: the credential, as munge_encode() gave it. No MAC */
    AGENT_ACCEPT = 4,    /* bridge: how it is to go on */
    AGENT_HEARTBEAT = 5, /* agent */
    AGENT_REPORT =
        6, /* agent: what seldom changes; after ACCEPT, and when it has changed */
    AGENT_ACK =
        7, /* bridge: answers a heartbeat that tells something new, and each second of the
                      others */
    AGENT_ASK = 8, /* bridge: asks for something to be done */
};

/* Why a greeting is refused. RETRY: this bridge does not lead, the other one may. */
enum agent_refusal {
    AGENT_REFUSE_RETRY = 1,
    AGENT_REFUSE_BUSY = 2,
    AGENT_REFUSE_IDENTITY = 3
};

enum agent_ask {
    AGENT_ASK_RESTART_SLURMD =
        1, /* its record was deleted: register anew with a fresh line */
    AGENT_ASK_RUN_CHECKS = 2, /* all of them, now; `arg` names one */
    AGENT_ASK_STOP = 3,       /* stop politely, as for SIGTERM */
};

struct agent_challenge {
    uint8_t nonce[AGENT_NONCE_SIZE];
};

struct agent_refuse {
    enum agent_refusal code;
    char text[256];
};

/* The credential's payload; everything in it is under munge's MAC and cipher. */
struct agent_greeting {
    uint8_t nonce[AGENT_NONCE_SIZE]; /* the one of the CHALLENGE */
    uint8_t key[AGENT_KEY_SIZE];
    char node[64]; /* Kubernetes' and Slurm's name of the node */
    char pod_uid[64];
    char boot_id[64];
    char instance[40]; /* of this start of the agent: 32 hex digits */
};

struct agent_accept {
    uint32_t period_ms; /* between two heartbeats */
    int64_t wall_ms;    /* the bridge's clock */
};

struct agent_heartbeat {
    uint64_t mono_ms; /* CLOCK_BOOTTIME of the node */
    enum agent_phase phase;
    enum slurmd_state slurmd;
    uint32_t slurmd_pid;
    uint32_t slurmd_restarts;
    uint32_t steps; /* slurmstepds that run */
};

struct agent_report {
    struct node_line line;
    struct check_fact *checks; /* those that keep the node from jobs */
    size_t n_checks;
};

struct agent_ack {
    uint64_t counter; /* of the heartbeat */
    int64_t wall_ms;
};

struct agent_asked {
    enum agent_ask what;
    char arg[64];
};

struct agent_frame {
    enum agent_frame_type type;
    uint64_t counter;
    union {
        struct agent_challenge challenge;
        struct agent_refuse refuse;
        struct {
            const char *text; /* borrowed from the input of agent_frame_read() */
            size_t size;
        } credential; /* of GREETING */
        struct agent_accept accept;
        struct agent_heartbeat heartbeat;
        struct agent_report report;
        struct agent_ack ack;
        struct agent_asked ask;
    };
};
void agent_frame_clear(struct agent_frame *f); /* what a report owns */

/* The two keys of a session, by HMAC of a label under the greeting's key: no frame of one side can be
 * played back to it as if the other had sent it. */
struct agent_keys {
    uint8_t to_bridge[AGENT_KEY_SIZE];
    uint8_t to_agent[AGENT_KEY_SIZE];
};
int agent_keys_derive(const uint8_t key[AGENT_KEY_SIZE], struct agent_keys *ret,
                      struct err *err) _must_use_;

/*
 * Appends the frame; `key` (AGENT_KEY_SIZE bytes) is not used for the three that have no MAC. What is
 * no printable ASCII in a text becomes '?'.
 */
int agent_frame_write(const struct agent_frame *f, const uint8_t *key, struct buf *to,
                      struct err *err) _must_use_;

/*
 * Reads the first frame in data. 0: ret_used is 0 when more bytes are needed, else the frame's size.
 * -EBADMSG: no frame of ours, or its MAC is wrong (compared in constant time); -EMSGSIZE: it says to
 * be longer than allowed, seen from the header alone. A frame type that needs a MAC is refused while
 * `key` is NULL, and CHALLENGE and GREETING are refused once there is a key. REFUSE comes with and
 * without: it says no more than that the connection ends, which who can forge it can do anyway.
 * Counters are for the caller to compare.
 */
int agent_frame_read(const uint8_t *data, size_t size, const uint8_t *key,
                     struct agent_frame *ret, size_t *ret_used, struct err *err)
    _must_use_;

int agent_greeting_write(const struct agent_greeting *g, struct buf *to, struct err *err)
    _must_use_;
/* Every text must be a clean one: printable ASCII, ended within its field. */
int agent_greeting_read(const void *data, size_t size, struct agent_greeting *ret,
                        struct err *err) _must_use_;

#endif
