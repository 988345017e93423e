// SPDX-License-Identifier: GPL-2.0-or-later
/* What the pod's manifest tells its PID 1. */
#include "app/tidegate-node_run.h"

#include <arpa/inet.h>
#include <errno.h>
#include <string.h>

#define GRACE_DEFAULT_S "30"             /* Kubernetes' own */
#define GRACE_MAX_S     INT64_C(2592000) /* 30 days */

static const char *get(const char *name, const char *fallback)
{
    const char *value = getenv(name);

    return value && *value ? value : fallback;
}

/* A name of Kubernetes: what goes into command lines, and into Slurm. */
static int need_name(const char *name, const char *meaning, const char **ret,
                     struct err *err)
{
    const char *value = get(name, NULL);

    if (!value)
        return err_set(err, -EINVAL,
                       "%s is empty, expected %s: set it in the pod's environment", name,
                       meaning);
    if (value[strspn(value,
                     "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                     "._-")] ||
        *value == '-')
        return err_set(err, -EINVAL,
                       "%s is \"%s\", expected %s: letters, digits, '.', '_' and '-'",
                       name, value, meaning);
    *ret = value;
    return 0;
}

static int need_address(const char *name, const char *meaning, const char **ret,
                        struct err *err)
{
    const char *value = get(name, NULL);
    struct in6_addr a;

    if (!value)
        return err_set(
            err, -EINVAL,
            "%s is empty, expected %s: does that Service exist, and was this pod "
            "started after it?",
            name, meaning);
    if (inet_pton(AF_INET, value, &a) != 1 && inet_pton(AF_INET6, value, &a) != 1)
        return err_set(err, -EINVAL, "%s is \"%s\", expected %s in numbers", name, value,
                       meaning);
    *ret = value;
    return 0;
}

static int read_number(const char *name, const char *fallback, int64_t max, int64_t *ret,
                       struct err *err)
{
    const char *value = get(name, fallback);
    char *end = NULL;
    long long n = 0;

    if (value && *value >= '0' && *value <= '9') {
        errno = 0;
        n = strtoll(value, &end, 10);
    }
    if (!end || *end || errno || n > max)
        return err_set(err, -EINVAL,
                       "%s is \"%s\", expected a whole number from 0 to %lld", name,
                       value ? value : "", (long long)max);
    *ret = n;
    return 0;
}

static int read_yes(const char *name, bool *ret, struct err *err)
{
    const char *value = get(name, "no");

    *ret = strcmp(value, "yes") == 0;
    if (!*ret && strcmp(value, "no") != 0)
        return err_set(err, -EINVAL, "%s is \"%s\", expected yes or no", name, value);
    return 0;
}

int node_env_read(struct node_env *ret, struct err *err)
{
    int64_t grace = 0, uid;
    int r;

    *ret = (struct node_env){
        .agents = get("TIDEGATE_AGENTS", NULL),
        .slurmd_conf = get("SLURMD_CONF", ""),
        .checks = get("TIDEGATE_CHECKS", "/etc/tidegate/checks/checks.json"),
        .state = get("TIDEGATE_STATE", "/var/lib/tidegate"),
    };
    r = need_name("NODE_NAME", "the name of this node (spec.nodeName)", &ret->node, err);
    if (r == 0)
        r = need_name("POD_UID", "the pod's uid (metadata.uid)", &ret->pod_uid, err);
    if (r == 0)
        r = need_name("POOL", "the name of the pool", &ret->pool, err);
    if (r == 0)
        r = need_address("SLURMCTLD_IP", "the IP address of the controller's Service",
                         &ret->controller, err);
    if (r == 0)
        r = read_number("TIDEGATE_GRACE", GRACE_DEFAULT_S, GRACE_MAX_S, &grace, err);
    if (r == 0)
        r = read_yes("TIDEGATE_GRES", &ret->gres, err);
    if (r == 0 && ret->agents) /* read again by the program that makes the credential */
        r = read_number("TIDEGATE_BRIDGE_UID", NULL, UINT32_MAX - 1, &uid, err);
    ret->grace_ms = grace * 1000;
    return r;
}
