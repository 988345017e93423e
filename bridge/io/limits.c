// SPDX-License-Identifier: GPL-2.0-or-later
#include "io/limits.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"

#define FILE_MAX    (1 << 20)           /* mountinfo of a node with thousands of mounts */
#define LEVELS      64                  /* control groups in one another */
#define NO_LIMIT    (UINT64_C(1) << 60) /* v1 writes 'none' as the largest number of pages */
#define USUAL_PLACE "/sys/fs/cgroup"
#define MIB         (UINT64_C(1) << 20)

void pod_limits_clear(struct pod_limits *p)
{
    free(p->cpus);
    free(p->mems);
    *p = (struct pod_limits){0};
}

/* ---- files ----------------------------------------------------------------------------------- */

static void closep(int *fd)
{
    if (*fd >= 0)
        close(*fd);
}

/* The whole file; 1 when there is none. */
static int slurp(const char *path, struct buf *to, struct err *err)
{
    _cleanup_(closep) int fd = open(path, O_RDONLY | O_CLOEXEC);
    char chunk[4096];
    ssize_t n;

    buf_clear(to);
    if (fd < 0)
        return errno == ENOENT || errno == ENOTDIR
                   ? 1
                   : err_set(err, -errno, "%s cannot be opened: %m", path);
    while ((n = read(fd, chunk, sizeof(chunk))) > 0) {
        if (buf_add(to, chunk, (size_t)n) < 0)
            return err_set(err, -EMSGSIZE, "%s has more than %zu bytes", path, to->cap);
    }
    if (n < 0)
        return errno == ENODEV || errno == EOPNOTSUPP
                   ? 1 /* the group is gone, or its controller is off */
                   : err_set(err, -errno, "%s cannot be read: %m", path);
    return 0;
}

/* The text behind "KEY:\t" in /proc/self/status; NULL when it has no such key. */
static char *status_value(const char *text, const char *key)
{
    size_t n = strlen(key);

    for (const char *line = text; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, key, n) == 0 && line[n] == ':') {
            line += n + 1;
            line += strspn(line, " \t");
            return mem_strndup(line, strcspn(line, "\n"));
        }
    }
    return NULL;
}

static int read_status(const char *root, struct pod_limits *p, struct err *err)
{
    _cleanup_(mem_freep) char *path = mem_printf("%s/proc/self/status", root);
    _cleanup_(buf_free) struct buf text = BUF_INIT(FILE_MAX);
    int r = slurp(path, &text, err);

    if (r != 0)
        return r < 0 ? r : 0;
    p->cpus = status_value(buf_str(&text), "Cpus_allowed_list");
    p->mems = status_value(buf_str(&text), "Mems_allowed_list");
    return 0;
}

/* ---- limits of one control group ------------------------------------------------------------- */

static void lower(uint64_t *limit, uint64_t value)
{
    if (*limit == 0 || value < *limit)
        *limit = value;
}

/* A whole number and then one of the bytes of `end`; *at is moved behind it. */
static bool take_number(const char **at, const char *end, uint64_t *ret)
{
    char *stop = NULL;

    if (**at < '0' || **at > '9')
        return false;
    errno = 0;
    *ret = strtoull(*at, &stop, 10);
    if (errno || (*stop && !strchr(end, *stop)))
        return false;
    *at = *stop ? stop + 1 : stop;
    return true;
}

static int bad(const char *path, const char *text, const char *expected, struct err *err)
{
    return err_set(err, -EBADMSG, "%s says \"%.*s\", expected %s", path,
                   (int)strcspn(text, "\n"), text, expected);
}

/* A quota below a thousandth of a CPU is one all the same. */
static void lower_cpu(struct node_limits *l, uint64_t quota, uint64_t period)
{
    uint64_t millis = quota / period * 1000 + quota % period * 1000 / period;

    lower(&l->cpu_millis, millis ? millis : 1);
}

/* "max 100000" or "150000 100000" */
static int read_cpu_v2(const char *dir, struct buf *text, struct node_limits *l,
                       struct err *err)
{
    _cleanup_(mem_freep) char *path = mem_printf("%s/cpu.max", dir);
    uint64_t quota = 0, period = 0;
    const char *at;
    int r = slurp(path, text, err);

    at = buf_str(text);
    if (r != 0 || strncmp(at, "max", 3) == 0)
        return r < 0 ? r : 0;
    if (!take_number(&at, " ", &quota) || !take_number(&at, "\n", &period) || !period)
        return bad(path, buf_str(text), "\"max\" or a quota and a period", err);
    lower_cpu(l, quota, period);
    return 0;
}

