// SPDX-License-Identifier: GPL-2.0-or-later
/* Any JSON object as Node, Pod and Pool; any text as a time, which must survive being
 * written. */
#include "codec/k8s_obj.h"

#include <stdint.h>
#include <string.h>

#include "codec/json.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void try_time(const char *text)
{
    int64_t ms, again;

    if (k8s_time_parse(text, &ms, NULL) < 0)
        return;
    for (int micro = 0; micro < 2; micro++) {
        _cleanup_(mem_freep) char *out = k8s_time_format(ms, micro);

        /* An offset may lead out of the years of four digits. */
        if (k8s_time_parse(out, &again, NULL) == 0 && again / 1000 != ms / 1000 &&
            again != ms - ((ms % 1000) + 1000) % 1000)
            abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    _cleanup_(mem_freep) char *text = mem_strndup((const char *)data, size);
    _cleanup_(cJSON_Deletep) cJSON *obj = NULL;
    struct kube_node node;
    struct kube_pod pod;
    struct kube_pool pool;
    struct k8s_renewal renewal;
    struct err err;

    try_time(text);
    if (json_parse((const char *)data, size, &obj, &err) < 0)
        return 0;
    if (k8s_node_parse(obj, &node, &err) == 0) {
        if (!*node.name || !*node.uid)
            abort();
        kube_node_clear(&node);
    }
    if (k8s_pod_parse(obj, &pod, &err) == 0) {
        if (pod.ip && strlen(pod.ip) > 45)
            abort();
        kube_pod_clear(&pod);
    }
    if (k8s_pool_parse(obj, &pool, &err) == 0) {
        if (pool.selector.n == 0 || !*pool.feature || !*pool.partition)
            abort();
        for (size_t i = 0; i < pool.n_feature_labels; i++) {
            if (!*pool.feature_labels[i] || strlen(pool.feature_labels[i]) > 317)
                abort();
        }
        kube_pool_clear(&pool);
    }
    (void)k8s_lease_parse(obj, &renewal, &err);
    return 0;
}
