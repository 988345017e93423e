// SPDX-License-Identifier: GPL-2.0-or-later
#include "codec/ledger.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"

#define KEY              "tidegate"
#define LEASE            "lease" /* OVERRULED_LEASE among the causes */
#define VERSION_NUMBER   1
#define ROOM_FOR_OURS    512    /* the longest ledger text is about 400 bytes */
#define NUMBER_EXACT_MAX 0x1p53 /* beyond it a double, and so JSON, is not exact */

/* Reads a whole number; false for anything else. */
static bool get_whole(const cJSON *item, int64_t *ret)
{
    double d;

    if (!cJSON_IsNumber(item))
        return false;
    d = cJSON_GetNumberValue(item);
    if (!(d >= 0 && d <= NUMBER_EXACT_MAX) || d != floor(d))
        return false;
    *ret = (int64_t)d;
    return true;
}

static bool get_cause(const cJSON *item, enum cause *ret)
{
    if (!cJSON_IsString(item))
        return false;
    *ret = cause_from_name(cJSON_GetStringValue(item));
    return *ret != CAUSE_NONE;
}

static bool get_overruled(const cJSON *list, uint32_t *ret)
{
    const cJSON *item;

    if (!cJSON_IsArray(list))
        return false;
    cJSON_ArrayForEach(item, list)
    {
        enum cause c;

        if (cJSON_IsString(item) && strcmp(item->valuestring, LEASE) == 0) {
            *ret |= OVERRULED_LEASE;
            continue;
        }
        if (!get_cause(item, &c) ||
            c == CAUSE_HEALTH) /* of that "overruled_checks" tells */
            return false;
        *ret |= UINT32_C(1) << c;
    }
    return true;
}

/* Lower case hex digits, at most `digits`, without leading zeros; 0 is not written at all. */
static bool get_hex(const cJSON *item, size_t digits, uint64_t *ret)
{
    const char *text = cJSON_GetStringValue(item);
    size_t n = text ? strlen(text) : 0;

    if (n == 0 || n > digits || *text == '0' || strspn(text, "0123456789abcdef") != n)
        return false;
    *ret = strtoull(text, NULL, 16);
    return true;
}

static bool get_instance(const cJSON *item, char ret[INSTANCE_SIZE])
{
    char clean[INSTANCE_SIZE];

    if (!cJSON_IsString(item))
        return false;
    instance_copy(clean, cJSON_GetStringValue(item));
    if (!clean[0] || strcmp(clean, cJSON_GetStringValue(item)) != 0)
        return false;
    memcpy(ret, clean, sizeof(clean));
    return true;
}

static bool get_member(const cJSON *item, struct ledger *l, int64_t *version)
{
    const char *key = item->string;
    uint64_t print;

    if (strcmp(key, "v") == 0)
        return get_whole(item, version) && *version == VERSION_NUMBER;
    if (strcmp(key, "episode") == 0)
        return get_cause(item, &l->episode);
    if (strcmp(key, "at") == 0)
        return get_whole(item, &l->episode_at);
    if (strcmp(key, "checks") == 0)
        return get_hex(item, 16, &l->checks);
    if (strcmp(key, "overruled") == 0)
        return get_overruled(item, &l->overruled);
    if (strcmp(key, "overruled_checks") == 0)
        return get_hex(item, 16, &l->overruled_checks);
    if (strcmp(key, "proved") == 0)
        return get_instance(item, l->proved);
    if (strcmp(key, "failed") == 0)
        return get_instance(item, l->failed);
    if (strcmp(key, "line") != 0 || !get_hex(item, 8, &print))
        return false;
    l->line = (uint32_t)print;
    return true;
}

/* The member "tidegate". Strict: a key or a value that is not known belongs to a newer
 * version. */
static bool parse_ours(const cJSON *obj, struct ledger *ret)
{
    struct ledger l = {0};
    const cJSON *item;
    int64_t version = 0;

    if (!cJSON_IsObject(obj))
        return false;
    cJSON_ArrayForEach(item, obj)
    {
        if (!get_member(item, &l, &version))
            return false;
    }
    if (version != VERSION_NUMBER ||
        (l.episode == CAUSE_NONE && (l.episode_at != 0 || l.checks != 0)))
        return false;
    *ret = l;
    return true;
}

/* Whitespace as cJSON sees it. */
static const char *skip_space(const char *p)
{
    while (*p && (unsigned char)*p <= ' ')
        p++;
    return p;
}

static const char *skip_string(const char *p)
{
    for (p++; *p && *p != '"'; p++) {
        if (*p == '\\' && p[1])
            p++;
    }
    return *p ? p + 1 : p;
}

/* Behind the value at p, which is well-formed; stops at the ',' or '}' of the object
 * around it. */
static const char *skip_value(const char *p)
{
    int depth = 0;

    while (*p) {
        if (*p == '"') {
            p = skip_string(p);
            continue;
        }
        if (depth == 0 && (*p == ',' || *p == '}'))
            break;
        if (*p == '{' || *p == '[')
            depth++;
        else if (*p == '}' || *p == ']')
            depth--;
        p++;
    }
    return p;
}

/*
 * Copies all members but ours, byte by byte: through cJSON a large number would come out
 * as another one. `text` is an object that cJSON has accepted. Returns how many members
 * were left out.
 */