static int read_cpu_v1(const char *dir, struct buf *text, struct node_limits *l,
                       struct err *err)
{
    _cleanup_(mem_freep) char *quota_path = mem_printf("%s/cpu.cfs_quota_us", dir);
    _cleanup_(mem_freep) char *period_path = mem_printf("%s/cpu.cfs_period_us", dir);
    uint64_t quota = 0, period = 0;
    const char *at;
    int r = slurp(quota_path, text, err);

    at = buf_str(text);
    if (r != 0 || *at == '-')
        return r < 0 ? r : 0;
    if (!take_number(&at, "\n", &quota))
        return bad(quota_path, buf_str(text), "-1 or a number", err);
    r = slurp(period_path, text, err);
    at = buf_str(text);
    if (r != 0)
        return r < 0 ? r
                     : err_set(err, -ENOENT, "%s is not there, but a quota is",
                               period_path);
    if (!take_number(&at, "\n", &period) || !period)
        return bad(period_path, buf_str(text), "a number", err);
    lower_cpu(l, quota, period);
    return 0;
}

static int read_memory(const char *dir, const char *file, struct buf *text,
                       struct node_limits *l, struct err *err)
{
    _cleanup_(mem_freep) char *path = mem_printf("%s/%s", dir, file);
    uint64_t bytes = 0;
    const char *at;
    int r = slurp(path, text, err);

    at = buf_str(text);
    if (r != 0 || strncmp(at, "max", 3) == 0)
        return r < 0 ? r : 0;
    if (!take_number(&at, "\n", &bytes))
        return bad(path, buf_str(text), "\"max\" or a number of bytes", err);
    if (bytes < NO_LIMIT)
        lower(&l->memory_mib, bytes < MIB ? 1 : bytes / MIB);
    return 0;
}

/* v1 tells of the groups above, which a container does not see, in memory.stat. */
static int read_memory_above(const char *dir, struct buf *text, struct node_limits *l,
                             struct err *err)
{
    static const char key[] = "hierarchical_memory_limit ";
    _cleanup_(mem_freep) char *path = mem_printf("%s/memory.stat", dir);
    uint64_t bytes = 0;
    const char *at;
    int r = slurp(path, text, err);

    if (r != 0)
        return r < 0 ? r : 0;
    at = strstr(buf_str(text), key);
    if (!at)
        return 0;
    at += strlen(key);
    if (!take_number(&at, "\n", &bytes))
        return bad(path, at, "a number of bytes behind hierarchical_memory_limit", err);
    if (bytes < NO_LIMIT)
        lower(&l->memory_mib, bytes < MIB ? 1 : bytes / MIB);
    return 0;
}

enum controller { V2, MEMORY, CPU };

static int read_group(enum controller c, const char *dir, struct buf *text,
                      struct node_limits *l, struct err *err)
{
    int r;

    switch (c) {
    case V2:
        r = read_cpu_v2(dir, text, l, err);
        return r < 0 ? r : read_memory(dir, "memory.max", text, l, err);
    case CPU:
        return read_cpu_v1(dir, text, l, err);
    case MEMORY:
        r = read_memory(dir, "memory.limit_in_bytes", text, l, err);
        return r < 0 ? r : read_memory_above(dir, text, l, err);
    }
    return 0;
}

/* ---- where this process's groups are --------------------------------------------------------- */

/* True when `word` is one of the comma separated words of the first n bytes of list. */
static bool has_word(const char *list, size_t n, const char *word)
{
    size_t len = strlen(word);

    for (size_t i = 0; i < n;) {
        size_t w = strcspn(list + i, ",");

        if (w > n - i)
            w = n - i;
        if (w == len && strncmp(list + i, word, len) == 0)
            return true;
        i += w + 1;
    }
    return false;
}

/* The group of a v1 controller, or of v2 (NULL), in /proc/self/cgroup: "4:cpu,cpuacct:/a/b"; NULL: none. */
static char *own_group(const char *text, const char *controller)
{
    for (const char *line = text; line && *line; line = strchr(line, '\n')) {
        const char *names, *path;

        line += *line == '\n';
        names = strchr(line, ':');
        path = names ? strchr(names + 1, ':') : NULL;
        if (!path)
            continue;
        names++;
        if (controller ? has_word(names, (size_t)(path - names), controller)
                       : path == names && strncmp(line, "0:", 2) == 0)
            return mem_strndup(path + 1, strcspn(path + 1, "\n"));
    }
    return NULL;
}

