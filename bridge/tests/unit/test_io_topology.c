// SPDX-License-Identifier: GPL-2.0-or-later
/* The cases of bridge/tests/topologies/cases, and what is no topology. Runs at the top of the tree. */
#include "io/topology.h"

#include <errno.h>
#include <ftw.h>
#include <hwloc.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "tests/unit/titled.h"

#define DIRECTORY "bridge/tests/topologies/"
#define CASES_MIN                                                                        \
    20 /* as many as were asked for: a file that is not read must not pass */

struct topology_case {
    char name[128];
    char machine[256];
    char cpus[64];
    char mems[64];
    char socket[16];
    char line[256];
    char error[256];
    char gres[64];
    char features[64];
    char gres_conf[1024];
    struct node_limits limits;
    struct node_reserve reserve;
};

static void take(char *to, size_t size, const char *value)
{
    assert_true(strlen(value) < size);
    (void)snprintf(to, size, "%s", value);
}

/* Takes one "key: value" of a case. */
static void take_line(struct topology_case *c, const char *key, const char *value)
{
    const struct {
        const char *key;
        char *to;
        size_t size;
    } texts[] = {
        {"case", c->name, sizeof(c->name)},
        {"machine", c->machine, sizeof(c->machine)},
        {"cpus", c->cpus, sizeof(c->cpus)},
        {"mems", c->mems, sizeof(c->mems)},
        {"socket", c->socket, sizeof(c->socket)},
        {"line", c->line, sizeof(c->line)},
        {"error", c->error, sizeof(c->error)},
        {"gres", c->gres, sizeof(c->gres)},
        {"features", c->features, sizeof(c->features)},
    };
    unsigned long n = strtoul(value, NULL, 10);
    size_t len = strlen(c->gres_conf);

    for (size_t i = 0; i < TG_LEN(texts); i++) {
        if (strcmp(key, texts[i].key) == 0) {
            take(texts[i].to, texts[i].size, value);
            return;
        }
    }
    if (strcmp(key, "quota") == 0)
        c->limits.cpu_millis = n;
    else if (strcmp(key, "limit") == 0)
        c->limits.memory_mib = n;
    else if (strcmp(key, "reserve-cpus") == 0)
        c->reserve.cpus = (uint32_t)n;
    else if (strcmp(key, "reserve-memory") == 0)
        c->reserve.memory_mib = n;
    else if (strcmp(key, "gres.conf") == 0)
        (void)snprintf(c->gres_conf + len, sizeof(c->gres_conf) - len, "%s\n", value);
    else
        fail_msg("cases: unknown key %s", key);
}

/* The next case; false at the end of the file. */
static bool next_case(FILE *f, struct topology_case *c)
{
    char line[1024];

    *c = (struct topology_case){0};
    while (fgets(line, sizeof(line), f)) {
        char *value;

        line[strcspn(line, "\n")] = '\0';
        if (line[0] == '#')
            continue;
        if (!line[0] && c->name[0])
            return true;
        if (!line[0])
            continue;
        value = strstr(line, ": ");
        assert_non_null(value);
        *value = '\0';
        take_line(c, line, value + 2);
    }
    return c->name[0];
}

static void read_file(const char *path, struct buf *to)
{
    FILE *f = fopen(path, "re");
    char chunk[4096];
    size_t n;

    if (!f)
        fail_msg("%s: %s", path, strerror(errno));
    while ((n = fread(chunk, 1, sizeof(chunk), f)) > 0)
        assert_int_equal(buf_add(to, chunk, n), 0);
    (void)fclose(f);
}

static void write_synthetic(const char *description, struct buf *to)
{
    hwloc_topology_t topo;
    char *xml = NULL;
    int len = 0;

    assert_int_equal(hwloc_topology_init(&topo), 0);
    assert_int_equal(
        hwloc_topology_set_all_types_filter(topo, HWLOC_TYPE_FILTER_KEEP_ALL), 0);
    if (hwloc_topology_set_synthetic(topo, description) < 0)
        fail_msg("hwloc does not take \"%s\"", description);
    assert_int_equal(hwloc_topology_load(topo), 0);
    assert_int_equal(hwloc_topology_export_xmlbuffer(topo, &xml, &len, 0), 0);
    assert_int_equal(buf_puts(to, xml), 0);
    hwloc_free_xmlbuffer(topo, xml);
    hwloc_topology_destroy(topo);
}

static void machine_xml(const char *machine, struct buf *to)
{
    size_t n = strlen(machine);

    if (n > 4 && strcmp(machine + n - 4, ".xml") == 0) {
        _cleanup_(mem_freep) char *path = mem_printf(DIRECTORY "%s", machine);

        read_file(path, to);
    } else {
        write_synthetic(machine, to);
    }
}

