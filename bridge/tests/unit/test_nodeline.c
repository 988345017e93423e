// SPDX-License-Identifier: GPL-2.0-or-later
/* Shapes over all small machines, names of devices, gres.conf. Whole machines: test_io_topology.c. */
#include "core/nodeline.h"

#include <errno.h>
#include <string.h>

#include "base/buf.h"
#include "codec/line_json.h"
#include "tests/unit/titled.h"

/* A machine of `sockets` with `cores` of `threads` each. */
static struct machine regular(uint32_t sockets, uint32_t cores, uint32_t threads)
{
    struct machine m = {.sockets = sockets, .memory_mib = 1000};

    m.cores = mem_calloc((size_t)sockets * cores, sizeof(*m.cores));
    for (; m.n_cores < (size_t)sockets * cores; m.n_cores++)
        m.cores[m.n_cores] =
            (struct machine_core){.socket = (uint32_t)m.n_cores / cores, .cpus = threads};
    return m;
}

static void every_quota_is_told_exactly(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 4 * 6 * 3; i++) {
        uint32_t sockets = 1 + i % 4, cores = 1 + i / 4 % 6, threads = 1U << i / 24;
        _cleanup_(machine_clear) struct machine m = regular(sockets, cores, threads);
        uint32_t all = sockets * cores * threads;

        for (uint32_t quota = 1; quota <= all + 1; quota++) {
            struct node_limits limits = {.cpu_millis = quota * UINT64_C(1000) + 999};
            struct node_line l = {0};

            assert_int_equal(
                nodeline_make(&m, &limits, &(struct node_reserve){0}, &l, NULL), 0);
            assert_int_equal(l.cpus, quota < all ? quota : all);
            assert_int_equal(l.boards, 1);
            assert_int_equal(l.sockets * l.cores * l.threads, l.cpus);
            assert_true(l.sockets <= sockets && l.threads <= threads);
            if (quota >= all)
                assert_true(l.sockets == sockets && l.threads == threads);
            node_line_clear(&l);
        }
    }
}

static void a_reserve_keeps_whole_cores(void **state)
{
    _cleanup_(machine_clear) struct machine m = regular(2, 8, 2);

    (void)state;
    for (uint32_t cpus = 0; cpus < 32; cpus++) {
        struct node_reserve reserve = {.cpus = cpus, .memory_mib = 10};
        struct node_line l = {0};

        assert_int_equal(nodeline_make(&m, &(struct node_limits){0}, &reserve, &l, NULL),
                         0);
        assert_int_equal(l.cpus, cpus == 31 ? 1 : (32 - cpus) / 2 * 2);
        assert_int_equal(l.memory_mib, 990);
        node_line_clear(&l);
    }
}

static void nothing_left_is_an_error(void **state)
{
    _cleanup_(machine_clear) struct machine m = regular(1, 2, 1);
    struct node_limits limits = {.memory_mib = 100};
    struct node_reserve reserve = {.cpus = 2};
    struct node_line l = {0};
    struct err err;

    (void)state;
    assert_int_equal(nodeline_make(&m, &limits, &reserve, &l, &err), -ENOSPC);
    assert_non_null(strstr(err.text, "TIDEGATE_RESERVE_CPUS"));
    reserve = (struct node_reserve){.memory_mib = 100};
    assert_int_equal(nodeline_make(&m, &limits, &reserve, &l, &err), -ENOSPC);
    assert_non_null(strstr(err.text, "TIDEGATE_RESERVE_MEMORY_MIB"));
    assert_int_equal(l.cpus, 0);
}

static void more_than_slurm_counts_is_an_error(void **state)
{
    _cleanup_(machine_clear) struct machine m = regular(2, 16384, 2);
    struct node_line l = {0};
    struct err err;

    (void)state;
    assert_int_equal(
        nodeline_make(&m, &(struct node_limits){0}, &(struct node_reserve){0}, &l, &err),
        -ERANGE);
    assert_non_null(strstr(err.text, "65536"));
}

