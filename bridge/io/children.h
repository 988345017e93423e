/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The processes of a PID 1: starts programs without a shell, tells who asked when they end, kills what
 * outlives its deadline with all its group, and reaps every orphan that comes to it.
 */
#ifndef TG_IO_CHILDREN_H
#define TG_IO_CHILDREN_H

#include <stdint.h>
#include <sys/types.h>
#include <systemd/sd-event.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/mem.h"

struct children;

/* Blocks SIGCHLD in the calling thread and takes every child's end from the event loop. */
int children_new(sd_event *event, struct children **ret, struct err *err) _must_use_;
void children_free(struct children *c); /* what still runs goes on, nobody is told */
TG_DEFINE_FREEP(struct children, children_free);

struct child_end {
    pid_t pid;
    int status;     /* of wait(): WIFEXITED() and so on */
    bool timed_out; /* it was killed at its deadline */
    const char
        *output; /* what was captured (NUL-terminated, cut at the cap); "" when none */
};

struct child_spec {
    const char *const *argv; /* argv[0] is looked up in PATH; ended by NULL */
    const char *const
        *setenv; /* "NAME=value" beside the environment; ended by NULL, or NULL */
    bool drop;   /* run as uid and gid, without further groups */
    uid_t uid;
    gid_t gid;
    const void *input; /* written to its stdin (at most 64 KiB); NULL: /dev/null */
    size_t input_size;
    size_t
        capture; /* 0: stdout and stderr are ours; else both are kept up to this many bytes */
    int64_t deadline_ms; /* 0: none. Then SIGKILL to its whole process group */
    void (*on_end)(const struct child_end *end,
                   void *userdata); /* once; not from child_start() */
    void *userdata;
};

/* It gets a process group of its own. A program that cannot be executed fails here with -ENOENT, -EACCES... */
int child_start(struct children *c, const struct child_spec *spec, pid_t *ret_pid,
                struct err *err) _must_use_;
/* To the process, or with `group` to its whole group. Nothing happens when it has ended already. */
void child_kill(struct children *c, pid_t pid, int signal, bool group);
/* Nobody is told any more how this one ends; it is still reaped. */
void child_forget(struct children *c, pid_t pid);
uint64_t children_reaped(const struct children *c); /* orphans */

#endif
