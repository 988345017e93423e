// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/nodeline.h"

#include <errno.h>
#include <string.h>

#include "base/buf.h"

#define TEXT_MAX (1 << 20) /* of gres.conf lines: thousands of devices */

void machine_clear(struct machine *m)
{
    for (size_t i = 0; i < m->n_devices; i++) {
        free(m->devices[i].gres);
        free(m->devices[i].model);
        free(m->devices[i].file);
        free(m->devices[i].cores);
    }
    free(m->devices);
    free(m->cores);
    *m = (struct machine){0};
}

/* ---- cpus ------------------------------------------------------------------------------------ */

/* What the fastest kind of cores offers. */
struct supply {
    uint32_t kind;
    uint32_t threads; /* of the core that has most */
    uint64_t cpus;
    bool even; /* each core has `threads` */
};

static struct supply count(const struct machine *m)
{
    struct supply s = {.even = true};

    for (size_t i = 0; i < m->n_cores; i++) {
        const struct machine_core *c = &m->cores[i];

        if (c->kind > s.kind)
            s = (struct supply){.kind = c->kind, .even = true};
        if (c->kind < s.kind)
            continue;
        if (s.cpus && c->cpus != s.threads)
            s.even = false;
        if (c->cpus > s.threads)
            s.threads = c->cpus;
        s.cpus += c->cpus;
    }
    return s;
}

static int descending(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

    return (x < y) - (x > y);
}

/* How many cores with at least so many threads each socket has, the largest first; returns their sum. */
static uint64_t cores_by_socket(const struct machine *m, const struct supply *s,
                                uint32_t threads, uint32_t *ret)
{
    uint64_t sum = 0;

    memset(ret, 0, m->sockets * sizeof(*ret));
    for (size_t i = 0; i < m->n_cores; i++) {
        if (m->cores[i].kind == s->kind && m->cores[i].cpus >= threads) {
            ret[m->cores[i].socket]++;
            sum++;
        }
    }
    qsort(ret, m->sockets, sizeof(*ret), descending);
    return sum;
}

/* True when `cpus` can be told with `threads` a core: over as many sockets as there are, or as one. */
static bool fits(const struct machine *m, const struct supply *s, uint32_t cpus,
                 uint32_t threads, uint32_t *by_socket, struct node_line *ret)
{
    uint32_t cores = cpus / threads, sockets = m->sockets;
    uint64_t there = cores_by_socket(m, s, threads, by_socket);

    if (cpus % threads != 0 || there < cores)
        return false;
    while (sockets > 1 &&
           (cores % sockets != 0 || by_socket[sockets - 1] < cores / sockets))
        sockets--;
    ret->sockets = sockets;
    ret->cores = cores / sockets;
    ret->threads = threads;
    return true;
}

/*
 * Cores of one's own are told with all their threads, when that comes out even. A quota is time on any of
 * the machine's cores, and the kernel gives it on whole cores first: it is told with as few threads
 * a core as will do.
 */
static void shape(const struct machine *m, const struct supply *s, uint32_t cpus,
                  bool quota, struct node_line *ret)
{
    _cleanup_(mem_freep) uint32_t *by_socket = mem_calloc(m->sockets, sizeof(*by_socket));

    ret->boards = 1;
    ret->cpus = cpus;
    for (uint32_t i = 1; i <= s->threads; i++) {
        if (fits(m, s, cpus, quota ? i : s->threads + 1 - i, by_socket, ret))
            return;
    }
    ret->sockets = 1;
    ret->cores = cpus;
    ret->threads = 1;
}

static int choose_cpus(const struct machine *m, const struct node_limits *l,
                       const struct node_reserve *r, struct node_line *ret,
                       struct err *err)
{
    struct supply s = count(m);
    uint64_t quota = l->cpu_millis / 1000, cpus = s.cpus;
    bool by_quota;

    if (l->cpu_millis && quota == 0)
        quota = 1;
    by_quota = quota && quota < cpus;
    if (by_quota)
        cpus = quota;
    if (cpus <= r->cpus)
        return err_set(
            err, -ENOSPC,
            "no CPU is left for jobs: the pod may use %llu and %u are reserved "
            "(TIDEGATE_RESERVE_CPUS); give the pod more or reserve less",
            (unsigned long long)cpus, r->cpus);
    cpus -= r->cpus;
    /* The other threads of a core that is kept from jobs are of no use to them: whole cores. */
    if (!by_quota && s.even && cpus > s.threads)
        cpus -= cpus % s.threads;
    if (cpus > NODELINE_CPUS_MAX)
        return err_set(err, -ERANGE, "%llu CPUs are more than Slurm can count (%d)",
                       (unsigned long long)cpus, NODELINE_CPUS_MAX);
    shape(m, &s, (uint32_t)cpus, by_quota, ret);
    return 0;
}

