// SPDX-License-Identifier: GPL-2.0-or-later
#include "codec/checkconf.h"

#include <errno.h>
#include <string.h>

#include "codec/json.h"

#define ARG_MAX_BYTES 4096

static const struct {
    const char *name;
    enum check_moment bit;
} moments[] = {
    {"start", CHECK_START},   {"period", CHECK_PERIOD}, {"idle", CHECK_IDLE},
    {"prolog", CHECK_PROLOG}, {"epilog", CHECK_EPILOG},
};

/* ---- parts ------------------------------------------------------------------------- */

static int only_keys(const cJSON *obj, const char *const *keys, struct err *err)
{
    const cJSON *item;

    cJSON_ArrayForEach(item, obj)
    {
        size_t i = 0;

        while (keys[i] && strcmp(keys[i], item->string) != 0)
            i++;
        if (!keys[i])
            return err_set(err, -EBADMSG, "key '%.40s' is not known", item->string);
    }
    return 0;
}

/* A whole number between 1 and `max`; `*ret` stays when it is not there. */
static int opt_range(const cJSON *obj, const char *path, int64_t max, int64_t *ret,
                     struct err *err)
{
    int64_t v = 0;
    int r = json_opt_int(obj, path, &v, err);

    if (r < 0)
        return r;
    if (v == 0 && !json_member(obj, path))
        return 0;
    if (v < 1 || v > max)
        return err_set(err, -EBADMSG, "%s: %lld, expected 1 to %lld", path, (long long)v,
                       (long long)max);
    *ret = v;
    return 0;
}

static int read_name(const cJSON *obj, char **ret, struct err *err)
{
    const char *name = NULL;
    int r = json_get_str(obj, "name", &name, err);

    if (r < 0)
        return r;
    if (strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789-") != strlen(name) ||
        strlen(name) > CHECKCONF_NAME_MAX)
        return err_set(err, -EBADMSG,
                       "name '%.40s', expected at most %d of a to z, 0 to 9 and '-'",
                       name, CHECKCONF_NAME_MAX);
    *ret = mem_strdup(name);
    return 0;
}

static int read_command(const cJSON *obj, char ***ret, struct err *err)
{
    const cJSON *list = NULL, *item;
    size_t n = 0;
    int r = json_get_array(obj, "command", &list, err);

    if (r < 0)
        return r;
    if (cJSON_GetArraySize(list) < 1 || cJSON_GetArraySize(list) > CHECKCONF_ARGS_MAX)
        return err_set(err, -EBADMSG, "command: %d words, expected 1 to %d",
                       cJSON_GetArraySize(list), CHECKCONF_ARGS_MAX);
    *ret = mem_calloc((size_t)cJSON_GetArraySize(list) + 1, sizeof(**ret));
    cJSON_ArrayForEach(item, list)
    {
        if (!cJSON_IsString(item) || strlen(item->valuestring) > ARG_MAX_BYTES ||
            (n == 0 && !*item->valuestring))
            return err_set(err, -EBADMSG,
                           "command: word %zu is empty, too long or no string", n + 1);
        (*ret)[n++] = mem_strdup(item->valuestring);
    }
    return 0;
}

static int read_moments(const cJSON *obj, unsigned *ret, struct err *err)
{
    const cJSON *list = NULL, *item;
    int r = json_opt_array(obj, "moments", &list, err);

    if (r < 0)
        return r;
    *ret = list ? 0 : CHECK_START | CHECK_PERIOD;
    cJSON_ArrayForEach(item, list)
    {
        size_t i = 0;

        while (i < TG_LEN(moments) &&
               !(cJSON_IsString(item) && strcmp(item->valuestring, moments[i].name) == 0))
            i++;
        if (i == TG_LEN(moments))
            return err_set(
                err, -EBADMSG,
                "moments: '%.40s', expected start, period, idle, prolog or epilog",
                cJSON_IsString(item) ? item->valuestring : "no string");
        *ret |= moments[i].bit;
    }
    if (*ret == 0)
        return err_set(err, -EBADMSG, "moments: none, so it would never run");
    return 0;
}

static int read_times(const cJSON *obj, struct checkdef *d, struct err *err)
{
    bool gate = d->moments & (CHECK_PROLOG | CHECK_EPILOG);
    int64_t period = CHECKCONF_PERIOD,
            deadline = gate ? CHECKCONF_PROLOG_MAX : CHECKCONF_DEADLINE;
    int r = opt_range(obj, "period", CHECKCONF_PERIOD_MAX, &period, err);

    if (r == 0)
        r = opt_range(obj, "deadline",
                      gate ? CHECKCONF_PROLOG_MAX : CHECKCONF_DEADLINE_MAX, &deadline,
                      err);
    if (r < 0)
        return gate ? err_context(err, r, "of prolog or epilog") : r;
    d->period_ms = period * 1000;
    d->deadline_ms = deadline * 1000;
    return 0;
}

