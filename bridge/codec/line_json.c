// SPDX-License-Identifier: GPL-2.0-or-later
#include "codec/line_json.h"

#include <errno.h>
#include <string.h>

#include "codec/json.h"
#include "core/nodeline.h"

static void add_string(cJSON *obj, const char *key, const char *value)
{
    if (value)
        cJSON_AddStringToObject(obj, key, value);
    else
        cJSON_AddNullToObject(obj, key);
}

int line_json_write(const struct node_line *l, struct buf *to, struct err *err)
{
    _cleanup_(cJSON_Deletep) cJSON *obj = cJSON_CreateObject();
    _cleanup_(mem_freep) char *line = nodeline_text(l);
    _cleanup_(mem_freep) char *text = NULL;
    int r;

    cJSON_AddNumberToObject(obj, "boards", l->boards);
    cJSON_AddNumberToObject(obj, "sockets", l->sockets);
    cJSON_AddNumberToObject(obj, "cores", l->cores);
    cJSON_AddNumberToObject(obj, "threads", l->threads);
    cJSON_AddNumberToObject(obj, "cpus", l->cpus);
    cJSON_AddNumberToObject(obj, "memoryMiB", (double)l->memory_mib);
    add_string(obj, "gres", l->gres);
    add_string(obj, "features", l->features);
    add_string(obj, "text", line);
    text = cJSON_PrintUnformatted(obj);
    if (!text)
        return err_set(err, -ENOMEM, "no memory for the line as JSON");
    r = buf_puts(to, text);
    if (r < 0)
        return err_set(err, r,
                       "the line as JSON has %zu bytes, more than the %zu allowed",
                       strlen(text), to->cap);
    return 0;
}

/* A whole number of at least 1, as all of a line's are. */
static int get_count(const cJSON *obj, const char *key, int64_t max, int64_t *ret,
                     struct err *err)
{
    int r = json_get_int(obj, key, ret, err);

    if (r < 0)
        return r;
    if (*ret < 1 || *ret > max)
        return err_set(err, -EBADMSG, "%s is %lld, expected 1 to %lld", key,
                       (long long)*ret, (long long)max);
    return 0;
}

static int get_small(const cJSON *obj, const char *key, uint32_t *ret, struct err *err)
{
    int64_t n = 0;
    int r = get_count(obj, key, NODELINE_CPUS_MAX, &n, err);

    if (r == 0)
        *ret = (uint32_t)n;
    return r;
}

/* Absent and empty are NULL. It goes into slurmd's --conf: nothing but words, colons and commas. */
static int get_word(const cJSON *obj, const char *key, char **ret, struct err *err)
{
    const char *s = NULL;
    int r = json_opt_str(obj, key, &s, err);

    if (r < 0 || !s || !*s)
        return r;
    if (s[strspn(s,
                 "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-:,")])
        return err_set(err, -EBADMSG,
                       "%s is \"%s\", expected only letters, digits and . _ - : ,", key,
                       s);
    *ret = mem_strdup(s);
    return 0;
}

static int read_members(const cJSON *obj, struct node_line *l, struct err *err)
{
    int64_t mib = 0;
    int r = get_small(obj, "boards", &l->boards, err);

    if (r == 0)
        r = get_small(obj, "sockets", &l->sockets, err);
    if (r == 0)
        r = get_small(obj, "cores", &l->cores, err);
    if (r == 0)
        r = get_small(obj, "threads", &l->threads, err);
    if (r == 0)
        r = get_small(obj, "cpus", &l->cpus, err);
    if (r == 0)
        r = get_count(obj, "memoryMiB", INT64_C(1) << 40, &mib, err);
    if (r == 0)
        r = get_word(obj, "gres", &l->gres, err);
    if (r == 0)
        r = get_word(obj, "features", &l->features, err);
    l->memory_mib = (uint64_t)mib;
    if (r == 0 && (uint64_t)l->boards * l->sockets * l->cores * l->threads != l->cpus)
        r = err_set(err, -EBADMSG,
                    "cpus is %u, expected boards x sockets x cores x threads", l->cpus);
    return r;
}

int line_json_read(const char *text, size_t len, struct node_line *ret, struct err *err)
{
    _cleanup_(cJSON_Deletep) cJSON *obj = NULL;
    struct node_line l = {0};
    int r = json_parse(text, len, &obj, err);

    if (r == 0)
        r = read_members(obj, &l, err);
    if (r < 0)
        node_line_clear(&l);
    else
        *ret = l;
    return r;
}
