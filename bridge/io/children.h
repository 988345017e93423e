/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The processes of a PID 1: starts programs without a shell, tells who asked when they end, kills what
 * outlives its deadline with all its group, and reaps every orphan that comes to it.
 *
 * Nothing here waits for a child: not for its exec on a dead mount (longer than EXEC_WAIT_MS), not for
 * its output, not for its end.
 */
#ifndef TG_IO_CHILDREN_H
#define TG_IO_CHILDREN_H

#include <stdint.h>
#include <sys/types.h>
#include <systemd/sd-event.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/mem.h"

#define CHILD_INPUT_MAX 65536
#define CHILD_NO_EXEC                                                                    \
    127 /* exit status of one that could not be executed; its output says why */

struct children;

/* Blocks SIGCHLD in the calling thread, takes every child's end from the event loop, and makes this
 * process the one that orphans below it come to (a PID 1 is that anyway). */
int children_new(sd_event *event, struct children **ret, struct err *err) _must_use_;
void children_free(struct children *c); /* what still runs goes on, nobody is told */
TG_DEFINE_FREEP(struct children, children_free);

struct child_end {
    pid_t pid;
    int status;     /* of wait(): WIFEXITED() and so on */
    bool timed_out; /* it was killed at its deadline */
    bool
        stuck; /* and does not even die of SIGKILL (a dead mount): child_exists() until it does */
    const char
        *output; /* what was captured (NUL-terminated, cut at the cap); "" when none */
    size_t size;
};

struct child_spec {
    const char *const *argv; /* argv[0] is looked up in PATH; ended by NULL */
    /* "NAME=value" beside the environment and before it; "NAME" alone takes one away; ended by NULL, or NULL */
    const char *const *setenv;
    bool drop; /* run as uid and gid, without further groups */
    uid_t uid;
    gid_t gid;
    const void
        *input; /* what it finds on stdin (at most CHILD_INPUT_MAX); NULL: /dev/null */
    size_t input_size;
    size_t
        capture; /* 0: stdout and stderr are ours; else both are kept up to this many bytes */
    /* 0: none. Then SIGKILL to its whole process group; what is left of the group when it ends by itself
     * is killed as well. */
    int64_t deadline_ms;
    void (*on_end)(const struct child_end *end,
                   void *userdata); /* once; not from child_start() */
    void *userdata;
};

/* It gets a process group of its own, no signal blocked or ignored, and no descriptor but the first three. A
 * program that cannot be executed fails here with -ENOENT, -EACCES... or, when that takes long to find
 * out, by on_end with CHILD_NO_EXEC. */
int child_start(struct children *c, const struct child_spec *spec, pid_t *ret_pid,
                struct err *err) _must_use_;
/* To the process, or with `group` to its whole group. Nothing happens when it has ended already. */
void child_kill(struct children *c, pid_t pid, int signal, bool group);
/* Nobody is told any more how this one ends; it is still reaped. */
void child_forget(struct children *c, pid_t pid);
/* Whether it was started here and has not been reaped. */
bool child_exists(const struct children *c, pid_t pid);
uint64_t children_reaped(const struct children *c); /* orphans */

/* "exit status 3", "killed by SIGKILL (Killed)", "no end within 5 s": how it ended, for a sentence. */
struct child_words {
    char text[96];
};
struct child_words child_describe(const struct child_end *end);

#endif
