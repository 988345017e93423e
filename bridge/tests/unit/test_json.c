// SPDX-License-Identifier: GPL-2.0-or-later
#include "codec/json.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static const char text[] =
    "{\"metadata\":{\"name\":\"a\",\"empty\":\"\",\"generation\":3,\"half\":1.5,"
    "\"huge\":1e300,\"nothing\":null,\"yes\":true,\"labels\":{\"a.b/c\":\"d\"}},"
    "\"items\":[1]}";

static void getters(void **state)
{
    _cleanup_(cJSON_Deletep) cJSON *obj = NULL;
    const cJSON *m;
    const char *s = NULL;
    int64_t i = -1;
    bool b = false;

    (void)state;
    assert_int_equal(json_parse(text, strlen(text), &obj, NULL), 0);
    assert_int_equal(json_get_str(obj, "metadata.name", &s, NULL), 0);
    assert_string_equal(s, "a");
    assert_int_equal(json_get_int(obj, "metadata.generation", &i, NULL), 0);
    assert_int_equal(i, 3);
    assert_int_equal(json_get_bool(obj, "metadata.yes", &b, NULL), 0);
    assert_true(b);
    assert_int_equal(json_get_obj(obj, "metadata.labels", &m, NULL), 0);
    assert_string_equal(json_member(m, "a.b/c")->valuestring, "d");
    assert_null(json_member(m, "A.b/c"));
    assert_int_equal(json_get_array(obj, "items", &m, NULL), 0);
    assert_int_equal(cJSON_GetArraySize(m), 1);
}

static void absent_and_null_are_the_same(void **state)
{
    _cleanup_(cJSON_Deletep) cJSON *obj = NULL;
    static const char *const paths[] = {"metadata.nothing", "metadata.nothing.more",
                                        "x.y.z"};

    (void)state;
    assert_int_equal(json_parse(text, strlen(text), &obj, NULL), 0);
    for (size_t k = 0; k < TG_LEN(paths); k++) {
        const cJSON *m = obj;
        const char *s = "?";
        int64_t i = 1;
        bool b = true;

        assert_int_equal(json_opt_str(obj, paths[k], &s, NULL), 0);
        assert_null(s);
        assert_int_equal(json_opt_int(obj, paths[k], &i, NULL), 0);
        assert_int_equal(i, 0);
        assert_int_equal(json_opt_bool(obj, paths[k], &b, NULL), 0);
        assert_false(b);
        assert_int_equal(json_opt_obj(obj, paths[k], &m, NULL), 0);
        assert_null(m);
        m = obj;
        assert_int_equal(json_opt_array(obj, paths[k], &m, NULL), 0);
        assert_null(m);
        assert_int_equal(json_get_str(obj, paths[k], &s, NULL), -EBADMSG);
    }
}

static void wrong_types_name_the_path(void **state)
{
    _cleanup_(cJSON_Deletep) cJSON *obj = NULL;
    struct err err;
    const cJSON *m = NULL;
    const char *s = "?";
    int64_t i = 1;
    bool b = true;

    (void)state;
    assert_int_equal(json_parse(text, strlen(text), &obj, NULL), 0);
    assert_int_equal(json_opt_str(obj, "metadata.generation", &s, &err), -EBADMSG);
    assert_string_equal(err.text, "metadata.generation: wrong type, expected a string");
    assert_string_equal(s, "?");
    assert_int_equal(json_get_str(obj, "metadata.uid", &s, &err), -EBADMSG);
    assert_string_equal(err.text, "metadata.uid: missing, expected a string");
    assert_int_equal(json_get_str(obj, "metadata.empty", &s, &err), -EBADMSG);
    assert_string_equal(err.text, "metadata.empty: empty, expected a string");
    assert_int_equal(json_opt_str(obj, "metadata.name.first", &s, &err), -EBADMSG);
    assert_string_equal(err.text, "metadata.name: wrong type, expected an object");
    assert_int_equal(json_opt_str(NULL, "metadata.name", &s, &err), -EBADMSG);
    assert_string_equal(err.text, "not an object, so it has no metadata.name");
    assert_int_equal(json_opt_int(obj, "metadata.half", &i, &err), -EBADMSG);
    assert_string_equal(err.text, "metadata.half: 1.5, expected a whole number");
    assert_int_equal(json_opt_int(obj, "metadata.huge", &i, &err), -EBADMSG);
    assert_int_equal(i, 1);
    assert_int_equal(json_opt_bool(obj, "metadata.name", &b, &err), -EBADMSG);
    assert_true(b);
    assert_int_equal(json_opt_obj(obj, "items", &m, &err), -EBADMSG);
    assert_int_equal(json_opt_array(obj, "metadata", &m, &err), -EBADMSG);
    assert_null(m);
}

static void only_one_object_parses(void **state)
{
    static const char *const bad[] = {
        "", " ", "{", "[]", "3", "null", "{}x", "{}{}", "{\"a\":\"\\ud800\"}", "{'a':1}"};
    struct err err;

    (void)state;
    for (size_t k = 0; k < TG_LEN(bad); k++) {
        cJSON *obj = NULL;

        assert_int_equal(json_parse(bad[k], strlen(bad[k]), &obj, &err), -EBADMSG);
        assert_null(obj);
    }
    for (int k = 0; k < 2; k++) {
        _cleanup_(cJSON_Deletep) cJSON *obj = NULL;

        assert_int_equal(json_parse("{} \n", k ? 2 : 4, &obj, &err), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(getters),
        cmocka_unit_test(absent_and_null_are_the_same),
        cmocka_unit_test(wrong_types_name_the_path),
        cmocka_unit_test(only_one_object_parses),
    };

    return cmocka_run_group_tests_name("json", tests, NULL, NULL);
}