static int copy_others(const char *text, struct buf *ret)
{
    const char *p = skip_space(text);
    int ours = 0, r = 0;

    if (*p != '{')
        return -1; /* a byte order mark: not for us to judge */
    p = skip_space(p + 1);
    while (*p == '"' && r == 0) {
        const char *key = p, *end;

        p = skip_string(p);
        end = p;
        p = skip_value(skip_space(p) + 1);
        if ((size_t)(end - key) == strlen("\"" KEY "\"") &&
            strncmp(key, "\"" KEY "\"", (size_t)(end - key)) == 0) {
            ours++;
        } else {
            r = buf_puts(ret, ret->len ? "," : "{");
            if (r == 0)
                r = buf_add(ret, key, (size_t)(p - key));
        }
        if (*p == ',')
            p = skip_space(p + 1);
    }
    if (r == 0 && ret->len)
        r = buf_puts(ret, "}");
    return r < 0 || *p != '}' ? -1 : ours;
}

static int count_ours(const cJSON *obj)
{
    const cJSON *item;
    int n = 0;

    cJSON_ArrayForEach(item, obj) n += strcmp(item->string, KEY) == 0;
    return n;
}

static bool parse_object(const char *extra, struct ledger *ret_ledger, char **ret_other)
{
    struct buf others = BUF_INIT(LEDGER_EXTRA_MAX - ROOM_FOR_OURS);
    struct ledger l = {0};
    cJSON *obj = NULL;
    size_t len = strlen(extra);
    bool good = false;
    int ours;

    if (len <= LEDGER_EXTRA_MAX)
        obj = cJSON_ParseWithLengthOpts(extra, len + 1, NULL, true);
    if (cJSON_IsObject(obj)) {
        ours = copy_others(extra, &others);
        /* Our key twice, or written with escapes, is nothing that we wrote. */
        good = (ours == 0 || ours == 1) && ours == count_ours(obj) &&
               (ours == 0 || parse_ours(cJSON_GetObjectItemCaseSensitive(obj, KEY), &l));
    }
    cJSON_Delete(obj);
    if (good) {
        *ret_ledger = l;
        *ret_other = others.len ? mem_strdup(buf_str(&others)) : NULL;
    }
    buf_free(&others);
    return good;
}

void ledger_parse(const char *extra, enum extra_state *ret_state,
                  struct ledger *ret_ledger, char **ret_other)
{
    *ret_state = EXTRA_OURS;
    *ret_ledger = (struct ledger){0};
    *ret_other = NULL;
    if (!extra || !*skip_space(extra))
        return;
    if (parse_object(extra, ret_ledger, ret_other))
        return;
    *ret_state = EXTRA_FOREIGN;
    *ret_other = mem_strdup(extra);
}

static int render_overruled(struct buf *b, uint32_t overruled)
{
    const char *before = ",\"overruled\":[";
    int r = 0;

    if (!overruled)
        return 0;
    for (enum cause c = CAUSE_NONE; c < CAUSE_COUNT_ && r == 0; c++) {
        if (!(overruled & (UINT32_C(1) << c)))
            continue;
        r = buf_printf(b, "%s\"%s\"", before, c == CAUSE_NONE ? LEASE : cause_name(c));
        before = ",";
    }
    return r < 0 ? r : buf_puts(b, "]");
}

static int render_hex(struct buf *b, const char *key, uint64_t value)
{
    return value ? buf_printf(b, ",\"%s\":\"%llx\"", key, (unsigned long long)value) : 0;
}

static int render_text(struct buf *b, const char *key, const char *value)
{
    return *value ? buf_printf(b, ",\"%s\":\"%s\"", key, value) : 0;
}

/* What is nothing is left out: so an older bridge can read what it could have written itself. */
static int render_ours(struct buf *b, const struct ledger *l)
{
    int r = buf_printf(b, "{\"" KEY "\":{\"v\":%d", VERSION_NUMBER);

    if (r == 0 && l->episode != CAUSE_NONE)
        r = buf_printf(b, ",\"episode\":\"%s\",\"at\":%lld", cause_name(l->episode),
                       (long long)l->episode_at);
    if (r == 0 && l->episode != CAUSE_NONE)
        r = render_hex(b, "checks", l->checks);
    if (r == 0)
        r = render_overruled(b, l->overruled & ~(UINT32_C(1) << CAUSE_HEALTH));
    if (r == 0)
        r = render_hex(b, "overruled_checks", l->overruled_checks);
    if (r == 0)
        r = render_text(b, "proved", l->proved);
    if (r == 0)
        r = render_text(b, "failed", l->failed);
    if (r == 0)
        r = render_hex(b, "line", l->line);
    return r < 0 ? r : buf_puts(b, "}");
}

char *ledger_render(const struct ledger *l, const char *other)
{
    struct buf b = BUF_INIT(LEDGER_EXTRA_MAX);
    int r;

    if (ledger_is_empty(l))
        return mem_strdup(other ? other : "");
    r = render_ours(&b, l);
    if (r == 0)
        r = other ? buf_printf(&b, ",%s", other + 1) : buf_puts(&b, "}");
    if (r < 0)
        abort(); /* ledger_parse() keeps `other` small enough */
    return b.data;
}
