// SPDX-License-Identifier: GPL-2.0-or-later
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "core/slurmdconf.h"

static char gres[] = "gpu:h100:8", features[] = "rdma";
static const struct node_line line = {.boards = 1,
                                      .sockets = 2,
                                      .cores = 4,
                                      .threads = 2,
                                      .cpus = 16,
                                      .memory_mib = 64000,
                                      .gres = gres,
                                      .features = features};

#define SHAPE "Boards=1 SocketsPerBoard=2 CoresPerSocket=4 ThreadsPerCore=2"

static const struct {
    const char *person;
    bool gres;
    const char *drained;
    const char *want;
} texts[] = {
    {NULL, false, NULL, "Feature=hpc,rdma " SHAPE " RealMemory=64000"},
    {"  ", true, NULL, "Feature=hpc,rdma " SHAPE " RealMemory=64000 Gres=gpu:h100:8"},
    {"Weight=5", false, NULL, "Feature=hpc,rdma " SHAPE " RealMemory=64000 Weight=5"},
    {"RealMemory=32000 Weight=5", false, NULL,
     "Feature=hpc,rdma " SHAPE " RealMemory=32000 Weight=5"},
    {"realmemory=32000", false, NULL, "Feature=hpc,rdma " SHAPE " realmemory=32000"},
    {"Gres=gpu:1", true, NULL, "Feature=hpc,rdma " SHAPE " RealMemory=64000 Gres=gpu:1"},
    {"CPUs=4", false, NULL, "Feature=hpc,rdma RealMemory=64000 CPUs=4"},
    {"Features=fast,big", false, NULL,
     "Feature=hpc,rdma,fast,big " SHAPE " RealMemory=64000"},
    {"Feature=fast Weight=2", false, NULL,
     "Feature=hpc,rdma,fast " SHAPE " RealMemory=64000 Weight=2"},
    {NULL, false, "new node",
     "Feature=hpc,rdma " SHAPE " RealMemory=64000 State=DRAIN Reason=\"new node\""},
    {"State=DOWN Reason=\"not yet: wait\"", false, "new node",
     "Feature=hpc,rdma " SHAPE " RealMemory=64000 State=DOWN Reason=\"not yet: wait\""},
};

static void test_texts(void **state)
{
    (void)state;
    for (size_t i = 0; i < TG_LEN(texts); i++) {
        struct slurmdconf c = {.line = &line,
                               .pool = "hpc",
                               .person = texts[i].person,
                               .gres = texts[i].gres,
                               .drained = texts[i].drained};
        char *text = NULL;

        assert_int_equal(slurmdconf_text(&c, &text, NULL), 0);
        assert_string_equal(text, texts[i].want);
        free(text);
    }
}

static const struct {
    const char *person;
    uint32_t sockets, cores, threads, cpus;
    uint64_t memory;
} lines[] = {
    {"", 2, 4, 2, 16, 64000},
    {"RealMemory=100", 2, 4, 2, 16, 100},
    {"CPUs=4", 4, 1, 1, 4, 64000},
    {"Procs=4", 4, 1, 1, 4, 64000},
    {"CPUs=8 Sockets=2", 2, 4, 1, 8, 64000},
    {"CPUs=8 CoresPerSocket=2 ThreadsPerCore=2", 2, 2, 2, 8, 64000},
    {"SocketsPerBoard=3 CoresPerSocket=2", 3, 2, 1, 6, 64000},
    {"CPUs=2 Sockets=4", 2, 1, 1, 2, 64000},
};

static void test_lines(void **state)
{
    (void)state;
    for (size_t i = 0; i < TG_LEN(lines); i++) {
        struct slurmdconf c = {.line = &line, .pool = "hpc", .person = lines[i].person};
        struct node_line got = {0};

        assert_int_equal(slurmdconf_line(&c, &got, NULL), 0);
        assert_int_equal(got.sockets, lines[i].sockets);
        assert_int_equal(got.cores, lines[i].cores);
        assert_int_equal(got.threads, lines[i].threads);
        assert_int_equal(got.cpus, lines[i].cpus);
        assert_int_equal(got.memory_mib, lines[i].memory);
        assert_null(got.gres); /* jobs do not see them */
        assert_string_equal(got.features, "rdma");
        node_line_clear(&got);
    }
}

static void test_gres_of_the_line(void **state)
{
    struct slurmdconf c = {.line = &line, .pool = "hpc", .gres = true};
    struct node_line got = {0};

    (void)state;
    assert_int_equal(slurmdconf_line(&c, &got, NULL), 0);
    assert_string_equal(got.gres, "gpu:h100:8");
    node_line_clear(&got);
    c.person = "Gres=gpu:h100:4";
    assert_int_equal(slurmdconf_line(&c, &got, NULL), 0);
    assert_string_equal(got.gres, "gpu:h100:4");
    node_line_clear(&got);
}

static const struct {
    const char *person, *sentence;
} bad[] = {
    {"fast", "SLURMD_CONF has the word \"fast\", expected KEY=VALUE"},
    {"Weight=1 =2", "SLURMD_CONF has the word \"\", expected KEY=VALUE"},
    {"Reason=\"x", "SLURMD_CONF has a '\"' that is not closed: Reason=\"x"},
    {"RealMemory=1G", "SLURMD_CONF has \"RealMemory=1G\", expected a whole number of at "
                      "least 1 behind the '='"},
    {"CPUs= Weight=1",
     "SLURMD_CONF has \"CPUs=\", expected a whole number of at least 1 behind the '='"},
    {"CPUs=0",
     "SLURMD_CONF has \"CPUs=0\", expected a whole number of at least 1 behind the '='"},
    {"CPUs=99999999999999999999",
     "SLURMD_CONF has \"CPUs=99999999999999999999\", expected "
     "a whole number of at least 1 behind the '='"},
};

static void test_bad(void **state)
{
    (void)state;
    for (size_t i = 0; i < TG_LEN(bad); i++) {
        struct slurmdconf c = {.line = &line, .pool = "hpc", .person = bad[i].person};
        struct node_line got = {0};
        struct err err;
        char *text = NULL;

        assert_int_equal(slurmdconf_text(&c, &text, &err), -EINVAL);
        assert_string_equal(err.text, bad[i].sentence);
        assert_null(text);
        assert_int_equal(slurmdconf_line(&c, &got, &err), -EINVAL);
        assert_string_equal(err.text, bad[i].sentence);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_texts),
        cmocka_unit_test(test_lines),
        cmocka_unit_test(test_gres_of_the_line),
        cmocka_unit_test(test_bad),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
