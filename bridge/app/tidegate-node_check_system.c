// SPDX-License-Identifier: GPL-2.0-or-later
/* Checks of memory, clock and munge. */
#include <string.h>
#include <unistd.h>

#include "app/tidegate-node_check.h"
#include "io/cred.h"

/* ---- memory -------------------------------------------------------------------------- */

/* A line of /proc/meminfo in MiB; -1 when it is not there. */
static int64_t meminfo(const struct check_call *c, const char *key)
{
    _cleanup_(mem_freep) char *path = check_path(c, "/proc/meminfo");
    FILE *f = fopen(path, "re");
    char line[256];
    long long kib = -1;

    while (f && fgets(line, sizeof(line), f)) {
        size_t n = strlen(key);

        if (strncmp(line, key, n) == 0 && line[n] == ':') {
            if (sscanf(line + n + 1, " %lld kB", &kib) != 1)
                kib = -1;
            break;
        }
    }
    if (f)
        (void)fclose(f);
    return kib < 0 ? -1 : kib / 1024;
}

int check_memory(struct check_call *c)
{
    int64_t percent = 0, real, total, available;
    const struct check_option options[] = {
        {"--min-available-percent", .number = &percent},
        {0},
    };
    int r = check_read_only_options(c, options);

    if (r)
        return r;
    total = meminfo(c, "MemTotal");
    available = meminfo(c, "MemAvailable");
    if (total < 0 || available < 0)
        return check_failed(
            "MemTotal or MemAvailable is missing in /proc/meminfo, expected both: "
            "mount /proc");
    if (!check_env_number("TIDEGATE_REAL_MEMORY_MIB", &real))
        return check_failed("TIDEGATE_REAL_MEMORY_MIB is not set, expected RealMemory of "
                            "this node's line: "
                            "let the agent run this check, or set it");
    if (total < real)
        return check_failed(
            "the machine has %lld MiB of memory, expected the %lld MiB (RealMemory) that "
            "Slurm was told: look for a lost DIMM, then restart the slurmd pod",
            (long long)total, (long long)real);
    if (available * 100 < real * percent)
        return check_failed(
            "%lld MiB of memory are available, expected %lld %% of RealMemory (%lld "
            "MiB): "
            "look for processes and files in /dev/shm or /tmp that jobs have left",
            (long long)available, (long long)percent, (long long)real);
    return check_good("%lld of %lld MiB of memory are available, RealMemory is %lld MiB",
                      (long long)available, (long long)total, (long long)real);
}

/* ---- clock --------------------------------------------------------------------------- */

int check_clock(struct check_call *c)
{
    int64_t max = 1000, offset;
    const struct check_option options[] = {
        {"--max-ms", .number = &max},
        {0},
    };
    int r = check_read_only_options(c, options);

    if (r)
        return r;
    if (!getenv("TIDEGATE_CLOCK_OFFSET_MS"))
        return check_good(
            "no bridge has told its clock, so there is nothing to compare with");
    if (!check_env_number("TIDEGATE_CLOCK_OFFSET_MS", &offset))
        return check_failed(
            "TIDEGATE_CLOCK_OFFSET_MS is '%.40s', expected a whole number: let the agent "
            "run this check",
            getenv("TIDEGATE_CLOCK_OFFSET_MS"));
    if (offset > max || offset < -max)
        return check_failed("the clock is %lld ms %s the bridge's, expected at most %lld "
                            "ms: see that chrony "
                            "or another NTP client runs on both machines",
                            (long long)(offset < 0 ? -offset : offset),
                            offset > 0 ? "behind" : "ahead of", (long long)max);
    return check_good("the clock is %lld ms from the bridge's", (long long)offset);
}

/* ---- munge --------------------------------------------------------------------------- */

int check_munge(struct check_call *c)
{
    static const char payload[] = "tidegate-node check munge";
    const struct check_option options[] = {{0}};
    struct buf text = BUF_INIT(4UL * CRED_PAYLOAD_MAX);
    struct cred cred = {0};
    struct err err = {""};
    int r = check_read_only_options(c, options);

    if (r)
        return r;
    r = cred_encode(NULL, geteuid(), payload, sizeof(payload), &text, &err);
    if (r == 0)
        r = cred_decode(NULL, buf_str(&text), text.len, &cred, &err);
    buf_free(&text);
    if (r < 0)
        return check_failed(
            "munge does not work: %.110s; look at munged in the log of the slurmd pod, "
            "and at its key",
            err.text);
    if (cred.uid != geteuid() || cred.size != sizeof(payload) ||
        memcmp(cred.payload, payload, sizeof(payload)) != 0)
        r = check_failed(
            "munge gave back another uid (%u) or text than was put in, expected uid %u: "
            "restart the slurmd pod",
            (unsigned)cred.uid, (unsigned)geteuid());
    else
        r = check_good("munge made and opened a credential");
    cred_clear(&cred);
    return r;
}
