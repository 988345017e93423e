// SPDX-License-Identifier: GPL-2.0-or-later
#include "codec/k8s_obj.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "codec/json.h"

static const char node_text[] =
    "{\"metadata\":{\"name\":\"worker\",\"uid\":\"u-1\",\"resourceVersion\":\"7\","
    "\"labels\":{\"tidegate.dev/pool\":\"hpc\",\"empty\":\"\"}},"
    "\"spec\":{\"podCIDR\":\"10.244.1.0/24\",\"unschedulable\":true},"
    "\"status\":{\"conditions\":[{\"type\":\"MemoryPressure\",\"status\":\"False\"},"
    "{\"type\":\"Ready\",\"status\":\"Unknown\",\"lastTransitionTime\":\"2026-12-01T11:"
    "21:00Z\"}],"
    "\"nodeInfo\":{\"bootID\":\"b-1\"}}}";

static cJSON *parse(const char *text)
{
    cJSON *obj = NULL;

    assert_int_equal(json_parse(text, strlen(text), &obj, NULL), 0);
    return obj;
}

/* The object with the member at `path` put in place of what was there (NULL: taken away).
 */
static cJSON *with(const char *text, const char *parent, const char *key,
                   const char *value)
{
    cJSON *obj = parse(text);
    const cJSON *at = obj;

    if (*parent)
        assert_int_equal(json_get_obj(obj, parent, &at, NULL), 0);
    cJSON_DeleteItemFromObjectCaseSensitive((cJSON *)at, key);
    if (value)
        assert_true(cJSON_AddRawToObject((cJSON *)at, key, value) != NULL);
    return obj;
}

static int try_node(const char *parent, const char *key, const char *value,
                    struct kube_node *n, struct err *err)
{
    _cleanup_(cJSON_Deletep) cJSON *raw = with(node_text, parent, key, value);
    _cleanup_(mem_freep) char *text = cJSON_PrintUnformatted(raw);
    _cleanup_(cJSON_Deletep) cJSON *obj = parse(text);

    return k8s_node_parse(obj, n, err);
}

static void a_node(void **state)
{
    _cleanup_(cJSON_Deletep) cJSON *obj = parse(node_text);
    struct kube_node n;

    (void)state;
    assert_int_equal(k8s_node_parse(obj, &n, NULL), 0);
    assert_string_equal(n.name, "worker");
    assert_string_equal(n.uid, "u-1");
    assert_string_equal(n.boot_id, "b-1");
    assert_string_equal(labels_get(&n.labels, "tidegate.dev/pool"), "hpc");
    assert_string_equal(labels_get(&n.labels, "empty"), "");
    assert_true(n.unschedulable);
    assert_int_equal(n.ready, TRI_NO);
    assert_int_equal(n.ready_since, 1796124060000);
    kube_node_clear(&n);
}

static void ready_is_never_guessed(void **state)
{
    static const struct {
        const char *conditions;
        enum tri ready;
    } cases[] = {
        {"[{\"type\":\"Ready\",\"status\":\"True\"}]", TRI_YES},
        {"[{\"type\":\"Ready\",\"status\":\"False\"}]", TRI_NO},
        {"[{\"type\":\"Ready\",\"status\":\"Unknown\"}]", TRI_NO},
        {"[{\"type\":\"Ready\",\"status\":\"true\"}]", TRI_NO},
        {"[]", TRI_UNKNOWN},
        {"null", TRI_UNKNOWN},
        {NULL, TRI_UNKNOWN},
        {"[{\"type\":\"DiskPressure\",\"status\":\"True\"}]", TRI_UNKNOWN},
    };
    struct kube_node n;

    (void)state;
    for (size_t k = 0; k < TG_LEN(cases); k++) {
        assert_int_equal(try_node("status", "conditions", cases[k].conditions, &n, NULL),
                         0);
        assert_int_equal(n.ready, cases[k].ready);
        kube_node_clear(&n);
    }
}

static void a_new_node_may_lack_much(void **state)
{
    _cleanup_(cJSON_Deletep) cJSON *obj =
        parse("{\"kind\":\"Node\",\"metadata\":{\"name\":\"n\",\"uid\":\"u\"}}");
    struct kube_node n;

    (void)state;
    assert_int_equal(k8s_node_parse(obj, &n, NULL), 0);
    assert_false(n.unschedulable);
    assert_int_equal(n.ready, TRI_UNKNOWN);
    assert_null(n.boot_id);
    kube_node_clear(&n);
}