static enum topology_socket socket_named(const char *name)
{
    if (strcmp(name, "numa") == 0)
        return SOCKET_NUMA;
    return strcmp(name, "l3cache") == 0 ? SOCKET_L3CACHE : SOCKET_PACKAGE;
}

static const char *none_as_null(const char *s)
{
    return *s ? s : NULL;
}

static bool same(const char *name, const char *what, const char *got, const char *want)
{
    if (mem_same_str(got, want))
        return true;
    print_error("%s: %s is\n  %s, expected\n  %s\n", name, what, got ? got : "none",
                want ? want : "none");
    return false;
}

static bool check_line(const struct topology_case *c, const struct machine *m,
                       const struct node_line *l)
{
    _cleanup_(mem_freep) char *text = nodeline_text(l);
    _cleanup_(mem_freep) char *conf = nodeline_gres_conf(m, l, NULL);
    bool good = same(c->name, "the line", text, none_as_null(c->line));

    good &= same(c->name, "Gres", l->gres, none_as_null(c->gres));
    good &= same(c->name, "Feature", l->features, none_as_null(c->features));
    good &= same(c->name, "gres.conf", conf, c->gres_conf);
    return good;
}

static bool check_case(const struct topology_case *c)
{
    _cleanup_(buf_free) struct buf xml = BUF_INIT(TOPOLOGY_XML_MAX);
    _cleanup_(machine_clear) struct machine m = {0};
    _cleanup_(node_line_clear) struct node_line l = {0};
    struct topology_where w = {.cpus = none_as_null(c->cpus),
                               .mems = none_as_null(c->mems),
                               .socket = socket_named(c->socket)};
    struct err err = {.text = ""};
    int r;

    machine_xml(c->machine, &xml);
    w.xml = buf_str(&xml);
    w.xml_len = xml.len;
    r = topology_read(&w, &m, &err);
    if (r == 0)
        r = nodeline_make(&m, &c->limits, &c->reserve, &l, &err);
    if (r == 0)
        return check_line(c, &m, &l);
    if (c->error[0] && strstr(err.text, c->error))
        return true;
    print_error("%s: failed with \"%s\", expected %s\n", c->name, err.text,
                c->error[0] ? c->error : c->line);
    return false;
}

static void each_case(void **state)
{
    FILE *f = fopen(DIRECTORY "cases", "re");
    struct topology_case c;
    int n = 0, wrong = 0;

    (void)state;
    assert_non_null(f);
    while (next_case(f, &c)) {
        wrong += !check_case(&c);
        n++;
    }
    (void)fclose(f);
    print_message("# %d cases\n", n);
    assert_true(n >= CASES_MIN);
    assert_int_equal(wrong, 0);
}

static void what_is_no_xml(void **state)
{
    static const char *const texts[] = {
        "",
        "x",
        "<",
        "<?xml version=\"1.0\"?>",
        "<topology version=\"2.0\"></topology>",
        "<topology version=\"2.0\"><object type=\"Machine\"/></topology>",
        "<topology version=\"9.0\"><object type=\"Machine\" cpuset=\"0x1\"/></topology>",
        "<html><body>Not found</body></html>",
    };

    (void)state;
    for (size_t i = 0; i < TG_LEN(texts); i++) {
        struct topology_where w = {.xml = texts[i], .xml_len = strlen(texts[i])};
        struct machine m = {0};
        struct err err = {.text = ""};

        assert_int_equal(topology_read(&w, &m, &err), -EBADMSG);
        assert_non_null(strstr(err.text, "XML"));
        assert_null(m.cores);
    }
}

static void an_xml_that_is_too_long(void **state)
{
    struct topology_where w = {.xml = "", .xml_len = TOPOLOGY_XML_MAX + 1};
    struct machine m = {0};

    (void)state;
    assert_int_equal(topology_read(&w, &m, NULL), -EMSGSIZE);
}

static void lists_that_are_none(void **state)
{
    _cleanup_(buf_free) struct buf xml = BUF_INIT(TOPOLOGY_XML_MAX);
    struct topology_where w = {0};
    struct machine m = {0};

    (void)state;
    write_synthetic("core:2 pu:1", &xml);
    w.xml = buf_str(&xml);
    w.xml_len = xml.len;
    w.cpus = "all";
    assert_int_equal(topology_read(&w, &m, NULL), -EINVAL);
    w.cpus = NULL;
    w.mems = "0-x";
    assert_int_equal(topology_read(&w, &m, NULL), -EINVAL);
}

