/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A real munged with a key of its own, for a test. */
#ifndef TG_TESTS_MUNGED_H
#define TG_TESTS_MUNGED_H

#include <sys/types.h>

struct munged {
    char dir[64];
    char socket[96];
    pid_t pid;
};

void munged_start(struct munged *m); /* answers when it returns; asserts */
void munged_stop(struct munged *m);

#endif
