// SPDX-License-Identifier: GPL-2.0-or-later
/* Checks of file systems. A dead one makes them hang, which whoever runs them has to see to. */
#include <errno.h>
#include <mntent.h>
#include <string.h>
#include <sys/statvfs.h>

#include "app/tidegate-node_check.h"

#define MIB UINT64_C(1048576)

/* ---- space --------------------------------------------------------------------------- */

/* In tenths of a percent of what users may fill, as df counts. */
static int permille(uint64_t available, uint64_t used)
{
    uint64_t all = available + used;

    return all ? (int)((__uint128_t)available * 1000 / all) : 0;
}

int check_space(struct check_call *c)
{
    int64_t min_percent = 5, min_mib = 0, min_inodes = 5;
    bool writable = false;
    const struct check_option options[] = {
        {"--min-percent", .number = &min_percent},
        {"--min-mib", .number = &min_mib},
        {"--min-inode-percent", .number = &min_inodes},
        {"--writable", .flag = &writable},
        {0},
    };
    struct statvfs fs;
    uint64_t mib;
    int free_space, free_inodes, r = check_read_options(c, options);

    if (r == 0)
        r = check_expect_names(c, 1, 1, "one path");
    if (r)
        return r;
    if (statvfs(c->names[0], &fs) < 0)
        return check_failed(
            "%s cannot be looked at: %s, expected a mounted file system: mount it or "
            "correct the check's path",
            c->names[0], strerror(errno));
    mib = (uint64_t)fs.f_bavail * fs.f_frsize / MIB;
    free_space = permille(fs.f_bavail, fs.f_blocks - fs.f_bfree);
    free_inodes = permille(fs.f_favail, fs.f_files - fs.f_ffree);
    if (writable && (fs.f_flag & ST_RDONLY))
        return check_failed(
            "%s is mounted read-only, expected writable: look in dmesg for an error of "
            "its disk, repair and remount it",
            c->names[0]);
    if (free_space < min_percent * 10)
        return check_failed(
            "%s has %d.%d %% (%llu MiB) free, expected at least %lld %%: delete files "
            "there or enlarge it",
            c->names[0], free_space / 10, free_space % 10, (unsigned long long)mib,
            (long long)min_percent);
    if (mib < (uint64_t)min_mib)
        return check_failed(
            "%s has %llu MiB free, expected at least %lld MiB: delete files there or "
            "enlarge it",
            c->names[0], (unsigned long long)mib, (long long)min_mib);
    /* Some file systems make inodes as they are needed, and say 0. */
    if (fs.f_files && free_inodes < min_inodes * 10)
        return check_failed(
            "%s has %d.%d %% of its inodes free, expected at least %lld %%: delete files "
            "there, many small ones use them up",
            c->names[0], free_inodes / 10, free_inodes % 10, (long long)min_inodes);
    return check_good("%s has %d.%d %% (%llu MiB) free", c->names[0], free_space / 10,
                      free_space % 10, (unsigned long long)mib);
}

/* ---- mount --------------------------------------------------------------------------- */

struct mounted {
    char *type, *source; /* NULL: nothing is mounted there */
};

static void mounted_clear(struct mounted *m)
{
    free(m->type);
    free(m->source);
}

/* What is mounted at `path` on top; false when the list cannot be read. */
static bool find_mount(const struct check_call *c, const char *path, struct mounted *ret)
{
    _cleanup_(mem_freep) char *list = check_path(c, "/proc/self/mounts");
    FILE *f = setmntent(list, "re");
    char line[4096];
    struct mntent m;

    if (!f)
        return false;
    while (getmntent_r(f, &m, line, sizeof(line))) {
        if (strcmp(m.mnt_dir, path) != 0)
            continue;
        mem_set(&ret->type, m.mnt_type);
        mem_set(&ret->source, m.mnt_fsname);
    }
    (void)endmntent(f);
    return true;
}

static int judge_mount(const struct check_call *c, const struct mounted *m,
                       const char *type, const char *source)
{
    const char *path = c->names[0];
    _cleanup_(mem_freep) char *real = check_path(c, "%s", path);
    struct statvfs fs;

    if (!m->type)
        return check_failed(
            "nothing is mounted at %s, expected %s: mount it on the node, or look why it "
            "was lost",
            path,
            source ? source
            : type ? type
                   : "a file system");
    if (type && strcmp(type, m->type) != 0)
        return check_failed("%s is a mount of type %s, expected %s: mount the right one",
                            path, m->type, type);
    if (source && strcmp(source, m->source) != 0)
        return check_failed("%s is mounted from %s, expected %s: mount the right one",
                            path, m->source, source);
    if (statvfs(real, &fs) < 0)
        return check_failed(
            "%s (%s from %s) does not answer: %s, expected its size: look after its "
            "server, then mount it again",
            path, m->type, m->source, strerror(errno));
    return check_good("%s is mounted from %s (%s) and answers", path, m->source, m->type);
}

int check_mount(struct check_call *c)
{
    const char *type = NULL, *source = NULL;
    const struct check_option options[] = {
        {"--type", .text = &type},
        {"--source", .text = &source},
        {0},
    };
    struct mounted m = {0};
    int r = check_read_options(c, options);

    if (r == 0)
        r = check_expect_names(c, 1, 1, "one path");
    if (r)
        return r;
    if (!find_mount(c, c->names[0], &m))
        return check_failed(
            "the list of mounts cannot be read: %s, expected /proc/self/mounts: mount "
            "/proc",
            strerror(errno));
    r = judge_mount(c, &m, type, source);
    mounted_clear(&m);
    return r;
}
