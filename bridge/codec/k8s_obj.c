// SPDX-License-Identifier: GPL-2.0-or-later
#include "codec/k8s_obj.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "codec/json.h"

#define ADDRESS_MAX        45  /* of IPv6, with one of IPv4 at its end */
#define FEATURE_LABELS_MAX 32  /* as in the CustomResourceDefinition */
#define LABEL_KEY_MAX      317 /* Kubernetes: a prefix of 253, '/', a name of 63 */

/* Objects in a list have no kind; where there is one it must be the right one. */
static int check_kind(const cJSON *obj, const char *kind, struct err *err)
{
    const char *found = NULL;
    int r = json_opt_str(obj, "kind", &found, err);

    if (r < 0)
        return r;
    if (found && strcmp(found, kind) != 0)
        return err_set(err, -EBADMSG, "kind: '%s', expected %s", found, kind);
    return 0;
}

static int take_str(const cJSON *obj, const char *path, char **ret, struct err *err)
{
    const char *s = NULL;
    int r = json_get_str(obj, path, &s, err);

    if (r == 0)
        *ret = mem_strdup(s);
    return r;
}

/* NULL when absent or empty. */
static int take_opt_str(const cJSON *obj, const char *path, char **ret, struct err *err)
{
    const char *s = NULL;
    int r = json_opt_str(obj, path, &s, err);

    if (r == 0)
        *ret = s && *s ? mem_strdup(s) : NULL;
    return r;
}

static int take_labels(const cJSON *obj, const char *path, struct labels *ret,
                       struct err *err)
{
    const cJSON *map = NULL, *m;
    int r = json_opt_obj(obj, path, &map, err);

    if (r < 0)
        return r;
    cJSON_ArrayForEach(m, map)
    {
        if (!cJSON_IsString(m))
            return err_set(err, -EBADMSG,
                           "%s: '%s' has the wrong type, expected a string", path,
                           m->string);
        labels_add(ret, m->string, m->valuestring);
    }
    return 0;
}

/* The status of condition Ready; `ret_since` may be NULL. Nothing there: UNKNOWN and 0.
 */
static int take_ready(const cJSON *obj, enum tri *ret, int64_t *ret_since,
                      struct err *err)
{
    const char *type = NULL, *status = NULL, *since = NULL;
    const cJSON *conditions = NULL, *c;
    int r = json_opt_array(obj, "status.conditions", &conditions, err);

    *ret = TRI_UNKNOWN;
    if (r < 0)
        return r;
    cJSON_ArrayForEach(c, conditions)
    {
        r = json_get_str(c, "type", &type, err);
        if (r == 0 && strcmp(type, "Ready") != 0)
            continue;
        if (r == 0)
            r = json_get_str(c, "status", &status, err);
        if (r == 0)
            r = json_opt_str(c, "lastTransitionTime", &since, err);
        if (r == 0 && since && ret_since)
            r = k8s_time_parse(since, ret_since, err);
        if (r < 0)
            return err_context(err, r, "status.conditions");
        *ret = status && strcmp(status, "True") == 0 ? TRI_YES : TRI_NO;
    }
    return 0;
}

static int node_fill(const cJSON *obj, struct kube_node *n, struct err *err)
{
    int r = check_kind(obj, "Node", err);

    if (r == 0)
        r = take_str(obj, "metadata.name", &n->name, err);
    if (r == 0)
        r = take_str(obj, "metadata.uid", &n->uid, err);
    if (r == 0)
        r = take_labels(obj, "metadata.labels", &n->labels, err);
    if (r == 0)
        r = take_opt_str(obj, "status.nodeInfo.bootID", &n->boot_id, err);
    if (r == 0)
        r = json_opt_bool(obj, "spec.unschedulable", &n->unschedulable, err);
    if (r == 0)
        r = take_ready(obj, &n->ready, &n->ready_since, err);
    return r;
}

/* An address in numbers; NULL when there is none yet. */
static int take_address(const cJSON *obj, const char *path, char **ret, struct err *err)
{
    const char *s = NULL;
    int r = json_opt_str(obj, path, &s, err);

    if (r < 0 || !s || !*s)
        return r;
    if (strlen(s) > ADDRESS_MAX || s[strspn(s, "0123456789abcdefABCDEF.:")])
        return err_set(err, -EBADMSG, "%s: '%.64s', expected an address in numbers", path,
                       s);
    *ret = mem_strdup(s);
    return 0;
}

