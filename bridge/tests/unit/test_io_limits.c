// SPDX-License-Identifier: GPL-2.0-or-later
/* Control groups as container runtimes lay them out, in trees of files. */
#include "io/limits.h"

#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/unit/titled.h"

struct tree_file {
    const char *path;
    const char *text;
};

/* What the kernel says of mounts, but for the numbers that nobody reads. */
#define MOUNT(root, at, type, options)                                                   \
    "31 23 0:28 " root " " at " rw,relatime - " type " " type " " options "\n"
#define V2_MOUNT(root)    MOUNT(root, "/sys/fs/cgroup", "cgroup2", "rw,nsdelegate")
#define V1_MOUNT(root, c) MOUNT(root, "/sys/fs/cgroup/" c, "cgroup", "rw," c)
#define NOISE                                                                            \
    MOUNT("/", "/", "overlay", "rw,lowerdir=/a,cgroup2")                                 \
    MOUNT("/", "/proc", "proc", "rw")

#define FILES_MAX 10

static int remove_one(const char *path, const struct stat *st, int flag, struct FTW *at)
{
    (void)st;
    (void)flag;
    (void)at;
    return remove(path);
}

static void put_file(const char *root, const struct tree_file *file)
{
    _cleanup_(mem_freep) char *full = mem_printf("%s%s", root, file->path);
    FILE *f;

    for (char *s = strchr(full + strlen(root) + 1, '/'); s; s = strchr(s + 1, '/')) {
        *s = '\0';
        (void)mkdir(full, 0700);
        *s = '/';
    }
    f = fopen(full, "we");
    assert_non_null(f);
    assert_true(fputs(file->text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

static int read_tree(const struct tree_file *files, struct pod_limits *p, struct err *err)
{
    char root[] = "/tmp/limits.XXXXXX";
    int r;

    assert_non_null(mkdtemp(root));
    for (size_t i = 0; i < FILES_MAX && files[i].path; i++)
        put_file(root, &files[i]);
    r = limits_read(root, p, err);
    assert_int_equal(nftw(root, remove_one, 16, FTW_DEPTH | FTW_PHYS), 0);
    return r;
}

static void each_layout(void **state)
{
    static const struct {
        const char *name;
        uint64_t cpu_millis;
        uint64_t memory_mib;
        struct tree_file files[FILES_MAX];
    } cases[] = {
        {"nothing at all", 0, 0, {{"/x", ""}}},
        {"v2 in a cgroup namespace: the container's own group is /",
         1500,
         512,
         {{"/proc/self/cgroup", "0::/\n"},
          {"/proc/self/mountinfo", NOISE V2_MOUNT("/")},
          {"/sys/fs/cgroup/cpu.max", "150000 100000\n"},
          {"/sys/fs/cgroup/memory.max", "536870912\n"}}},
        {"v2 without limits",
         0,
         0,
         {{"/proc/self/cgroup", "0::/\n"},
          {"/proc/self/mountinfo", V2_MOUNT("/")},
          {"/sys/fs/cgroup/cpu.max", "max 100000\n"},
          {"/sys/fs/cgroup/memory.max", "max\n"}}},
        {"v2 with the host's groups, as a privileged pod sees them: the tightest of all "
         "levels",
         2000,
         1024,
         {{"/proc/self/cgroup", "0::/kubepods.slice/kubepods-pod1.slice/cri-1.scope\n"},
          {"/proc/self/mountinfo", V2_MOUNT("/")},
          {"/sys/fs/cgroup/kubepods.slice/cpu.max", "max 100000\n"},
          {"/sys/fs/cgroup/kubepods.slice/memory.max", "17179869184\n"},
          {"/sys/fs/cgroup/kubepods.slice/kubepods-pod1.slice/cpu.max",
           "200000 100000\n"},
          {"/sys/fs/cgroup/kubepods.slice/kubepods-pod1.slice/memory.max",
           "1073741824\n"},
          {"/sys/fs/cgroup/kubepods.slice/kubepods-pod1.slice/cri-1.scope/cpu.max",
           "25000 10000\n"},
          {"/sys/fs/cgroup/kubepods.slice/kubepods-pod1.slice/cri-1.scope/memory.max",
           "max\n"}}},
        {"v2 mounted from the container's group, whose path is the host's",
         3000,
         0,
         {{"/proc/self/cgroup", "0::/kubepods/pod1/c1\n"},
          {"/proc/self/mountinfo", V2_MOUNT("/kubepods/pod1/c1")},
          {"/sys/fs/cgroup/cpu.max", "300000 100000\n"}}},
        {"v2 entered from outside: the path leads out of the namespace",
         4000,
         0,
         {{"/proc/self/cgroup", "0::/../../init\n"},
          {"/proc/self/mountinfo", V2_MOUNT("/")},
          {"/sys/fs/cgroup/cpu.max", "400000 100000\n"}}},
        {"v1, each controller by itself, mounted from the container's group",
         1500,
         1024,
         {{"/proc/self/cgroup", "4:memory:/kubepods/pod1/c1\n3:cpuset:/kubepods/pod1/c1\n"
                                "1:cpu:/kubepods/pod1/c1\n0::/\n"},
          {"/proc/self/mountinfo", NOISE V1_MOUNT("/kubepods/pod1/c1", "cpu")
                                       V1_MOUNT("/kubepods/pod1/c1", "memory")
                                           V1_MOUNT("/kubepods/pod1/c1", "cpuset")},
          {"/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "150000\n"},
          {"/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n"},
          {"/sys/fs/cgroup/memory/memory.limit_in_bytes", "1073741824\n"}}},
        {"v1, two controllers in one mount, with the host's groups",
         500,
         256,
         {{"/proc/self/cgroup", "4:memory:/a/b\n2:cpu,cpuacct:/a/b\n"},
          {"/proc/self/mountinfo", V1_MOUNT("/", "cpuacct,cpu") V1_MOUNT("/", "memory")},
          {"/sys/fs/cgroup/cpuacct,cpu/a/b/cpu.cfs_quota_us", "-1\n"},
          {"/sys/fs/cgroup/cpuacct,cpu/a/b/cpu.cfs_period_us", "100000\n"},
          {"/sys/fs/cgroup/cpuacct,cpu/a/cpu.cfs_quota_us", "50000\n"},
          {"/sys/fs/cgroup/cpuacct,cpu/a/cpu.cfs_period_us", "100000\n"},
          {"/sys/fs/cgroup/memory/a/b/memory.limit_in_bytes", "268435456\n"}}},
        {"v1: a limit of a group above, which cannot be seen but in memory.stat",
         0,
         2048,
         {{"/proc/self/cgroup", "4:memory:/a/b\n"},
          {"/proc/self/mountinfo", V1_MOUNT("/a/b", "memory")},
          {"/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"},
          {"/sys/fs/cgroup/memory/memory.stat",
           "cache 1\nhierarchical_memory_limit 2147483648\ntotal_cache 1\n"}}},
        {"v1 without limits",
         0,
         0,
         {{"/proc/self/cgroup", "4:memory:/\n1:cpu:/\n"},
          {"/proc/self/mountinfo", V1_MOUNT("/", "memory") V1_MOUNT("/", "cpu")},
          {"/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n"},
          {"/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"},
          {"/sys/fs/cgroup/memory/memory.stat",
           "hierarchical_memory_limit 9223372036854771712\n"}}},
        {"v1 and v2 side by side",
         1000,
         100,
         {{"/proc/self/cgroup", "1:cpu:/\n0::/x\n"},
          {"/proc/self/mountinfo",
           V1_MOUNT("/", "cpu") MOUNT("/", "/sys/fs/cgroup/unified", "cgroup2", "rw")},
          {"/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "100000\n"},
          {"/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n"},
          {"/sys/fs/cgroup/unified/x/memory.max", "104857600\n"}}},
        {"another container's group, mounted elsewhere, is not ours",
         0,
         0,
         {{"/proc/self/cgroup", "0::/pods/mine\n"},
          {"/proc/self/mountinfo", MOUNT("/pods/other", "/mnt", "cgroup2", "rw")},
          {"/mnt/cpu.max", "100000 100000\n"}}},
        {"a name that begins like ours is not ours",
         0,
         0,
         {{"/proc/self/cgroup", "0::/pods/mine\n"},
          {"/proc/self/mountinfo", MOUNT("/pods/m", "/mnt", "cgroup2", "rw")},
          {"/mnt/cpu.max", "100000 100000\n"},
          {"/mnt/ine/cpu.max", "100000 100000\n"}}},
    };

    (void)state;
    for (size_t i = 0; i < TG_LEN(cases); i++) {
        struct pod_limits p = {0};
        struct err err = {.text = ""};

        if (read_tree(cases[i].files, &p, &err) < 0)
            fail_msg("%s: %s", cases[i].name, err.text);
        if (p.limits.cpu_millis != cases[i].cpu_millis ||
            p.limits.memory_mib != cases[i].memory_mib)
            fail_msg("%s: %llu thousandths, %llu MiB", cases[i].name,
                     (unsigned long long)p.limits.cpu_millis,
                     (unsigned long long)p.limits.memory_mib);
        pod_limits_clear(&p);
    }
}

static void what_cannot_be_understood_is_an_error(void **state)
{
    static const struct tree_file v2[] = {
        {"/sys/fs/cgroup/cpu.max", "a lot\n"},
        {"/sys/fs/cgroup/cpu.max", "100000\n"},
        {"/sys/fs/cgroup/cpu.max", "100000 0\n"},
        {"/sys/fs/cgroup/cpu.max", "99999999999999999999999 100000\n"},
        {"/sys/fs/cgroup/cpu.max", ""},
        {"/sys/fs/cgroup/memory.max", "12 MiB\n"},
        {"/sys/fs/cgroup/memory.max", "-1\n"},
    };

    (void)state;
    for (size_t i = 0; i < TG_LEN(v2); i++) {
        const struct tree_file files[FILES_MAX] = {
            {"/proc/self/cgroup", "0::/\n"},
            {"/proc/self/mountinfo", V2_MOUNT("/")},
            v2[i],
        };
        struct pod_limits p = {0};
        struct err err = {.text = ""};

        assert_int_equal(read_tree(files, &p, &err), -EBADMSG);
        assert_non_null(strstr(err.text, v2[i].path));
        assert_null(p.cpus);
    }
}

static void what_cannot_be_read_is_an_error(void **state)
{
    /* A directory in the place of a file: open() succeeds, read() does not, for root too. */
    static const struct tree_file files[FILES_MAX] = {
        {"/proc/self/cgroup", "0::/\n"},
        {"/proc/self/mountinfo", V2_MOUNT("/")},
        {"/sys/fs/cgroup/memory.max/x", ""},
    };
    struct pod_limits p = {0};
    struct err err = {.text = ""};

    (void)state;
    assert_int_equal(read_tree(files, &p, &err), -EISDIR);
    assert_non_null(strstr(err.text, "memory.max"));
}

static void cpus_and_nodes_of_status(void **state)
{
    static const struct tree_file files[FILES_MAX] = {
        {"/proc/self/status", "Name:\tx\nCpus_allowed:\tff\nCpus_allowed_list:\t1,3-7\n"
                              "Mems_allowed_list:\t0\n"},
    };
    struct pod_limits p = {0};

    (void)state;
    assert_int_equal(read_tree(files, &p, NULL), 0);
    assert_string_equal(p.cpus, "1,3-7");
    assert_string_equal(p.mems, "0");
    pod_limits_clear(&p);
}

static void this_process(void **state)
{
    struct pod_limits p = {0};
    struct err err = {.text = ""};

    (void)state;
    if (limits_read("", &p, &err) < 0)
        fail_msg("%s", err.text);
    assert_non_null(p.cpus);
    pod_limits_clear(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TITLED("each layout of control groups gives its limits", each_layout),
        TITLED("a limit that cannot be understood is an error",
               what_cannot_be_understood_is_an_error),
        TITLED("a limit that cannot be read is an error",
               what_cannot_be_read_is_an_error),
        TITLED("cpus and NUMA nodes are those of /proc/self/status",
               cpus_and_nodes_of_status),
        TITLED("this process's limits can be read", this_process),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
