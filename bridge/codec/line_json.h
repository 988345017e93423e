/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The node's line as `tidegate-node line --json` prints it and the agent reads it. */
#ifndef TG_CODEC_LINE_JSON_H
#define TG_CODEC_LINE_JSON_H

#include "base/buf.h"
#include "core/model.h"

#define LINE_JSON_MAX 4096 /* a line with eight models of devices has about 500 bytes */

/*
 * {"boards":1,"sockets":2,"cores":4,"threads":2,"cpus":16,"memoryMiB":64000,"gres":"gpu:h100:8",
 *  "features":"rdma","text":"Boards=1 SocketsPerBoard=2 ..."}; gres and features may be null.
 * -EMSGSIZE when the buffer's cap is passed.
 */
int line_json_write(const struct node_line *l, struct buf *to, struct err *err)
    _must_use_;
/* Strict; keys that are not known are left aside. -EBADMSG. */
int line_json_read(const char *text, size_t len, struct node_line *ret, struct err *err)
    _must_use_;

#endif