static int pod_fill(const cJSON *obj, struct kube_pod *p, struct err *err)
{
    const char *deleted = NULL;
    enum tri ready = TRI_UNKNOWN;
    int r = check_kind(obj, "Pod", err);

    if (r == 0)
        r = take_str(obj, "metadata.name", &p->name, err);
    if (r == 0)
        r = take_str(obj, "metadata.uid", &p->uid, err);
    if (r == 0)
        r = json_opt_str(obj, "metadata.deletionTimestamp", &deleted, err);
    if (r == 0)
        r = take_opt_str(obj, "spec.nodeName", &p->node, err);
    if (r == 0)
        r = take_address(obj, "status.podIP", &p->ip, err);
    if (r == 0)
        r = take_ready(obj, &ready, NULL, err);
    p->terminating = deleted != NULL;
    p->ready = ready == TRI_YES;
    return r;
}

/* A label's key, or a prefix of keys that ends in '/'. */
static bool is_label_key(const char *s)
{
    size_t n = strlen(s);
    const char *slash = strchr(s, '/');

    return n > 0 && n <= LABEL_KEY_MAX && s != slash &&
           !s[strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                        "0123456789._-/")] &&
           !(slash && strchr(slash + 1, '/'));
}

static int take_feature_labels(const cJSON *obj, struct kube_pool *p, struct err *err)
{
    static const char path[] = "spec.featureLabels";
    const cJSON *list = NULL, *m;
    int r = json_opt_array(obj, path, &list, err);

    if (r < 0 || !list)
        return r;
    if (cJSON_GetArraySize(list) > FEATURE_LABELS_MAX)
        return err_set(err, -EBADMSG, "%s: %d entries, expected at most %d", path,
                       cJSON_GetArraySize(list), FEATURE_LABELS_MAX);
    p->feature_labels =
        mem_calloc((size_t)cJSON_GetArraySize(list), sizeof(*p->feature_labels));
    cJSON_ArrayForEach(m, list)
    {
        if (!cJSON_IsString(m) || !is_label_key(m->valuestring))
            return err_set(err, -EBADMSG,
                           "%s: '%.64s', expected the key of a label, or a prefix that "
                           "ends in '/'",
                           path, cJSON_IsString(m) ? m->valuestring : "");
        p->feature_labels[p->n_feature_labels++] = mem_strdup(m->valuestring);
    }
    return 0;
}

static int pool_fill(const cJSON *obj, struct kube_pool *p, struct err *err)
{
    int r = check_kind(obj, "Pool", err);

    if (r == 0)
        r = take_str(obj, "metadata.name", &p->name, err);
    if (r == 0)
        r = take_str(obj, "metadata.uid", &p->uid, err);
    if (r == 0)
        r = json_get_int(obj, "metadata.generation", &p->generation, err);
    if (r == 0)
        r = take_labels(obj, "spec.nodeSelector", &p->selector, err);
    if (r == 0 && p->selector.n == 0)
        r = err_set(err, -EBADMSG,
                    "spec.nodeSelector: empty, expected at least one label");
    if (r == 0)
        r = take_str(obj, "spec.partition", &p->partition, err);
    if (r == 0)
        r = take_str(obj, "spec.feature", &p->feature, err);
    if (r == 0)
        r = take_feature_labels(obj, p, err);
    if (r == 0)
        r = json_opt_bool(obj, "spec.qualify", &p->qualify, err);
    return r;
}

int k8s_node_parse(const cJSON *obj, struct kube_node *ret, struct err *err)
{
    struct kube_node n = {0};
    int r = node_fill(obj, &n, err);

    if (r < 0) {
        err_context(err, r, "node %s", n.name ? n.name : "without a name");
        kube_node_clear(&n);
        return r;
    }
    *ret = n;
    return 0;
}

int k8s_pod_parse(const cJSON *obj, struct kube_pod *ret, struct err *err)
{
    struct kube_pod p = {0};
    int r = pod_fill(obj, &p, err);

    if (r < 0) {
        err_context(err, r, "pod %s", p.name ? p.name : "without a name");
        kube_pod_clear(&p);
        return r;
    }
    *ret = p;
    return 0;
}

int k8s_pool_parse(const cJSON *obj, struct kube_pool *ret, struct err *err)
{
    struct kube_pool p = {0};
    int r = pool_fill(obj, &p, err);

    if (r < 0) {
        err_context(err, r, "pool %s", p.name ? p.name : "without a name");
        kube_pool_clear(&p);
        return r;
    }
    *ret = p;
    return 0;
}

/* Whether a manager's fields, as the API server writes them down, have spec.renewTime among them. */
static bool owns_renewal(const cJSON *entry)
{
    const cJSON *fields = cJSON_GetObjectItemCaseSensitive(entry, "fieldsV1");
    const cJSON *spec = cJSON_GetObjectItemCaseSensitive(fields, "f:spec");

    return cJSON_GetObjectItemCaseSensitive(spec, "f:renewTime") != NULL;
}