static void bad_nodes_are_refused(void **state)
{
    static const struct {
        const char *parent, *key, *value, *error;
    } cases[] = {
        {"metadata", "name", NULL,
         "node without a name: metadata.name: missing, expected a string"},
        {"metadata", "name", "\"\"",
         "node without a name: metadata.name: empty, expected a string"},
        {"metadata", "uid", NULL,
         "node worker: metadata.uid: missing, expected a string"},
        {"metadata", "labels", "[]",
         "node worker: metadata.labels: wrong type, expected an object"},
        {"metadata", "labels", "{\"a\":1}",
         "node worker: metadata.labels: 'a' has the wrong type, expected a string"},
        {"spec", "unschedulable", "\"true\"",
         "node worker: spec.unschedulable: wrong type, expected true or false"},
        {"", "spec", "[]", "node worker: spec: wrong type, expected an object"},
        {"", "kind", "\"Pod\"", "node without a name: kind: 'Pod', expected Node"},
        {"status", "conditions", "{}",
         "node worker: status.conditions: wrong type, expected an array"},
        {"status", "conditions", "[1]",
         "node worker: status.conditions: not an object, so it has no type"},
        {"status", "conditions", "[{\"type\":\"Ready\"}]",
         "node worker: status.conditions: status: missing, expected a string"},
        {"status", "conditions",
         "[{\"type\":\"Ready\",\"status\":\"True\",\"lastTransitionTime\":\"today\"}]",
         "node worker: status.conditions: 'today' is not a time as in "
         "2026-12-01T11:21:00Z"},
    };

    (void)state;
    for (size_t k = 0; k < TG_LEN(cases); k++) {
        struct kube_node n = {.ready_since = 42};
        struct err err;

        assert_int_equal(
            try_node(cases[k].parent, cases[k].key, cases[k].value, &n, &err), -EBADMSG);
        assert_string_equal(err.text, cases[k].error);
        assert_int_equal(n.ready_since, 42); /* nothing was written */
        assert_null(n.name);
    }
}

static void pods(void **state)
{
    _cleanup_(cJSON_Deletep) cJSON *obj = parse(
        "{\"metadata\":{\"name\":\"p\",\"uid\":\"u\"},\"spec\":{\"nodeName\":\"worker\"},"
        "\"status\":{\"conditions\":[{\"type\":\"Ready\",\"status\":\"True\"}],"
        "\"podIP\":\"10.244.2.7\"}}");
    _cleanup_(cJSON_Deletep) cJSON *going =
        parse("{\"metadata\":{\"name\":\"p\",\"uid\":\"u\","
              "\"deletionTimestamp\":\"2026-12-01T11:21:00Z\"},\"spec\":{}}");
    _cleanup_(cJSON_Deletep) cJSON *bad = parse("{\"metadata\":{\"name\":\"p\"}}");
    struct kube_pod p;
    struct err err;

    (void)state;
    assert_int_equal(k8s_pod_parse(obj, &p, NULL), 0);
    assert_string_equal(p.node, "worker");
    assert_string_equal(p.ip, "10.244.2.7");
    assert_true(p.ready);
    assert_false(p.terminating);
    kube_pod_clear(&p);
    assert_int_equal(k8s_pod_parse(going, &p, NULL), 0);
    assert_null(p.node);
    assert_null(p.ip);
    assert_false(p.ready);
    assert_true(p.terminating);
    kube_pod_clear(&p);
    assert_int_equal(k8s_pod_parse(bad, &p, &err), -EBADMSG);
    assert_string_equal(err.text, "pod p: metadata.uid: missing, expected a string");
}