/* A line of mountinfo that mounts control groups. */
struct mount {
    char root[4096]; /* of the hierarchy: what is mounted of it */
    char at[4096];
    char type[16];
    char options[1024];
};

static bool parse_mount(const char *line, struct mount *m)
{
    const char *dash = strstr(line, " - ");
    const char *end = strchr(line, '\n');

    if (!dash || (end && dash > end))
        return false;
    return sscanf(line, "%*s %*s %*s %4095s %4095s", m->root, m->at) == 2 &&
           sscanf(dash + 3, "%15s %*s %1023s", m->type, m->options) == 2;
}

/*
 * Where the group is below the mount; "" when it is the mount itself. A mount that shows another part of the
 * hierarchy is somebody else's (NULL), but for the one that a container has at the usual place: it is the
 * container's, by whatever name a namespace calls it.
 */
static const char *below(const struct mount *m, const char *group)
{
    size_t n = strcmp(m->root, "/") == 0 ? 0 : strlen(m->root);

    if (strncmp(group, m->root, n) != 0 || (group[n] && group[n] != '/') ||
        strstr(group, "/.."))
        return strncmp(m->at, USUAL_PLACE, strlen(USUAL_PLACE)) == 0 ? "" : NULL;
    return strcmp(group + n, "/") == 0 ? "" : group + n;
}

/* The group and all above it, up to the mount. */
static int read_groups(const char *root, const struct mount *m, const char *group,
                       enum controller c, struct node_limits *l, struct err *err)
{
    _cleanup_(buf_free) struct buf text = BUF_INIT(FILE_MAX);
    _cleanup_(mem_freep) char *dir = NULL;
    const char *path = below(m, group);
    size_t top = strlen(root) + strlen(m->at);

    if (!path)
        return 0;
    dir = mem_printf("%s%s%s", root, m->at, path);
    for (int i = 0; i < LEVELS; i++) {
        char *slash;
        int r = read_group(c, dir, &text, l, err);

        if (r < 0)
            return r;
        slash = strrchr(dir, '/');
        if (strlen(dir) <= top || !slash)
            return 0;
        *slash = '\0';
    }
    return err_set(err, -ELOOP, "control group %s is more than %d deep", group, LEVELS);
}

static int read_mount(const char *root, const struct mount *m, const char *cgroup,
                      struct node_limits *l, struct err *err)
{
    static const struct {
        const char *name; /* NULL: v2 */
        enum controller controller;
    } all[] = {{NULL, V2}, {"memory", MEMORY}, {"cpu", CPU}};
    bool v2 = strcmp(m->type, "cgroup2") == 0;

    if (!v2 && strcmp(m->type, "cgroup") != 0)
        return 0;
    for (size_t i = 0; i < TG_LEN(all); i++) {
        _cleanup_(mem_freep) char *group = NULL;
        int r;

        if (v2 != !all[i].name ||
            (all[i].name && !has_word(m->options, strlen(m->options), all[i].name)))
            continue;
        group = own_group(cgroup, all[i].name);
        r = read_groups(root, m, group ? group : "/", all[i].controller, l, err);
        if (r < 0)
            return r;
    }
    return 0;
}

static int read_mounts(const char *root, struct node_limits *l, struct err *err)
{
    _cleanup_(mem_freep) char *cgroup_path = mem_printf("%s/proc/self/cgroup", root);
    _cleanup_(mem_freep) char *mounts_path = mem_printf("%s/proc/self/mountinfo", root);
    _cleanup_(buf_free) struct buf cgroup = BUF_INIT(FILE_MAX);
    _cleanup_(buf_free) struct buf mounts = BUF_INIT(FILE_MAX);
    _cleanup_(mem_freep) struct mount *m = mem_zalloc(sizeof(*m));
    int r = slurp(cgroup_path, &cgroup, err);

    if (r >= 0)
        r = slurp(mounts_path, &mounts, err);
    if (r < 0)
        return r;
    r = 0;
    for (const char *line = buf_str(&mounts); line && *line && r == 0;) {
        if (parse_mount(line, m))
            r = read_mount(root, m, buf_str(&cgroup), l, err);
        line = strchr(line, '\n');
        line = line ? line + 1 : NULL;
    }
    return r;
}

int limits_read(const char *root, struct pod_limits *ret, struct err *err)
{
    _cleanup_(pod_limits_clear) struct pod_limits p = {0};
    int r = read_status(root, &p, err);

    if (r == 0)
        r = read_mounts(root, &p.limits, err);
    if (r < 0)
        return r;
    *ret = p;
    p = (struct pod_limits){0};
    return 0;
}