static int take_written(const cJSON *obj, int64_t *ret, struct err *err)
{
    const cJSON *list = NULL, *m;
    const char *time = NULL;
    int64_t at = 0;
    int r = json_opt_array(obj, "metadata.managedFields", &list, err);

    cJSON_ArrayForEach(m, list)
    {
        if (r < 0)
            break;
        if (!owns_renewal(m))
            continue;
        r = json_opt_str(m, "time", &time, err);
        if (r == 0 && time)
            r = k8s_time_parse(time, &at, err);
        if (r == 0 && time && at > *ret)
            *ret = at;
    }
    return r;
}

int k8s_lease_parse(const cJSON *obj, struct k8s_renewal *ret, struct err *err)
{
    struct k8s_renewal l = {0};
    const char *name = NULL, *time = NULL;
    int r = check_kind(obj, "Lease", err);

    if (r == 0)
        r = json_get_str(obj, "metadata.name", &name, err);
    if (r == 0)
        r = json_get_str(obj, "spec.renewTime", &time, err);
    if (r == 0 && time)
        r = k8s_time_parse(time, &l.renewed_at, err);
    if (r == 0)
        r = take_written(obj, &l.written_at, err);
    if (r < 0)
        return err_context(err, r, "lease %s", name ? name : "without a name");
    *ret = l;
    return 0;
}

/* `n` digits and then `behind` (0: anything); moves on past both. */
static bool digits(const char **p, int n, char behind, int *ret)
{
    int v = 0;

    for (; n > 0; n--, (*p)++) {
        if (**p < '0' || **p > '9')
            return false;
        v = v * 10 + (**p - '0');
    }
    if (behind && *(*p)++ != behind)
        return false;
    *ret = v;
    return true;
}

/* .123456 to ms; what is finer is cut off. */
static bool fraction(const char **p, int *ret)
{
    int ms = 0, n = 0;

    if (**p == '.') {
        for ((*p)++; **p >= '0' && **p <= '9'; (*p)++, n++) {
            if (n < 3)
                ms = ms * 10 + (**p - '0');
        }
        if (n == 0)
            return false;
        for (; n < 3; n++)
            ms *= 10;
    }
    *ret = ms;
    return true;
}

/* Z or +hh:mm, and then the end. */
static bool offset(const char *p, int *ret_min)
{
    int h, m, sign = *p == '-' ? -1 : 1;

    *ret_min = 0;
    if (strcmp(p, "Z") == 0)
        return true;
    if (*p != '+' && *p != '-')
        return false;
    p++;
    if (!digits(&p, 2, ':', &h) || !digits(&p, 2, 0, &m) || *p || h > 23 || m > 59)
        return false;
    *ret_min = sign * (h * 60 + m);
    return true;
}

int k8s_time_parse(const char *text, int64_t *ret, struct err *err)
{
    const char *p = text;
    struct tm tm = {0};
    int year, month, ms, off;

    if (!digits(&p, 4, '-', &year) || !digits(&p, 2, '-', &month) ||
        !digits(&p, 2, 'T', &tm.tm_mday) || !digits(&p, 2, ':', &tm.tm_hour) ||
        !digits(&p, 2, ':', &tm.tm_min) || !digits(&p, 2, 0, &tm.tm_sec) ||
        !fraction(&p, &ms) || !offset(p, &off) || month < 1 || month > 12 ||
        tm.tm_mday < 1 || tm.tm_mday > 31 || tm.tm_hour > 23 || tm.tm_min > 59 ||
        tm.tm_sec > 60)
        return err_set(err, -EBADMSG, "'%s' is not a time as in 2026-12-01T11:21:00Z",
                       text);
    tm.tm_year = year - 1900;
    tm.tm_mon = month - 1;
    *ret = ((int64_t)timegm(&tm) - (int64_t)off * 60) * 1000 + ms;
    return 0;
}

char *k8s_time_format(int64_t ms, bool micro)
{
    int64_t part = ((ms % 1000) + 1000) % 1000;
    time_t sec = (time_t)((ms - part) / 1000);
    struct tm tm = {0};
    char fine[16] = "";

    (void)gmtime_r(&sec, &tm);
    if (micro)
        (void)snprintf(fine, sizeof(fine), ".%03d000", (int)part);
    return mem_printf("%04d-%02d-%02dT%02d:%02d:%02d%sZ", tm.tm_year + 1900,
                      tm.tm_mon + 1, tm.tm_mday, tm.tm_hour, tm.tm_min, tm.tm_sec, fine);
}
