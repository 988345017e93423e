// SPDX-License-Identifier: GPL-2.0-or-later
/* Checks of what sysfs and the kernel's log tell of memory, links and GPUs; where they tell nothing, nothing is
 * wrong. */
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <string.h>
#include <unistd.h>

#include "app/tidegate-node_check.h"

static void find_files(const struct check_call *c, const char *pattern, glob_t *ret)
{
    _cleanup_(mem_freep) char *path = check_path(c, "%s", pattern);

    *ret = (glob_t){0};
    if (glob(path, 0, NULL, ret) != 0)
        ret->gl_pathc = 0;
}

/* A file in a directory; the caller frees. */
static char *beside(const char *directory, const char *file)
{
    return mem_printf("%s/%s", directory, file);
}

static int64_t number_in(const char *directory, const char *file)
{
    _cleanup_(mem_freep) char *path = beside(directory, file);

    return check_read_number(path);
}

/* ---- memory errors ------------------------------------------------------------------- */

/* The DIMM of a memory controller with the most errors; the caller frees. */
static char *worst_dimm(const char *controller, const char *counter)
{
    _cleanup_(mem_freep) char *pattern = beside(controller, "dimm[0-9]*");
    _cleanup_(mem_freep) char *worst = NULL;
    char *name = NULL;
    int64_t most = 0;
    glob_t dimms = {0};

    if (glob(pattern, 0, NULL, &dimms) != 0)
        dimms.gl_pathc = 0;
    for (size_t i = 0; i < dimms.gl_pathc; i++) {
        int64_t n = number_in(dimms.gl_pathv[i], counter);

        if (n > most) {
            most = n;
            mem_set(&worst, dimms.gl_pathv[i]);
        }
    }
    globfree(&dimms);
    if (worst) {
        _cleanup_(mem_freep) char *label = beside(worst, "dimm_label");

        name = check_read_line(label);
        if (!name)
            mem_set(&name, strrchr(worst, '/') + 1);
    }
    return name ? name : mem_strdup("DIMM");
}

/* 0: fewer than allowed on each. */
static int judge_controllers(const glob_t *all, bool corrected, int64_t max)
{
    for (size_t i = 0; i < all->gl_pathc; i++) {
        const char *mc = all->gl_pathv[i];
        int64_t n = number_in(mc, corrected ? "ce_count" : "ue_count");
        _cleanup_(mem_freep) char *dimm = NULL;

        if (n <= max)
            continue;
        dimm = worst_dimm(mc, corrected ? "dimm_ce_count" : "dimm_ue_count");
        return check_failed(
            "memory controller %s counts %lld %s ECC errors since boot, expected at most "
            "%lld: replace %.40s",
            strrchr(mc, '/') + 1, (long long)n, corrected ? "corrected" : "uncorrected",
            (long long)max, dimm);
    }
    return 0;
}

/* Over all processors; -1: the kernel counts none. */
static int64_t machine_checks(const struct check_call *c)
{
    _cleanup_(mem_freep) char *path = check_path(c, "/proc/interrupts");
    FILE *f = fopen(path, "re");
    char *line = NULL;
    size_t size = 0;
    int64_t sum = -1;

    while (f && getline(&line, &size, f) > 0) {
        char *p = line + strspn(line, " "), *end;

        if (strncmp(p, "MCE:", 4) != 0)
            continue;
        sum = 0;
        for (p += 4;; p = end) {
            unsigned long long n = strtoull(p, &end, 10);

            if (end == p)
                break;
            sum += (int64_t)n;
        }
    }
    free(line);
    if (f)
        (void)fclose(f);
    return sum;
}

int check_ecc(struct check_call *c)
{
    int64_t uncorrected = 0, corrected = -1, mce = 0, mces;
    const struct check_option options[] = {
        {"--max-uncorrected", .number = &uncorrected},
        {"--max-corrected", .number = &corrected},
        {"--max-mce", .number = &mce},
        {0},
    };
    size_t controllers;
    glob_t all;
    int r = check_read_only_options(c, options);

    if (r)
        return r;
    find_files(c, "/sys/devices/system/edac/mc/mc[0-9]*", &all);
    controllers = all.gl_pathc;
    r = judge_controllers(&all, false, uncorrected);
    if (r == 0 && corrected >= 0)
        r = judge_controllers(&all, true, corrected);
    globfree(&all);
    if (r)
        return r;
    mces = machine_checks(c);
    if (mces > mce)
        return check_failed("the processors report %lld machine checks since boot, "
                            "expected at most %lld: "
                            "look in dmesg or rasdaemon which part it is, and replace it",
                            (long long)mces, (long long)mce);
    return check_good("no ECC error that is not corrected on %zu memory controllers, "
                      "%lld machine checks",
                      controllers, (long long)(mces < 0 ? 0 : mces));
}

/* ---- links --------------------------------------------------------------------------- */

static int judge_speed(const char *name, int64_t gbit, int64_t min)
{
    if (gbit >= min)
        return 0;
    return check_failed(
        "link %s runs at %lld Gbit/s, expected at least %lld: look at its cable and the "
        "switch port",
        name, (long long)gbit, (long long)min);
}

/* Ethernet, and IP over InfiniBand. */
static int judge_interface(const char *name, const char *directory, int64_t min_gbit)
{
    _cleanup_(mem_freep) char *path = beside(directory, "operstate");
    _cleanup_(mem_freep) char *state = check_read_line(path);
    int64_t mbit;

    if (!state || strcmp(state, "up") != 0)
        return check_failed(
            "link %s is %.20s, expected up: look at its cable and the switch port", name,
            state ? state : "unknown");
    if (min_gbit <= 0)
        return 0;
    mbit = number_in(directory, "speed");
    return judge_speed(name, mbit < 0 ? 0 : mbit / 1000, min_gbit);
}