static void an_address_is_in_numbers(void **state)
{
    static const struct {
        const char *ip;
        bool good;
    } cases[] = {
        {"\"fd00:10:244::1a\"", true},
        {"\"::ffff:10.244.0.1\"", true},
        {"\"\"", true},
        {"null", true},
        {"7", false},
        {"\"localhost\"", false},
        {"\"10.0.0.1 \"", false},
        {"\"1111:2222:3333:4444:5555:6666:123.123.123.123:\"", false},
    };

    (void)state;
    for (size_t k = 0; k < TG_LEN(cases); k++) {
        _cleanup_(mem_freep) char *text = mem_printf(
            "{\"metadata\":{\"name\":\"p\",\"uid\":\"u\"},\"status\":{\"podIP\":%s}}",
            cases[k].ip);
        _cleanup_(cJSON_Deletep) cJSON *obj = parse(text);
        struct kube_pod p = {0};

        assert_int_equal(k8s_pod_parse(obj, &p, NULL), cases[k].good ? 0 : -EBADMSG);
        kube_pod_clear(&p);
    }
}

static const char pool_text[] =
    "{\"metadata\":{\"name\":\"hpc\",\"uid\":\"u\",\"generation\":2},"
    "\"spec\":{\"nodeSelector\":{\"a\":\"b\"},\"partition\":\"hpc\",\"feature\":\"hpc\"}"
    "}";

static int try_pool(const char *key, const char *value, struct kube_pool *p,
                    struct err *err)
{
    _cleanup_(cJSON_Deletep) cJSON *raw = with(pool_text, "spec", key, value);
    _cleanup_(mem_freep) char *text = cJSON_PrintUnformatted(raw);
    _cleanup_(cJSON_Deletep) cJSON *obj = parse(text);

    return k8s_pool_parse(obj, p, err);
}

static void labels_that_become_features(void **state)
{
    static const char *const bad[] = {
        "\"a\"",    "[1]",         "[\"\"]",    "[\"a b\"]",
        "[\"/x\"]", "[\"a/b/c\"]", "[\"a,b\"]", "[null]",
    };
    _cleanup_(mem_freep) char *longest = mem_zalloc(320);
    _cleanup_(mem_freep) char *many = mem_zalloc(33 * 4 + 2);
    struct kube_pool p;
    struct err err;

    (void)state;
    assert_int_equal(try_pool("featureLabels",
                              "[\"node.kubernetes.io/instance-type\",\"feature.x/\"]", &p,
                              NULL),
                     0);
    assert_int_equal(p.n_feature_labels, 2);
    assert_string_equal(p.feature_labels[0], "node.kubernetes.io/instance-type");
    assert_string_equal(p.feature_labels[1], "feature.x/");
    assert_false(p.qualify);
    kube_pool_clear(&p);
    for (size_t k = 0; k < TG_LEN(bad); k++)
        assert_int_equal(try_pool("featureLabels", bad[k], &p, NULL), -EBADMSG);
    assert_int_equal(try_pool("featureLabels", "[\"a b\"]", &p, &err), -EBADMSG);
    assert_string_equal(err.text,
                        "pool hpc: spec.featureLabels: 'a b', expected the key of a "
                        "label, or a prefix that ends in '/'");
    for (size_t i = 0; i < 33; i++)
        memcpy(many + 4 * i, i ? ",\"a\"" : "[\"a\"", 4);
    many[33 * 4] = ']';
    assert_int_equal(try_pool("featureLabels", many, &p, &err), -EBADMSG);
    assert_string_equal(err.text,
                        "pool hpc: spec.featureLabels: 33 entries, expected at most 32");
    memset(longest, 'a', 318);
    {
        _cleanup_(mem_freep) char *list = mem_printf("[\"%s\"]", longest);

        assert_int_equal(try_pool("featureLabels", list, &p, NULL), -EBADMSG);
    }
}

static void a_pool_may_ask_for_proof(void **state)
{
    struct kube_pool p;

    (void)state;
    assert_int_equal(try_pool("qualify", "true", &p, NULL), 0);
    assert_true(p.qualify);
    assert_int_equal(p.n_feature_labels, 0);
    kube_pool_clear(&p);
    assert_int_equal(try_pool("qualify", "\"true\"", &p, NULL), -EBADMSG);
}

