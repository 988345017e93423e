// SPDX-License-Identifier: GPL-2.0-or-later
#include "codec/json.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>

#define NAME_MAX_BYTES 128 /* of one part of a path; paths come from our own code */
#define WHOLE_MAX                                                                        \
    9007199254740991. /* 2^53 - 1: a double holds every whole number up to it */

int json_parse(const char *text, size_t len, cJSON **ret, struct err *err)
{
    _cleanup_(cJSON_Deletep) cJSON *obj = NULL;
    const char *end = NULL;

    obj = cJSON_ParseWithLengthOpts(text, len, &end, 0);
    if (!obj)
        return err_set(err, -EBADMSG, "not valid JSON at byte %zu of %zu",
                       end ? (size_t)(end - text) : 0, len);
    while (end < text + len && isspace((unsigned char)*end))
        end++;
    if (end < text + len)
        return err_set(err, -EBADMSG, "text behind the JSON value, at byte %zu of %zu",
                       (size_t)(end - text), len);
    if (!cJSON_IsObject(obj))
        return err_set(err, -EBADMSG, "not a JSON object");
    *ret = obj;
    obj = NULL;
    return 0;
}

const cJSON *json_member(const cJSON *obj, const char *name)
{
    const cJSON *m = cJSON_GetObjectItemCaseSensitive(obj, name);

    return cJSON_IsNull(m) ? NULL : m;
}

/* *ret is NULL when the member, or an object on the way to it, is not there. */
static int find(const cJSON *obj, const char *path, const cJSON **ret, struct err *err)
{
    const char *part = path;

    for (;;) {
        size_t n = strcspn(part, ".");
        char name[NAME_MAX_BYTES];

        if (!cJSON_IsObject(obj))
            return part == path
                       ? err_set(err, -EBADMSG, "not an object, so it has no %s", path)
                       : err_set(err, -EBADMSG, "%.*s: wrong type, expected an object",
                                 (int)(part - path - 1), path);
        if (n >= sizeof(name))
            return err_set(err, -EINVAL, "%s: a part of the path is too long", path);
        memcpy(name, part, n);
        name[n] = '\0';
        obj = json_member(obj, name);
        if (!obj || !part[n])
            break;
        part += n + 1;
    }
    *ret = obj;
    return 0;
}

static int take(const cJSON *obj, const char *path, cJSON_bool (*is)(const cJSON *),
                const char *expected, bool required, const cJSON **ret, struct err *err)
{
    const cJSON *m = NULL;
    int r = find(obj, path, &m, err);

    if (r < 0)
        return r;
    if (!m && required)
        return err_set(err, -EBADMSG, "%s: missing, expected %s", path, expected);
    if (m && !is(m))
        return err_set(err, -EBADMSG, "%s: wrong type, expected %s", path, expected);
    *ret = m;
    return 0;
}

static int take_str(const cJSON *obj, const char *path, bool required, const char **ret,
                    struct err *err)
{
    const cJSON *m = NULL;
    int r = take(obj, path, cJSON_IsString, "a string", required, &m, err);

    if (r < 0)
        return r;
    if (required && (!m || !*m->valuestring))
        return err_set(err, -EBADMSG, "%s: empty, expected a string", path);
    *ret = m ? m->valuestring : NULL;
    return 0;
}

static int take_int(const cJSON *obj, const char *path, bool required, int64_t *ret,
                    struct err *err)
{
    const cJSON *m = NULL;
    double v;
    int r = take(obj, path, cJSON_IsNumber, "a whole number", required, &m, err);

    if (r < 0)
        return r;
    v = m ? m->valuedouble : 0;
    /* Written so that a NaN fails too. */
    if (!(v >= -WHOLE_MAX && v <= WHOLE_MAX) || v != (double)(int64_t)v)
        return err_set(err, -EBADMSG, "%s: %g, expected a whole number", path, v);
    *ret = (int64_t)v;
    return 0;
}

static int take_bool(const cJSON *obj, const char *path, bool required, bool *ret,
                     struct err *err)
{
    const cJSON *m = NULL;
    int r = take(obj, path, cJSON_IsBool, "true or false", required, &m, err);

    if (r < 0)
        return r;
    *ret = m && cJSON_IsTrue(m);
    return 0;
}

int json_get_str(const cJSON *obj, const char *path, const char **ret, struct err *err)
{
    return take_str(obj, path, true, ret, err);
}

int json_opt_str(const cJSON *obj, const char *path, const char **ret, struct err *err)
{
    return take_str(obj, path, false, ret, err);
}

int json_get_int(const cJSON *obj, const char *path, int64_t *ret, struct err *err)
{
    return take_int(obj, path, true, ret, err);
}

int json_opt_int(const cJSON *obj, const char *path, int64_t *ret, struct err *err)
{
    return take_int(obj, path, false, ret, err);
}

int json_get_bool(const cJSON *obj, const char *path, bool *ret, struct err *err)
{
    return take_bool(obj, path, true, ret, err);
}

int json_opt_bool(const cJSON *obj, const char *path, bool *ret, struct err *err)
{
    return take_bool(obj, path, false, ret, err);
}

int json_get_obj(const cJSON *obj, const char *path, const cJSON **ret, struct err *err)
{
    return take(obj, path, cJSON_IsObject, "an object", true, ret, err);
}

int json_opt_obj(const cJSON *obj, const char *path, const cJSON **ret, struct err *err)
{
    return take(obj, path, cJSON_IsObject, "an object", false, ret, err);
}

int json_get_array(const cJSON *obj, const char *path, const cJSON **ret, struct err *err)
{
    return take(obj, path, cJSON_IsArray, "an array", true, ret, err);
}

int json_opt_array(const cJSON *obj, const char *path, const cJSON **ret, struct err *err)
{
    return take(obj, path, cJSON_IsArray, "an array", false, ret, err);
}