static void names_that_people_use(void **state)
{
    static const struct {
        const char *product;
        const char *model;
    } cases[] = {
        {"NVIDIA H100 80GB HBM3", "h100"},
        {"NVIDIA H200", "h200"},
        {"NVIDIA A100-SXM4-40GB", "a100"},
        {"Tesla V100-SXM3-32GB-H", "v100"},
        {"Tesla T4", "t4"},
        {"NVIDIA L40S", "l40s"},
        {"NVIDIA GH200 480GB", "gh200"},
        {"NVIDIA GeForce RTX 4090", "rtx_4090"},
        {"NVIDIA RTX 6000 Ada Generation", "rtx_6000"},
        {"NVIDIA RTX A6000", "a6000"},
        {"NVIDIA TITAN V", "nvidia_titan_v"},
        {"GH100 [H100 SXM5 80GB]", "h100"},
        {"Aqua Vanjaram [Instinct MI300X]", "mi300x"},
        {"AMD Instinct MI300X OAM", "mi300x"},
        {"Aldebaran/MI200 [Instinct MI250X/MI250]", "mi250x"},
        {"Intel(R) Data Center GPU Max 1550", "max_1550"},
        {"Ponte Vecchio XT (2 Tile) [Data Center GPU Max 1550]", "max_1550"},
        {"Device [", "device"},
        {"4090", "4090"},
        {"a=b,c:d", "a_b_c_d"},
        {"\xc3\xa4 9\n", "9"},
        {" [] ", NULL},
        {"", NULL},
        {"(R)(TM)", "r_tm"},
    };

    (void)state;
    for (size_t i = 0; i < TG_LEN(cases); i++) {
        _cleanup_(mem_freep) char *model = nodeline_model(cases[i].product);

        if (!mem_same_str(model, cases[i].model))
            fail_msg("\"%s\" is %s, expected %s", cases[i].product,
                     model ? model : "none", cases[i].model ? cases[i].model : "none");
    }
}

static void add_device(struct machine *m, const char *model, const char *file,
                       uint32_t first, size_t n_cores)
{
    struct machine_device *d;

    m->devices = mem_resize(m->devices, m->n_devices + 1, sizeof(*m->devices));
    d = &m->devices[m->n_devices++];
    *d = (struct machine_device){.gres = mem_strdup("gpu"),
                                 .model = mem_strdup(model),
                                 .file = mem_strdup(file),
                                 .cores = mem_calloc(n_cores, sizeof(*d->cores)),
                                 .n_cores = n_cores};
    for (size_t i = 0; i < n_cores; i++)
        d->cores[i] = first + (uint32_t)i;
}

static void gres_conf_is(const struct machine *m, const char *gres, const char *node,
                         const char *expected)
{
    _cleanup_(node_line_clear) struct node_line l = {0};
    _cleanup_(mem_freep) char *text = NULL;

    assert_int_equal(
        nodeline_make(m, &(struct node_limits){0}, &(struct node_reserve){0}, &l, NULL),
        0);
    assert_true(mem_same_str(l.gres, gres));
    text = nodeline_gres_conf(m, &l, node);
    assert_string_equal(text, expected);
}

static void devices_are_put_together(void **state)
{
    _cleanup_(machine_clear) struct machine m = regular(2, 4, 1);

    (void)state;
    gres_conf_is(&m, NULL, NULL, "");
    add_device(&m, "t4", "/dev/nvidia0", 0, 0);
    gres_conf_is(&m, "gpu:t4:1", "n1",
                 "NodeName=n1 Name=gpu Type=t4 File=/dev/nvidia0\n");
    add_device(&m, "a100", "/dev/nvidia1", 0, 4);
    add_device(&m, "t4", "/dev/nvidia2", 0, 0);
    add_device(&m, "t4", "/dev/nvidia3", 0, 0);
    add_device(&m, "a100", "/dev/nvidia9", 0, 4);
    add_device(&m, "a100", "/dev/nvidia10", 0, 4);
    add_device(&m, "a100", "/dev/nvidia11", 4, 1);
    add_device(&m, "a100", "/dev/nvidia012", 0, 4);
    add_device(&m, "a100", "/dev/odd", 0, 4);
    gres_conf_is(&m, "gpu:t4:3,gpu:a100:6", NULL,
                 "Name=gpu Type=t4 File=/dev/nvidia0,/dev/nvidia[2-3]\n"
                 "Name=gpu Type=a100 "
                 "File=/dev/nvidia1,/dev/nvidia[9-10],/dev/nvidia012,/dev/odd Cores=0-3\n"
                 "Name=gpu Type=a100 File=/dev/nvidia11 Cores=4\n");
}

