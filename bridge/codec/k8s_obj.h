/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Kubernetes objects, from parsed JSON to the core's values. */
#ifndef TG_CODEC_K8S_OBJ_H
#define TG_CODEC_K8S_OBJ_H

#include <cjson/cJSON.h>

#include "core/model.h"

/* On failure (-EBADMSG: the object lacks something that every such object has, or has it
 * with the wrong type) nothing is written. The caller clears what it got. */
int k8s_node_parse(const cJSON *obj, struct kube_node *ret, struct err *err) _must_use_;
int k8s_pod_parse(const cJSON *obj, struct kube_pod *ret, struct err *err) _must_use_;
int k8s_pool_parse(const cJSON *obj, struct kube_pool *ret, struct err *err) _must_use_;

/* When a Lease was renewed. */
struct k8s_renewal {
    int64_t renewed_at; /* spec.renewTime, by its holder's clock */
    int64_t
        written_at; /* the same, by the clock of the API server that wrote it down; 0: not told */
};
int k8s_lease_parse(const cJSON *obj, struct k8s_renewal *ret, struct err *err)
    _must_use_;

/* RFC 3339, also with a fraction and an offset, to ms since 1970; -EBADMSG. */
int k8s_time_parse(const char *text, int64_t *ret, struct err *err) _must_use_;
/* 2026-12-01T11:21:00.123456Z; `micro` for MicroTime. The caller frees. */
char *k8s_time_format(int64_t ms, bool micro);

#endif
