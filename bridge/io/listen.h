/* SPDX-License-Identifier: GPL-2.0-or-later */
#ifndef TG_IO_LISTEN_H
#define TG_IO_LISTEN_H

#include "base/err.h"

/*
 * A socket that listens on `text`: "0.0.0.0:8080", "127.0.0.1:0" or "[::]:8080", which is for IPv4 as
 * well. Returns the descriptor, or a negative errno; ret_port: the one that was bound.
 */
int listen_on(const char *text, int backlog, unsigned *ret_port, struct err *err)
    _must_use_;

#endif
