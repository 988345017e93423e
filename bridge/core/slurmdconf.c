// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/slurmdconf.h"

#include <errno.h>
#include <string.h>
#include <strings.h>

#include "base/buf.h"
#include "core/nodeline.h"

#define TEXT_MAX   16384
#define NUMBER_MAX UINT32_MAX
#define BLANKS     " \t\n"

enum key {
    KEY_OTHER,
    KEY_CPUS,
    KEY_BOARDS,
    KEY_SOCKETS,
    KEY_SOCKETS_PER_BOARD,
    KEY_CORES,
    KEY_THREADS,
    KEY_MEMORY,
    KEY_GRES,
    KEY_FEATURES,
    KEY_STATE,
    KEY_REASON,
    KEY_COUNT_,
};

static const struct {
    const char *name;
    enum key key;
} names[] = {
    {"CPUs", KEY_CPUS},
    {"Procs", KEY_CPUS},
    {"Boards", KEY_BOARDS},
    {"Sockets", KEY_SOCKETS},
    {"SocketsPerBoard", KEY_SOCKETS_PER_BOARD},
    {"CoresPerSocket", KEY_CORES},
    {"ThreadsPerCore", KEY_THREADS},
    {"RealMemory", KEY_MEMORY},
    {"Gres", KEY_GRES},
    {"Feature", KEY_FEATURES},
    {"Features", KEY_FEATURES},
    {"State", KEY_STATE},
    {"Reason", KEY_REASON},
};

/* What a person has set. Values are not copied. */
struct word {
    const char *at;
    size_t len;
};

struct person {
    bool has[KEY_COUNT_];
    struct word value[KEY_COUNT_]; /* without quotes */
    uint64_t number[KEY_COUNT_];
    bool shape; /* any of CPUs= to ThreadsPerCore= */
};

static enum key key_of(const char *name, size_t len)
{
    for (size_t i = 0; i < TG_LEN(names); i++) {
        if (strlen(names[i].name) == len && strncasecmp(names[i].name, name, len) == 0)
            return names[i].key;
    }
    return KEY_OTHER;
}

static int read_number(const char *word, struct word v, uint64_t *ret, struct err *err)
{
    uint64_t n = 0;

    for (size_t i = 0; i < v.len && n <= NUMBER_MAX; i++)
        n = v.at[i] >= '0' && v.at[i] <= '9' ? n * 10 + (uint64_t)(v.at[i] - '0')
                                             : UINT64_MAX;
    if (n < 1 || n > NUMBER_MAX)
        return err_set(err, -EINVAL,
                       "SLURMD_CONF has \"%.*s\", expected a whole number of at least 1 "
                       "behind the '='",
                       (int)(v.at + v.len - word), word);
    *ret = n;
    return 0;
}

/* One KEY=VALUE at `s`; its end goes to *ret_end. */
static int read_word(const char *s, struct person *p, const char **ret_end,
                     struct err *err)
{
    size_t key_len = strcspn(s, "=" BLANKS), len;
    const char *value = s + key_len + 1;
    bool quoted = s[key_len] == '=' && *value == '"';
    enum key k = key_of(s, key_len);

    if (!key_len || s[key_len] != '=')
        return err_set(err, -EINVAL,
                       "SLURMD_CONF has the word \"%.*s\", expected KEY=VALUE",
                       (int)key_len, s);
    value += quoted;
    len = strcspn(value, quoted ? "\"" : BLANKS);
    if (quoted && !value[len])
        return err_set(err, -EINVAL, "SLURMD_CONF has a '\"' that is not closed: %s", s);
    *ret_end = value + len + quoted;
    p->has[k] = true;
    p->value[k] = (struct word){value, len};
    p->shape |= k >= KEY_CPUS && k <= KEY_THREADS;
    return k >= KEY_CPUS && k <= KEY_MEMORY
               ? read_number(s, p->value[k], &p->number[k], err)
               : 0;
}

static int read_person(const char *text, struct person *ret, struct err *err)
{
    const char *s = text ? text : "";
    int r = 0;

    *ret = (struct person){0};
    while (r == 0 && *(s += strspn(s, BLANKS)))
        r = read_word(s, ret, &s, err);
    return r;
}

/* ---- the text ----------------------------------------------------------------------- */

static int add_features(const struct slurmdconf *c, const struct person *p,
                        struct buf *to)
{
    const struct word *w = &p->value[KEY_FEATURES];
    int r = buf_printf(to, "Feature=%s", c->pool);