static void pools(void **state)
{
    static const char good[] = "{\"kind\":\"Pool\",\"metadata\":{\"name\":\"hpc\","
                               "\"uid\":\"u\",\"generation\":2},"
                               "\"spec\":{\"nodeSelector\":{\"tidegate.dev/"
                               "pool\":\"hpc\"},\"partition\":\"hpc\","
                               "\"feature\":\"hpc\",\"confinement\":\"none\"}}";
    _cleanup_(cJSON_Deletep) cJSON *obj = parse(good);
    _cleanup_(cJSON_Deletep) cJSON *any = with(good, "spec", "nodeSelector", "{}");
    struct kube_pool p;
    struct err err;

    (void)state;
    assert_int_equal(k8s_pool_parse(obj, &p, NULL), 0);
    assert_string_equal(p.name, "hpc");
    assert_int_equal(p.generation, 2);
    assert_string_equal(labels_get(&p.selector, "tidegate.dev/pool"), "hpc");
    assert_string_equal(p.partition, "hpc");
    assert_string_equal(p.feature, "hpc");
    kube_pool_clear(&p);
    cJSON_ReplaceItemInObjectCaseSensitive(cJSON_GetObjectItem(any, "spec"),
                                           "nodeSelector", cJSON_CreateObject());
    assert_int_equal(k8s_pool_parse(any, &p, &err), -EBADMSG);
    assert_string_equal(
        err.text, "pool hpc: spec.nodeSelector: empty, expected at least one label");
}

static void times(void **state)
{
    static const struct {
        const char *text;
        int64_t ms;
    } good[] = {
        {"1970-01-01T00:00:00Z", 0},
        {"2026-12-01T11:21:00Z", 1796124060000},
        {"2026-12-01T11:21:00.5Z", 1796124060500},
        {"2026-12-01T11:21:00.123456Z", 1796124060123},
        {"2026-12-01T13:21:00.123456789+02:00", 1796124060123},
        {"2026-12-01T05:51:00-05:30", 1796124060000},
        {"2024-02-29T00:00:00Z", 1709164800000},
        {"1969-12-31T23:59:59.999Z", -1},
        {"0001-01-01T00:00:00Z", -62135596800000},
    };
    static const char *const bad[] = {
        "",
        "now",
        "2026-12-01",
        "2026-12-01 11:21:00Z",
        "2026-12-01T11:21:00",
        "2026-13-01T11:21:00Z",
        "2026-12-32T11:21:00Z",
        "2026-12-01T24:21:00Z",
        "2026-12-01T11:60:00Z",
        "2026-12-01T11:21:61Z",
        "2026-12-01T11:21:00.Z",
        "2026-12-01T11:21:00+2:00",
        "2026-12-01T11:21:00+02:00x",
        "2026-12-01T11:21:00ZZ",
        "2026-12-01T11:21:-1Z",
        "2026-00-01T11:21:00Z",
        "2026-12-01T11:21:00+24:00",
    };

    (void)state;
    for (size_t k = 0; k < TG_LEN(good); k++) {
        int64_t ms = 1;

        assert_int_equal(k8s_time_parse(good[k].text, &ms, NULL), 0);
        assert_int_equal(ms, good[k].ms);
    }
    for (size_t k = 0; k < TG_LEN(bad); k++) {
        int64_t ms = 1;

        assert_int_equal(k8s_time_parse(bad[k], &ms, NULL), -EBADMSG);
        assert_int_equal(ms, 1);
    }
}

static void times_are_written(void **state)
{
    static const struct {
        int64_t ms;
        bool micro;
        const char *text;
    } cases[] = {
        {1796124060123, false, "2026-12-01T11:21:00Z"},
        {1796124060123, true, "2026-12-01T11:21:00.123000Z"},
        {0, true, "1970-01-01T00:00:00.000000Z"},
        {-1, true, "1969-12-31T23:59:59.999000Z"},
    };

    (void)state;
    for (size_t k = 0; k < TG_LEN(cases); k++) {
        _cleanup_(mem_freep) char *text = k8s_time_format(cases[k].ms, cases[k].micro);

        assert_string_equal(text, cases[k].text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_node),
        cmocka_unit_test(ready_is_never_guessed),
        cmocka_unit_test(a_new_node_may_lack_much),
        cmocka_unit_test(bad_nodes_are_refused),
        cmocka_unit_test(pods),
        cmocka_unit_test(an_address_is_in_numbers),
        cmocka_unit_test(pools),
        cmocka_unit_test(labels_that_become_features),
        cmocka_unit_test(a_pool_may_ask_for_proof),
        cmocka_unit_test(times),
        cmocka_unit_test(times_are_written),
    };

    return cmocka_run_group_tests_name("k8s_obj", tests, NULL, NULL);
}
