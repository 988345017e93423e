/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Strict reading of parsed JSON. A path names members with dots between them
 * ("metadata.name"), from `obj` down; a member whose own name has a dot is taken by
 * json_member(). A member that is absent and one that is null are the same. What has the
 * wrong type is -EBADMSG with the path and what was expected in the sentence, for the
 * opt_ functions too: it is never taken for 'absent'. What is given back is borrowed from
 * `obj`.
 */
#ifndef TG_CODEC_JSON_H
#define TG_CODEC_JSON_H

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/mem.h"

TG_DEFINE_FREEP(cJSON, cJSON_Delete);

/* One JSON object and nothing behind it but white space; -EBADMSG. */
int json_parse(const char *text, size_t len, cJSON **ret, struct err *err) _must_use_;

/* The member of this very name (dots and case count); NULL when absent or null. */
const cJSON *json_member(const cJSON *obj, const char *name);

/* -EBADMSG when it is not there. A string must not be empty, an int must be whole. */
int json_get_str(const cJSON *obj, const char *path, const char **ret, struct err *err)
    _must_use_;
int json_get_int(const cJSON *obj, const char *path, int64_t *ret, struct err *err)
    _must_use_;
int json_get_bool(const cJSON *obj, const char *path, bool *ret, struct err *err)
    _must_use_;
int json_get_obj(const cJSON *obj, const char *path, const cJSON **ret, struct err *err)
    _must_use_;
int json_get_array(const cJSON *obj, const char *path, const cJSON **ret, struct err *err)
    _must_use_;

/* The same, but what is not there gives NULL, 0 or false; a string may be empty. */
int json_opt_str(const cJSON *obj, const char *path, const char **ret, struct err *err)
    _must_use_;
int json_opt_int(const cJSON *obj, const char *path, int64_t *ret, struct err *err)
    _must_use_;
int json_opt_bool(const cJSON *obj, const char *path, bool *ret, struct err *err)
    _must_use_;
int json_opt_obj(const cJSON *obj, const char *path, const cJSON **ret, struct err *err)
    _must_use_;
int json_opt_array(const cJSON *obj, const char *path, const cJSON **ret, struct err *err)
    _must_use_;

#endif