/* ---- with a tree of files -------------------------------------------------------------------- */

static int remove_one(const char *path, const struct stat *st, int flag, struct FTW *at)
{
    (void)st;
    (void)flag;
    (void)at;
    return remove(path);
}

/* A file below root, with the directories to it. */
static void put_file(const char *root, const char *path, const char *text)
{
    _cleanup_(mem_freep) char *full = mem_printf("%s%s", root, path);
    FILE *f;

    for (char *s = strchr(full + strlen(root) + 1, '/'); s; s = strchr(s + 1, '/')) {
        *s = '\0';
        (void)mkdir(full, 0700);
        *s = '/';
    }
    f = fopen(full, "we");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

static void read_with_tree(const char *root, const char *machine, struct machine *m)
{
    _cleanup_(buf_free) struct buf xml = BUF_INIT(TOPOLOGY_XML_MAX);
    struct topology_where w = {.root = root};
    struct err err = {.text = ""};

    machine_xml(machine, &xml);
    w.xml = buf_str(&xml);
    w.xml_len = xml.len;
    if (topology_read(&w, m, &err) < 0)
        fail_msg("%s: %s", machine, err.text);
}

static void only_devices_that_the_pod_was_given(void **state)
{
    char root[] = "/tmp/topology.XXXXXX";
    struct machine m = {0};

    (void)state;
    assert_non_null(mkdtemp(root));
    read_with_tree(root, "h100-8-on-2.xml", &m);
    assert_int_equal(m.n_devices, 0);
    assert_false(m.rdma);
    machine_clear(&m);

    put_file(root, "/dev/nvidia2", "");
    put_file(root, "/dev/nvidia10", "");
    put_file(root, "/dev/infiniband/rdma_cm", "");
    /* The driver numbers them otherwise than by bus, and tells what it calls them. */
    put_file(root, "/proc/driver/nvidia/gpus/0000:1b:00.0/information",
             "Model: \t\t NVIDIA H100 NVL\nIRQ:   \t\t 42\nDevice Minor: \t 10\n");
    read_with_tree(root, "h100-8-on-2.xml", &m);
    assert_int_equal(m.n_devices, 2);
    assert_string_equal(m.devices[0].file, "/dev/nvidia2");
    assert_string_equal(m.devices[1].file, "/dev/nvidia10");
    assert_false(m.rdma);
    machine_clear(&m);

    put_file(root, "/dev/infiniband/uverbs0", "");
    read_with_tree(root, "h100-8-on-2.xml", &m);
    assert_true(m.rdma);
    machine_clear(&m);
    assert_int_equal(nftw(root, remove_one, 16, FTW_DEPTH | FTW_PHYS), 0);
}

static void models_by_the_driver(void **state)
{
    char root[] = "/tmp/topology.XXXXXX";
    struct machine m = {0};

    (void)state;
    assert_non_null(mkdtemp(root));
    put_file(root, "/dev/nvidia0", "");
    put_file(root, "/proc/driver/nvidia/gpus/0000:00:05.0/information",
             "Model: \t\t NVIDIA H200 NVL\nDevice Minor: \t 0\n");
    read_with_tree(root, "gpu-without-a-name.xml", &m);
    assert_int_equal(m.n_devices, 1);
    assert_string_equal(m.devices[0].model, "h200");
    machine_clear(&m);
    assert_int_equal(nftw(root, remove_one, 16, FTW_DEPTH | FTW_PHYS), 0);
}

static void this_machine(void **state)
{
    struct topology_where w = {.root = ""};
    struct machine m = {0};
    uint64_t cpus = 0;
    long pages = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGESIZE);

    (void)state;
    assert_int_equal(topology_read(&w, &m, NULL), 0);
    for (size_t i = 0; i < m.n_cores; i++)
        cpus += m.cores[i].cpus;
    assert_true(cpus > 0 && cpus <= (uint64_t)sysconf(_SC_NPROCESSORS_CONF));
    assert_true(m.memory_mib > 0 &&
                m.memory_mib <= (uint64_t)pages * (uint64_t)size >> 20);
    machine_clear(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TITLED("each machine gives its line", each_case),
        TITLED("what is no hwloc XML is refused with a sentence", what_is_no_xml),
        TITLED("an XML that is too long is refused unread", an_xml_that_is_too_long),
        TITLED("a list of cpus or nodes that is none is refused", lists_that_are_none),
        TITLED("only devices that the pod was given count",
               only_devices_that_the_pod_was_given),
        TITLED("the driver's name of a GPU is taken", models_by_the_driver),
        TITLED("this machine has cores and no more memory than slurmd sees",
               this_machine),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