static void the_line_survives_json(void **state)
{
    struct node_line l = {.boards = 1,
                          .sockets = 2,
                          .cores = 4,
                          .threads = 2,
                          .cpus = 16,
                          .memory_mib = 64000,
                          .gres = mem_strdup("gpu:h100:8,gpu:t4:1"),
                          .features = mem_strdup("rdma")};
    _cleanup_(buf_free) struct buf b = BUF_INIT(LINE_JSON_MAX);
    _cleanup_(node_line_clear) struct node_line back = {0};

    (void)state;
    assert_int_equal(line_json_write(&l, &b, NULL), 0);
    assert_int_equal(line_json_read(b.data, b.len, &back, NULL), 0);
    assert_int_equal(back.cpus, 16);
    assert_int_equal(back.sockets, 2);
    assert_int_equal(back.cores, 4);
    assert_int_equal(back.threads, 2);
    assert_int_equal(back.memory_mib, 64000);
    assert_string_equal(back.gres, "gpu:h100:8,gpu:t4:1");
    assert_string_equal(back.features, "rdma");
    node_line_clear(&l);
}

static void json_that_is_no_line(void **state)
{
    static const char good[] =
        "{\"boards\":1,\"sockets\":2,\"cores\":4,\"threads\":2,\"cpus\":16,"
        "\"memoryMiB\":64000,\"gres\":null}";
    static const struct {
        const char *from;
        const char *to;
    } changes[] = {
        {"\"boards\":1", "\"boards\":0"},
        {"\"cores\":4", "\"cores\":70000"},
        {"\"cpus\":16", "\"cpus\":15"},
        {"\"cpus\":16", "\"cpus\":\"16\""},
        {"\"memoryMiB\":64000", "\"memoryMiB\":-1"},
        {"\"memoryMiB\":64000", "\"memory\":64000"},
        {"\"gres\":null", "\"gres\":\"gpu:1 State=DOWN\""},
        {"\"gres\":null", "\"gres\":7"},
        {"}", ""},
    };
    struct node_line l = {0};

    (void)state;
    assert_int_equal(line_json_read(good, strlen(good), &l, NULL), 0);
    assert_null(l.gres);
    node_line_clear(&l);
    for (size_t i = 0; i < TG_LEN(changes); i++) {
        const char *at = strstr(good, changes[i].from);
        _cleanup_(mem_freep) char *bad = NULL;
        struct err err = {.text = ""};

        assert_non_null(at);
        bad = mem_printf("%.*s%s%s", (int)(at - good), good, changes[i].to,
                         at + strlen(changes[i].from));
        assert_int_equal(line_json_read(bad, strlen(bad), &l, &err), -EBADMSG);
        assert_true(err.text[0]);
        assert_int_equal(l.cpus, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TITLED("every quota is told exactly, on every small machine",
               every_quota_is_told_exactly),
        TITLED("a reserve keeps whole cores from jobs", a_reserve_keeps_whole_cores),
        TITLED("nothing left for jobs is an error that says what to do",
               nothing_left_is_an_error),
        TITLED("more CPUs than Slurm counts are an error",
               more_than_slurm_counts_is_an_error),
        TITLED("a device is called what people call it", names_that_people_use),
        TITLED("devices of one kind and place are one line of gres.conf",
               devices_are_put_together),
        TITLED("the line survives its way to the agent as JSON", the_line_survives_json),
        TITLED("JSON that is no line is refused", json_that_is_no_line),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