static int read_fail(const cJSON *obj, struct check_rule *ret, struct err *err)
{
    static const char *const keys[] = {"times", "of", NULL};
    int64_t times = 2, of = 3;
    const cJSON *fail = NULL;
    int r = json_opt_obj(obj, "fail", &fail, err);

    if (r == 0 && fail) {
        r = only_keys(fail, keys, err);
        if (r == 0)
            r = opt_range(fail, "times", CHECK_RUNS_MAX, &times, err);
        of = times; /* in a row, unless it says more */
        if (r == 0)
            r = opt_range(fail, "of", CHECK_RUNS_MAX, &of, err);
        if (r == 0 && times > of)
            r = err_set(err, -EBADMSG, "times: %lld, expected at most 'of', %lld",
                        (long long)times, (long long)of);
        if (r < 0)
            return err_context(err, r, "fail");
    }
    ret->fail_times = (unsigned)times;
    ret->fail_of = (unsigned)of;
    return r;
}

static int read_clear(const cJSON *obj, struct check_rule *ret, struct err *err)
{
    static const char *const keys[] = {"times", NULL};
    const cJSON *clear = json_member(obj, "clear");
    int64_t times = 2;
    int r = 0;

    ret->clear = CLEAR_RUNS;
    if (cJSON_IsString(clear)) {
        if (strcmp(clear->valuestring, "boot") == 0)
            ret->clear = CLEAR_BOOT;
        else if (strcmp(clear->valuestring, "person") == 0)
            ret->clear = CLEAR_PERSON;
        else
            return err_set(
                err, -EBADMSG,
                "clear: '%.40s', expected \"boot\", \"person\" or {\"times\": N}",
                clear->valuestring);
        return 0;
    }
    r = json_opt_obj(obj, "clear", &clear, err);
    if (r == 0 && clear) {
        r = only_keys(clear, keys, err);
        if (r == 0)
            r = opt_range(clear, "times", CHECK_RUNS_MAX, &times, err);
        if (r < 0)
            return err_context(err, r, "clear");
    }
    ret->clear_times = (unsigned)times;
    return r;
}

/* ---- the whole --------------------------------------------------------------------- */

static int read_check(const cJSON *obj, struct checkdef *d, struct err *err)
{
    static const char *const keys[] = {"name",     "command", "moments", "period",
                                       "deadline", "fail",    "clear",   NULL};
    int r;

    if (!cJSON_IsObject(obj))
        return err_set(err, -EBADMSG, "wrong type, expected an object");
    r = read_name(obj, &d->name, err);
    if (r == 0)
        r = only_keys(obj, keys, err);
    if (r == 0)
        r = read_command(obj, &d->command, err);
    if (r == 0)
        r = read_moments(obj, &d->moments, err);
    if (r == 0)
        r = read_times(obj, d, err);
    if (r == 0)
        r = read_fail(obj, &d->rule, err);
    if (r == 0)
        r = read_clear(obj, &d->rule, err);
    return r;
}

static int read_checks(const cJSON *list, struct checkconf *c, struct err *err)
{
    const cJSON *item;
    int r;

    c->items = mem_calloc((size_t)cJSON_GetArraySize(list), sizeof(*c->items));
    cJSON_ArrayForEach(item, list)
    {
        struct checkdef *d = &c->items[c->n++];

        r = read_check(item, d, err);
        if (r < 0)
            return d->name ? err_context(err, r, "check '%s'", d->name)
                           : err_context(err, r, "check number %zu", c->n);
        for (size_t i = 0; i + 1 < c->n; i++) {
            if (strcmp(c->items[i].name, d->name) == 0)
                return err_set(err, -EBADMSG, "two checks have the name '%s'", d->name);
        }
    }
    return 0;
}

int checkconf_parse(const char *text, size_t size, struct checkconf **ret,
                    struct err *err)
{
    static const char *const keys[] = {"checks", NULL};
    _cleanup_(checkconf_freep) struct checkconf *c = NULL;
    _cleanup_(cJSON_Deletep) cJSON *obj = NULL;
    const cJSON *list = NULL;
    int r;

    if (size > CHECKCONF_MAX)
        return err_set(err, -EMSGSIZE, "%zu bytes, expected at most %d", size,
                       CHECKCONF_MAX);
    r = json_parse(text, size, &obj, err);
    if (r == 0)
        r = only_keys(obj, keys, err);
    if (r == 0)
        r = json_get_array(obj, "checks", &list, err);
    if (r < 0)
        return r;
    if (cJSON_GetArraySize(list) > CHECKCONF_CHECKS_MAX)
        return err_set(err, -EBADMSG, "%d checks, expected at most %d",
                       cJSON_GetArraySize(list), CHECKCONF_CHECKS_MAX);
    c = mem_zalloc(sizeof(*c));
    r = read_checks(list, c, err);
    if (r < 0)
        return r;
    *ret = c;
    c = NULL;
    return 0;
}

void checkdef_clear(struct checkdef *d)
{
    for (size_t i = 0; d->command && d->command[i]; i++)
        free(d->command[i]);
    free(d->command);
    free(d->name);
    *d = (struct checkdef){0};
}

void checkconf_free(struct checkconf *c)
{
    if (!c)
        return;
    for (size_t i = 0; i < c->n; i++)
        checkdef_clear(&c->items[i]);
    free(c->items);
    free(c);
}