static int choose_memory(const struct machine *m, const struct node_limits *l,
                         const struct node_reserve *r, struct node_line *ret,
                         struct err *err)
{
    uint64_t mib = m->memory_mib;

    if (l->memory_mib && (l->memory_mib < mib || mib == 0))
        mib = l->memory_mib;
    if (mib <= r->memory_mib)
        return err_set(
            err, -ENOSPC,
            "no memory is left for jobs: the pod may use %llu MiB and %llu MiB are "
            "reserved (TIDEGATE_RESERVE_MEMORY_MIB); give the pod more or reserve less",
            (unsigned long long)mib, (unsigned long long)r->memory_mib);
    ret->memory_mib = mib - r->memory_mib;
    return 0;
}

/* ---- devices --------------------------------------------------------------------------------- */

static bool same_type(const struct machine_device *a, const struct machine_device *b)
{
    return strcmp(a->gres, b->gres) == 0 && strcmp(a->model, b->model) == 0;
}

/* "gpu:a100:2,gpu:h100:4"; NULL when there are none. */
static char *gres_text(const struct machine *m)
{
    struct buf b = BUF_INIT(TEXT_MAX);
    int r = 0;

    for (size_t i = 0; i < m->n_devices && r == 0; i++) {
        const struct machine_device *d = &m->devices[i];
        size_t n = 0, j = 0;

        while (!same_type(&m->devices[j], d))
            j++;
        if (j < i)
            continue;
        for (; j < m->n_devices; j++)
            n += same_type(&m->devices[j], d);
        r = buf_printf(&b, "%s%s:%s:%zu", b.len ? "," : "", d->gres, d->model, n);
    }
    return b.data;
}

int nodeline_make(const struct machine *m, const struct node_limits *l,
                  const struct node_reserve *r, struct node_line *ret, struct err *err)
{
    struct node_line line = {0};
    int e = choose_cpus(m, l, r, &line, err);

    if (e == 0)
        e = choose_memory(m, l, r, &line, err);
    if (e < 0)
        return e;
    line.gres = gres_text(m);
    line.features = m->rdma ? mem_strdup("rdma") : NULL;
    *ret = line;
    return 0;
}

char *nodeline_text(const struct node_line *l)
{
    return mem_printf("Boards=%u SocketsPerBoard=%u CoresPerSocket=%u ThreadsPerCore=%u "
                      "RealMemory=%llu",
                      l->boards, l->sockets, l->cores, l->threads,
                      (unsigned long long)l->memory_mib);
}

/* The name within brackets, where there is one: pci.ids has chip and product so. */
static const char *product_part(const char *name, size_t *len)
{
    const char *open = strchr(name, '['), *close = open ? strchr(open, ']') : NULL;

    *len = close ? (size_t)(close - open - 1) : strlen(name);
    return close ? open + 1 : name;
}

