// SPDX-License-Identifier: GPL-2.0-or-later
#include "codec/checksave.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "codec/json.h"

#define VERSION_NUMBER 1

/* ---- reading ----------------------------------------------------------------------- */

static int copy_text(const cJSON *obj, const char *key, char *to, size_t size,
                     struct err *err)
{
    const char *text = NULL;
    int r = json_get_str(obj, key, &text, err);

    if (r < 0)
        return r;
    for (const char *p = text; *p; p++) {
        if (*p < ' ' || *p > '~')
            return err_set(err, -EBADMSG, "%s: not printable ASCII", key);
    }
    if (strlen(text) >= size)
        return err_set(err, -EBADMSG, "%s: %zu bytes, expected less than %zu", key,
                       strlen(text), size);
    (void)snprintf(to, size, "%s", text);
    return 0;
}

static int read_history(const cJSON *obj, struct check_state *s, struct err *err)
{
    const char *text = NULL;
    int r = json_get_str(obj, "history", &text, err);

    if (r < 0)
        return r;
    if (strlen(text) > CHECK_RUNS_MAX || strspn(text, "01") != strlen(text))
        return err_set(err, -EBADMSG, "history: expected at most %d of 0 and 1",
                       CHECK_RUNS_MAX);
    s->runs = (unsigned)strlen(text);
    for (; *text; text++)
        s->history = (s->history << 1) | (*text == '1');
    return 0;
}

static int read_item(const cJSON *obj, struct checksave_item *item, struct err *err)
{
    struct check_state *s = &item->state;
    int r = copy_text(obj, "name", item->name, sizeof(item->name), err);

    if (r == 0)
        r = json_get_bool(obj, "holds", &s->holds, err);
    if (r == 0)
        r = read_history(obj, s, err);
    if (r == 0)
        r = copy_text(obj, "text", item->text, sizeof(item->text), err);
    if (r < 0 || !s->holds)
        return r;
    r = json_get_int(obj, "since", &s->since, err);
    if (r == 0 && s->since < 0)
        r = err_set(err, -EBADMSG, "since: %lld, expected a time", (long long)s->since);
    if (r == 0)
        r = copy_text(obj, "boot", s->boot_id, sizeof(s->boot_id), err);
    return r;
}

int checksave_parse(const char *text, size_t size, struct checksave **ret,
                    struct err *err)
{
    _cleanup_(checksave_freep) struct checksave *s = NULL;
    _cleanup_(cJSON_Deletep) cJSON *obj = NULL;
    const cJSON *list = NULL, *item;
    int64_t version = 0;
    int r;

    if (size > CHECKSAVE_MAX)
        return err_set(err, -EMSGSIZE, "%zu bytes, expected at most %d", size,
                       CHECKSAVE_MAX);
    r = json_parse(text, size, &obj, err);
    if (r == 0)
        r = json_get_int(obj, "v", &version, err);
    if (r == 0 && version != VERSION_NUMBER)
        r = err_set(err, -EBADMSG, "v: %lld, expected %d", (long long)version,
                    VERSION_NUMBER);
    if (r == 0)
        r = json_get_array(obj, "checks", &list, err);
    if (r < 0)
        return r;
    s = mem_zalloc(sizeof(*s));
    cJSON_ArrayForEach(item, list)
    {
        if (s->n == TG_LEN(s->items))
            return err_set(err, -EBADMSG, "more than %zu checks", s->n);
        r = read_item(item, &s->items[s->n++], err);
        if (r < 0)
            return err_context(err, r, "check number %zu", s->n);
    }
    *ret = s;
    s = NULL;
    return 0;
}

void checksave_free(struct checksave *s)
{
    free(s);
}

/* ---- writing ----------------------------------------------------------------------- */

/* Running out of memory on a small thing ends the program, see base/mem.h. */
static cJSON *checked(cJSON *item)
{
    if (!item)
        abort();
    return item;
}

static cJSON *item_object(const struct checksave_item *item)
{
    char history[CHECK_RUNS_MAX + 1] = "";
    const struct check_state *s = &item->state;
    cJSON *obj = checked(cJSON_CreateObject());

    for (unsigned i = 0; i < s->runs; i++)
        history[i] = s->history >> (s->runs - 1 - i) & 1 ? '1' : '0';
    (void)checked(cJSON_AddStringToObject(obj, "name", item->name));
    (void)checked(cJSON_AddBoolToObject(obj, "holds", s->holds));
    (void)checked(cJSON_AddStringToObject(obj, "history", history));
    (void)checked(cJSON_AddStringToObject(obj, "text", item->text));
    if (s->holds) {
        (void)checked(cJSON_AddNumberToObject(obj, "since", (double)s->since));
        (void)checked(cJSON_AddStringToObject(obj, "boot", s->boot_id));
    }
    return obj;
}

void checksave_render(const struct checksave *s, struct buf *to)
{
    _cleanup_(cJSON_Deletep) cJSON *obj = checked(cJSON_CreateObject());
    cJSON *list;
    char *text;

    (void)checked(cJSON_AddNumberToObject(obj, "v", VERSION_NUMBER));
    list = checked(cJSON_AddArrayToObject(obj, "checks"));
    for (size_t i = 0; i < s->n; i++)
        (void)cJSON_AddItemToArray(list, item_object(&s->items[i]));
    text = cJSON_PrintUnformatted(obj);
    /* No memory for a small text, or a buffer with another cap than the contract asks for. */
    if (!text || buf_printf(to, "%s\n", text) < 0)
        abort();
    cJSON_free(text);
}
