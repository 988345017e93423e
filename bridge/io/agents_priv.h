/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The parts of agents: who may come in (agents.c), what is known of whom (agents_facts.c), one connection
 * (agents_link.c), munge on its thread (agents_decode.c). Private to io/agents*.c. */
#ifndef TG_IO_AGENTS_PRIV_H
#define TG_IO_AGENTS_PRIV_H

#include <netinet/in.h>
#include <sys/queue.h>
#include <uthash.h>

#include "io/agents.h"
#include "io/cred.h"

#define LOST_PERIODS 3 /* a link is lost after so many without a heartbeat */

/* ---- munge --------------------------------------------------------------------------- */

struct conn;

/* A credential on its way to munged and back. */
struct decode_job {
    TAILQ_ENTRY(decode_job) entry;
    struct conn *conn; /* of the loop's thread; NULL: nobody waits for it any more */
    char *text;
    size_t size;
    int code; /* of cred_decode() */
    struct err err;
    struct cred cred;
};

struct decoder;

/* on_done: on the loop, once for each job that was not cancelled; the job is freed afterwards. */
int decoder_new(sd_event *event, const char *munge_socket,
                void (*on_done)(struct decode_job *job, void *userdata), void *userdata,
                struct decoder **ret, struct err *err) _must_use_;
/* Does not wait for a munged that hangs. */
void decoder_free(struct decoder *d);
/* How many wait is bounded by who submits: one for each connection that is not accepted yet. */
struct decode_job *decoder_submit(struct decoder *d, struct conn *conn, const char *text,
                                  size_t size);
void decoder_cancel(struct decoder *d, struct decode_job *job);

/* ---- connections --------------------------------------------------------------------- */

enum step {
    STEP_GREETING, /* CHALLENGE is sent */
    STEP_MUNGE,    /* the greeting is at munged's */
    STEP_LINKED,   /* ACCEPT is sent */
    STEP_DEAD,     /* closed; freed by agents_settle() */
    STEP_COUNT_,
};

/* What is kept of an accepted agent. */
struct link {
    struct node *node;
    struct agent_keys keys;
    struct agent_greeting *greeting; /* who it is, until its first heartbeat */
    uint64_t sent;                   /* counters of frames */
    uint64_t received;
    int64_t heard_at;  /* of the last heartbeat, or of ACCEPT */
    int64_t ends_at;   /* a session that is older has to begin anew */
    int64_t window_at; /* how many frames came since then */
    unsigned window_frames;
    bool reported;
    bool owes_answer; /* the last heartbeat was not answered */
};

struct conn {
    TAILQ_ENTRY(conn) entry; /* in the list of its step */
    struct agents *agents;
    int fd;
    enum step step;
    bool wants_write;
    int64_t deadline;       /* of STEP_GREETING and STEP_MUNGE */
    struct buf in;          /* nothing is allocated while there is no piece of a frame */
    struct buf out;         /* what the socket did not take */
    struct decode_job *job; /* of STEP_MUNGE */
    struct link *link;      /* of STEP_LINKED */
    uint8_t nonce[AGENT_NONCE_SIZE]; /* of the CHALLENGE */
    char addr[INET6_ADDRSTRLEN];     /* of the peer, as in podIP */
};
TAILQ_HEAD(conns, conn);

/* One node that has ever been linked since this bridge leads. */
struct node {
    char *name;
    struct agent_fact fact;
    struct conn *link; /* NULL: lost */
    int64_t expires;   /* its old session was ended, the new one is due by then; 0: no */
    TAILQ_ENTRY(node) renewing;
    UT_hash_handle hh;
};

/* What is said in the log, each kind with a limit of its own: noise of one hides no other. */
enum say {
    SAY_ADDRESS, /* not a compute pod's */
    SAY_BUSY,
    SAY_FRAME,
    SAY_SILENT,
    SAY_MUNGE,
    SAY_IDENTITY,
    SAY_LINKED,
    SAY_LOST,
    SAY_COUNT_,
};

struct limiter {
    int64_t window_at;
    unsigned said;
    uint64_t swallowed;
};

struct agents {
    sd_event *event;
    struct agents_config config;
    char *munge_socket;
    bool leader;
    int listen_fd;
    unsigned port;
    int epoll_fd; /* of all connections: one event source for them all */
    sd_event_source *source;
    sd_event_source *timer;
    int64_t timer_at; /* INT64_MAX: off */
    /* 0: when something comes; else `source` is off until then */
    int64_t look_at;
    /* 0: at once; else no descriptor was left, and none is tried before then */
    int64_t accepts_again;
    int64_t now; /* CLOCK_BOOTTIME ms of this turn of the loop */
    struct decoder *decoder;
    struct conns conns[STEP_COUNT_]; /* by deadline, links by heard_at */
    size_t n_conns[STEP_COUNT_];
    struct node *nodes;                  /* by name */
    TAILQ_HEAD(renewing, node) renewing; /* by `expires` */
    struct buf frame;                    /* being written */
    bool changed;                        /* on_change() is due */
    struct agents_counts counts;
    struct limiter limits[SAY_COUNT_];
};

/* agents_facts.c */
struct node *node_find(const struct agents *a, const char *name);
struct node *node_get(struct agents *a, const char *name); /* made when there is none */
void node_free(struct agents *a, struct node *n);          /* closes its link, too */
void agents_lost(struct conn *c); /* its link stood until now: tells the node's facts */
void agents_heard(struct conn *c, struct agent_frame *f); /* may take what f owns */
void agents_expire_renewing(struct agents *a);

/* agents.c */
void agents_say(struct agents *a, enum say what, const char *msg, const char *addr,
                const char *node, const char *why);

/* agents_link.c */
struct conn *conn_new(struct agents *a, int fd, const char *addr);
void conn_ready(struct conn *c, uint32_t events);
void conn_send(struct conn *c, struct agent_frame *f); /* may end it: look at `step` */
void conn_accept(struct conn *c, struct node *node, const struct agent_greeting *g);
/* Before it is accepted: tells the peer and the log why, and closes. */
void conn_refuse(struct conn *c, enum agent_refusal code, enum say what, const char *why);
/* Tells the peer to begin anew, and closes: nobody's fault, nothing is counted. */
void conn_dismiss(struct conn *c, const char *why);
/* An accepted one has ended by itself or by its fault. */
void conn_lose(struct conn *c, const char *why);
void conn_close(struct conn *c); /* without a word; freed later */
void conn_free(struct conn *c);

#endif