static int judge_port(const char *name, const char *directory, int64_t min_gbit)
{
    _cleanup_(mem_freep) char *state_path = beside(directory, "state");
    _cleanup_(mem_freep) char *state = check_read_line(state_path);

    if (!state || strcmp(state, "4: ACTIVE") != 0)
        return check_failed(
            "port %s is in state '%.20s', expected '4: ACTIVE': look at its cable, the "
            "switch port and the subnet manager",
            name, state ? state : "unknown");
    return min_gbit > 0 ? judge_speed(name, number_in(directory, "rate"), min_gbit) : 0;
}

static int judge_link(const struct check_call *c, const char *name, int64_t min_gbit)
{
    const char *colon = strchr(name, ':');
    int length = colon ? (int)(colon - name) : (int)strlen(name);
    _cleanup_(mem_freep) char *interface = check_path(c, "/sys/class/net/%s", name);
    _cleanup_(mem_freep) char *port = check_path(c, "/sys/class/infiniband/%.*s/ports/%s",
                                                 length, name, colon ? colon + 1 : "1");

    if (access(port, F_OK) == 0)
        return judge_port(name, port, min_gbit);
    if (access(interface, F_OK) == 0)
        return judge_interface(name, interface, min_gbit);
    return check_failed("link %s is not there, expected a network interface or an "
                        "InfiniBand port: see that "
                        "its card is seen by lspci and its driver is loaded",
                        name);
}

int check_link(struct check_call *c)
{
    int64_t min_gbit = 0;
    const struct check_option options[] = {
        {"--min-gbit", .number = &min_gbit},
        {0},
    };
    int r = check_read_options(c, options);

    if (r == 0)
        r = check_expect_names(c, 1, CHECK_NAMES_MAX, "the name of an interface or port");
    for (size_t i = 0; i < c->n_names && r == 0; i++)
        r = judge_link(c, c->names[i], min_gbit);
    return r ? r : check_good("%zu links are up", c->n_names);
}

/* ---- GPUs ---------------------------------------------------------------------------- */

/* NVIDIA's numbers for what is wrong with the hardware; the others are a program's own mistakes. */
static const struct {
    int number;
    const char *text;
} xids[] = {
    {48, "memory error that is not corrected"},
    {62, "its microcontroller has halted"},
    {64, "a bad memory row cannot be replaced"},
    {74, "NVLink error"},
    {79, "it has fallen off the bus"},
    {95, "memory error that is not contained"},
    {119, "its system processor does not answer"},
    {120, "its system processor has failed"},
    {140, "memory error that is not recovered"},
};

static bool is_ignored(const char *list, int number)
{
    while (list && *list) {
        char *end;

        if (strtol(list, &end, 10) == number && end != list)
            return true;
        list = *end ? end + 1 : end;
    }
    return false;
}

/* "NVRM: Xid (PCI:0000:3b:00): 79, pid=..." anywhere in the line: 1 after saying so, else 0. */
static int judge_line(const char *line, const char *ignored)
{
    char device[32];
    int number;
    const char *at = strstr(line, "NVRM: Xid (");

    if (!at || sscanf(at, "NVRM: Xid (%31[^)]): %d", device, &number) != 2 ||
        is_ignored(ignored, number))
        return 0;
    for (size_t i = 0; i < TG_LEN(xids); i++) {
        if (xids[i].number == number)
            return check_failed("GPU %s reported XID %d since boot (%s), expected none: "
                                "look in dmesg, then "
                                "reset it or reboot the node",
                                device, number, xids[i].text);
    }
    return 0;
}

/* A record of the kernel's log a read; a plain file (of tests) comes in pieces that lines do not end with. */
static int judge_log(const struct check_call *c, const char *ignored)
{
    _cleanup_(mem_freep) char *path = check_path(c, "/dev/kmsg");
    char record[8192 + 1];
    size_t kept = 0;
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC), r = 0;

    if (fd < 0)
        return 0; /* not for this pod to read */
    for (;;) {
        ssize_t n = read(fd, record + kept, sizeof(record) - 1 - kept);
        char *line = record, *end;

        if (n < 0 && errno == EPIPE)
            continue; /* it was overwritten meanwhile: the next one */
        if (n <= 0 || r)
            break;
        record[kept + (size_t)n] = '\0';
        for (; !r && (end = strchr(line, '\n')); line = end + 1) {
            *end = '\0';
            r = judge_line(line, ignored);
        }
        kept = strlen(line);
        if (kept == sizeof(record) - 1)
            kept = 0; /* no line is that long */
        memmove(record, line, kept);
    }
    (void)close(fd);
    return r;
}

int check_gpu(struct check_call *c)
{
    int64_t count = -1;
    const char *ignored = NULL;
    const struct check_option options[] = {
        {"--count", .number = &count},
        {"--ignore-xids", .text = &ignored},
        {0},
    };
    size_t n;
    glob_t all;
    int r = check_read_only_options(c, options);

    if (r)
        return r;
    find_files(c, "/dev/nvidia[0-9]*", &all);
    n = all.gl_pathc;
    globfree(&all);
    if (count >= 0 && n < (size_t)count)
        return check_failed("%zu GPUs are there (/dev/nvidia*), expected %lld: look in "
                            "dmesg and lspci for the "
                            "lost one, reseat it or reboot the node",
                            n, (long long)count);
    if (n)
        r = judge_log(c, ignored);
    return r ? r : check_good("%zu GPUs and no XID of theirs", n);
}