/* Lower case; what cannot stand in a Gres= becomes one '_', and none at the end. */
static char *gres_word(const char *s, size_t n)
{
    char *word = mem_strndup(s, n), *to = word;

    for (size_t i = 0; i < n; i++) {
        char c = word[i] >= 'A' && word[i] <= 'Z' ? (char)(word[i] - 'A' + 'a') : word[i];
        bool good =
            (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '.' || c == '-';

        if (good)
            *to++ = c;
        else if (to > word && to[-1] != '_')
            *to++ = '_';
    }
    while (to > word && to[-1] == '_')
        to--;
    *to = '\0';
    if (to == word)
        mem_freep(&word);
    return word;
}

char *nodeline_model(const char *product)
{
    static const char digits[] = "0123456789";
    size_t len = 0, n, before = 0, before_n = 0;
    const char *s = product_part(product, &len);

    /* The first word with a digit, up to what tells the build of it (A100-SXM4-40GB); with the word before it
     * when it is a bare number. */
    for (size_t i = 0; i < len; i += n + 1) {
        n = strcspn(s + i, " ]");
        if (i + n > len)
            n = len - i;
        if (strcspn(s + i, digits) < n) {
            bool bare = strspn(s + i, digits) == n && before_n;

            n = strcspn(s + i, " ]-/,(");
            return bare ? gres_word(s + before, i + n - before) : gres_word(s + i, n);
        }
        before = i;
        before_n = n;
    }
    return gres_word(s, len);
}

static bool same_place(const struct machine_device *a, const struct machine_device *b)
{
    return a->n_cores == b->n_cores &&
           (a->n_cores == 0 ||
            memcmp(a->cores, b->cores, a->n_cores * sizeof(*a->cores)) == 0);
}

/* Where the number at the end of a file's name begins; at its end when there is none. */
static size_t number_at(const char *file)
{
    size_t n = strlen(file);

    while (n && file[n - 1] >= '0' && file[n - 1] <= '9')
        n--;
    /* "03" and "3" are different names: only a plain number can be counted on from. */
    return file[n] == '0' && file[n + 1] ? strlen(file) : n;
}

/* The name is base (of n bytes) and the number behind `last`. */
static bool comes_next(const char *file, const char *base, size_t n, unsigned long last)
{
    return number_at(file) == n && file[n] && strncmp(file, base, n) == 0 &&
           strtoul(file + n, NULL, 10) == last + 1;
}

/* The files of the n devices, each run of numbers as one: /dev/nvidia[0-3],/dev/nvidia7 */
static int put_files(struct buf *b, const struct machine_device *const *d, size_t n)
{
    int r = 0;

    for (size_t i = 0, end; i < n && r == 0; i = end) {
        const char *file = d[i]->file;
        size_t at = number_at(file);
        unsigned long first = strtoul(file + at, NULL, 10), last = first;

        for (end = i + 1; end < n && comes_next(d[end]->file, file, at, last); end++)
            last++;
        r = buf_puts(b, i ? "," : "");
        if (r == 0)
            r = last == first
                    ? buf_puts(b, file)
                    : buf_printf(b, "%.*s[%lu-%lu]", (int)at, file, first, last);
    }
    return r;
}

static int put_cores(struct buf *b, const struct machine_device *d)
{
    int r = 0;

    for (size_t i = 0, end; i < d->n_cores && r == 0; i = end) {
        for (end = i + 1; end < d->n_cores && d->cores[end] == d->cores[end - 1] + 1;)
            end++;
        r = buf_printf(b, "%s%u", i ? "," : " Cores=", d->cores[i]);
        if (r == 0 && end > i + 1)
            r = buf_printf(b, "-%u", d->cores[end - 1]);
    }
    return r;
}

/* True when the cores of the line are the cores of the machine, in their order. */
static bool is_whole(const struct machine *m, const struct node_line *l)
{
    uint64_t cpus = 0;

    for (size_t i = 0; i < m->n_cores; i++)
        cpus += m->cores[i].cpus;
    return cpus == l->cpus && (uint64_t)l->sockets * l->cores == m->n_cores;
}

char *nodeline_gres_conf(const struct machine *m, const struct node_line *l,
                         const char *node)
{
    bool whole = is_whole(m, l);
    _cleanup_(mem_freep) bool *done = mem_calloc(m->n_devices + 1, sizeof(*done));
    _cleanup_(mem_freep) const struct machine_device **group =
        mem_calloc(m->n_devices + 1, sizeof(struct machine_device *));
    struct buf b = BUF_INIT(TEXT_MAX);
    int r = 0;

    for (size_t i = 0; i < m->n_devices && r == 0; i++) {
        const struct machine_device *d = &m->devices[i];
        size_t n = 0;

        for (size_t j = i; j < m->n_devices; j++) {
            if (done[j] || !same_type(&m->devices[j], d) ||
                (whole && !same_place(&m->devices[j], d)))
                continue;
            done[j] = true;
            group[n++] = &m->devices[j];
        }
        if (n == 0)
            continue;
        if (node)
            r = buf_printf(&b, "NodeName=%s ", node);
        if (r == 0)
            r = buf_printf(&b, "Name=%s Type=%s File=", d->gres, d->model);
        if (r == 0)
            r = put_files(&b, group, n);
        if (r == 0 && whole)
            r = put_cores(&b, d);
        if (r == 0)
            r = buf_puts(&b, "\n");
    }
    return b.data ? b.data : mem_strdup("");
}