    if (r == 0 && c->line->features)
        r = buf_printf(to, ",%s", c->line->features);
    if (r == 0 && p->has[KEY_FEATURES] && w->len)
        r = buf_printf(to, ",%.*s", (int)w->len, w->at);
    return r;
}

static int add_line(const struct slurmdconf *c, const struct person *p, struct buf *to)
{
    const struct node_line *l = c->line;
    int r = 0;

    if (!p->shape)
        r = buf_printf(
            to, " Boards=%u SocketsPerBoard=%u CoresPerSocket=%u ThreadsPerCore=%u",
            l->boards, l->sockets, l->cores, l->threads);
    if (r == 0 && !p->has[KEY_MEMORY])
        r = buf_printf(to, " RealMemory=%llu", (unsigned long long)l->memory_mib);
    if (r == 0 && c->gres && l->gres && !p->has[KEY_GRES])
        r = buf_printf(to, " Gres=%s", l->gres);
    return r;
}

/* All that the person has set, but for the features, which are there. */
static int add_person(const char *text, struct buf *to, struct err *err)
{
    struct person ignored = {0};
    const char *s = text ? text : "", *end;
    int r = 0;

    while (r == 0 && *(s += strspn(s, BLANKS))) {
        r = read_word(s, &ignored, &end, err);
        if (r == 0 && key_of(s, strcspn(s, "=")) != KEY_FEATURES)
            r = buf_printf(to, " %.*s", (int)(end - s), s);
        s = end;
    }
    return r;
}

int slurmdconf_text(const struct slurmdconf *c, char **ret, struct err *err)
{
    struct buf b = BUF_INIT(TEXT_MAX);
    struct person p;
    int r = read_person(c->person, &p, err);

    if (r < 0)
        return r;
    r = add_features(c, &p, &b);
    if (r == 0)
        r = add_line(c, &p, &b);
    if (r == 0 && c->drained && !p.has[KEY_STATE])
        r = buf_printf(&b, " State=DRAIN Reason=\"%s\"", c->drained);
    if (r == 0)
        r = add_person(c->person, &b, err);
    if (r < 0)
        (void)err_set(err, r, "the node's line with SLURMD_CONF has more than %d bytes",
                      TEXT_MAX);
    else
        *ret = mem_strdup(buf_str(&b));
    buf_free(&b);
    return r;
}

/* ---- the line ----------------------------------------------------------------------- */

static uint32_t or_one(const struct person *p, enum key k)
{
    return p->has[k] ? (uint32_t)p->number[k] : 1;
}

/* As slurmd counts: CPUs= alone are sockets of one core; beside others it is divided among them. */
static void take_shape(const struct person *p, struct node_line *l)
{
    enum key sockets = p->has[KEY_SOCKETS] ? KEY_SOCKETS : KEY_SOCKETS_PER_BOARD;
    uint32_t cpus = p->has[KEY_CPUS] ? (uint32_t)p->number[KEY_CPUS] : 0;

    l->boards = or_one(p, KEY_BOARDS);
    l->sockets = or_one(p, sockets);
    l->cores = or_one(p, KEY_CORES);
    l->threads = or_one(p, KEY_THREADS);
    if (cpus && !p->has[KEY_SOCKETS] && !p->has[KEY_SOCKETS_PER_BOARD])
        l->sockets = cpus / (l->cores * l->threads);
    else if (cpus && !p->has[KEY_CORES])
        l->cores = cpus / (l->sockets * l->threads);
    if (!l->sockets ||
        !l->cores) /* a contradiction, which slurmd takes for CPUs= alone */
        l->sockets = cpus, l->cores = l->threads = 1;
    l->cpus = cpus ? cpus : l->boards * l->sockets * l->cores * l->threads;
}

int slurmdconf_line(const struct slurmdconf *c, struct node_line *ret, struct err *err)
{
    struct person p;
    int r = read_person(c->person, &p, err);

    if (r < 0)
        return r;
    *ret = *c->line;
    ret->gres = NULL;
    if (p.has[KEY_GRES])
        ret->gres = mem_strndup(p.value[KEY_GRES].at, p.value[KEY_GRES].len);
    else if (c->gres)
        ret->gres = mem_strdup(c->line->gres);
    ret->features = mem_strdup(c->line->features);
    if (p.shape)
        take_shape(&p, ret);
    if (p.has[KEY_MEMORY])
        ret->memory_mib = p.number[KEY_MEMORY];
    return 0;
}
