// SPDX-License-Identifier: GPL-2.0-or-later
/* tidegate-node line: what this node may tell Slurm that it has. */
#include "app/tidegate-node.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <sysexits.h>
#include <unistd.h>

#include "base/buf.h"
#include "codec/line_json.h"
#include "io/limits.h"
#include "io/topology.h"

#define XML_SECONDS        10
#define RESERVE_CPUS_MAX   NODELINE_CPUS_MAX
#define RESERVE_MEMORY_MAX (INT64_C(1) << 40) /* MiB */

struct line_options {
    const char *xml_file;
    const char *root; /* NULL: this machine's, or none with an XML file */
    bool json;
    bool gres_conf;
};

static void print_usage(FILE *to)
{
    (void)fprintf(
        to, "usage: " TG_NODE_PROGRAM
            " line [--json | --gres-conf] [--xml FILE] [--root DIR]\n\n"
            "Prints what this node has for jobs, as slurm.conf wants it: what hwloc "
            "finds, within\n"
            "the limits of the pod (cpuset, CFS quota, memory), minus "
            "TIDEGATE_RESERVE_CPUS and\n"
            "TIDEGATE_RESERVE_MEMORY_MIB. TIDEGATE_SOCKETS is what is told as a socket: "
            "package\n"
            "(the default), numa or l3cache.\n\n"
            "  --json       as the agent reads it\n"
            "  --gres-conf  the devices as lines of gres.conf\n"
            "  --xml FILE   of the machine in FILE, which lstopo wrote with --of xml\n"
            "  --root DIR   of the machine whose /proc, /sys and /dev are in DIR\n");
}

/* An exit status, or -1 to go on. */
static int parse_options(int argc, char **argv, struct line_options *o)
{
    static const struct option known[] = {
        {"xml", required_argument, NULL, 'x'}, {"root", required_argument, NULL, 'r'},
        {"json", no_argument, NULL, 'j'},      {"gres-conf", no_argument, NULL, 'g'},
        {"help", no_argument, NULL, 'h'},      {0},
    };
    int c;

    optind = 1;
    while ((c = getopt_long(argc, argv, "", known, NULL)) >= 0) {
        switch (c) {
        case 'x':
            o->xml_file = optarg;
            break;
        case 'r':
            o->root = optarg;
            break;
        case 'j':
            o->json = true;
            break;
        case 'g':
            o->gres_conf = true;
            break;
        case 'h':
            print_usage(stdout);
            return EX_OK;
        default:
            print_usage(stderr);
            return EX_USAGE;
        }
    }
    if (optind < argc || (o->json && o->gres_conf)) {
        print_usage(stderr);
        return EX_USAGE;
    }
    return -1;
}

static int reserve_from(const char *name, int64_t max, uint64_t *ret, struct err *err)
{
    const char *text = getenv(name);
    char *end = NULL;
    long long n;

    *ret = 0;
    if (!text || !*text)
        return 0;
    errno = 0;
    n = strtoll(text, &end, 10);
    if (errno || *end || end == text || n < 0 || n > max)
        return err_set(err, -EINVAL,
                       "%s is \"%s\", expected a whole number from 0 to %lld", name, text,
                       (long long)max);
    *ret = (uint64_t)n;
    return 0;
}

static int read_reserve(struct node_reserve *r, struct err *err)
{
    uint64_t cpus = 0;
    int e = reserve_from("TIDEGATE_RESERVE_CPUS", RESERVE_CPUS_MAX, &cpus, err);

    r->cpus = (uint32_t)cpus;
    return e < 0 ? e
                 : reserve_from("TIDEGATE_RESERVE_MEMORY_MIB", RESERVE_MEMORY_MAX,
                                &r->memory_mib, err);
}

static int read_socket(enum topology_socket *ret, struct err *err)
{
    static const char *const names[] = {[SOCKET_PACKAGE] = "package",
                                        [SOCKET_NUMA] = "numa",
                                        [SOCKET_L3CACHE] = "l3cache"};
    const char *text = getenv("TIDEGATE_SOCKETS");

    *ret = SOCKET_PACKAGE;
    if (!text || !*text)
        return 0;
    for (size_t i = 0; i < TG_LEN(names); i++) {
        if (strcmp(text, names[i]) == 0) {
            *ret = (enum topology_socket)i;
            return 0;
        }
    }
    return err_set(err, -EINVAL,
                   "TIDEGATE_SOCKETS is \"%s\", expected package, numa or l3cache", text);
}

static int read_xml(const char *file, struct buf *to, struct err *err)
{
    int fd = open(file, O_RDONLY | O_CLOEXEC), r = 0;
    char chunk[65536];
    ssize_t n = 0;

    if (fd < 0)
        return err_set(err, -errno, "%s cannot be opened: %m", file);
    while (r == 0 && (n = read(fd, chunk, sizeof(chunk))) > 0)
        r = buf_add(to, chunk, (size_t)n);
    if (n < 0)
        r = err_set(err, -errno, "%s cannot be read: %m", file);
    else if (r < 0)
        r = err_set(err, r, "%s has more than %d bytes, which is the most that is read",
                    file, TOPOLOGY_XML_MAX);
    (void)close(fd);
    return r;
}

/* Limits of this pod say nothing of a machine in an XML file. */
static int read_all(const struct line_options *o, struct pod_limits *limits,
                    struct machine *m, struct err *err)
{
    struct topology_where w = {.root = o->root};
    _cleanup_(buf_free) struct buf xml = BUF_INIT(TOPOLOGY_XML_MAX);
    int r = read_socket(&w.socket, err);

    if (r < 0)
        return r;
    if (o->xml_file) {
        r = read_xml(o->xml_file, &xml, err);
        w.xml = buf_str(&xml);
        w.xml_len = xml.len;
    } else if (!w.root) {
        w.root = "";
    }
    if (r == 0 && w.root)
        r = limits_read(w.root, limits, err);
    if (r < 0)
        return r;
    w.cpus = limits->cpus;
    w.mems = limits->mems;
    r = topology_read(&w, m, err);
    return r < 0 && o->xml_file ? err_context(err, r, "%s", o->xml_file) : r;
}

static int put(const struct line_options *o, const struct machine *m,
               const struct node_line *l, struct err *err)
{
    _cleanup_(mem_freep) char *text = NULL;
    _cleanup_(buf_free) struct buf json = BUF_INIT(LINE_JSON_MAX);
    int r = 0;

    if (o->json) {
        r = line_json_write(l, &json, err);
        if (r == 0)
            printf("%s\n", buf_str(&json));
    } else if (o->gres_conf) {
        text = nodeline_gres_conf(m, l, getenv("NODE_NAME"));
        printf("%s", text);
    } else {
        text = nodeline_text(l);
        printf("%s%s%s%s%s\n", text, l->gres ? " Gres=" : "", l->gres ? l->gres : "",
               l->features ? " Feature=" : "", l->features ? l->features : "");
    }
    if (r == 0 && fflush(stdout) != 0)
        r = err_set(err, -errno, "standard output cannot be written: %m");
    return r;
}

static int exit_status(int r)
{
    switch (r) {
    case 0:
        return EX_OK;
    case -EACCES:
    case -EPERM:
        return EX_NOPERM;
    case -EIO:
        return EX_UNAVAILABLE;
    default:
        return EX_CONFIG;
    }
}

static int print_line(const struct line_options *o)
{
    _cleanup_(pod_limits_clear) struct pod_limits limits = {0};
    _cleanup_(machine_clear) struct machine m = {0};
    _cleanup_(node_line_clear) struct node_line line = {0};
    struct node_reserve reserve = {0};
    struct err err = {.text = ""};
    int r = read_reserve(&reserve, &err);

    if (r == 0)
        r = read_all(o, &limits, &m, &err);
    if (r == 0)
        r = nodeline_make(&m, &limits.limits, &reserve, &line, &err);
    if (r == 0)
        r = put(o, &m, &line, &err);
    if (r < 0)
        (void)fprintf(stderr, TG_NODE_PROGRAM " line: %s\n", err.text);
    return exit_status(r);
}

/*
 * An XML file comes from outside, and hwloc is not made for bad ones: a few seconds of a fuzzer find what it dies of.
 * It does so in a child, for a few seconds at most.
 */
static int print_apart(const struct line_options *o)
{
    pid_t pid = fork();
    int status = 0;

    if (pid < 0) {
        (void)fprintf(stderr, TG_NODE_PROGRAM " line: no process can be started: %m\n");
        return EX_UNAVAILABLE;
    }
    if (pid == 0) {
        (void)setrlimit(RLIMIT_CORE, &(struct rlimit){0});
        (void)setrlimit(RLIMIT_CPU, &(struct rlimit){XML_SECONDS, XML_SECONDS});
        _exit(print_line(o));
    }
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        continue;
    if (WIFEXITED(status))
        return WEXITSTATUS(status);
    (void)fprintf(stderr,
                  TG_NODE_PROGRAM
                  " line: hwloc died of %s (signal %d): the file contradicts "
                  "itself, expected what lstopo writes with --of xml\n",
                  o->xml_file, WTERMSIG(status));
    return EX_CONFIG;
}

int verb_line(int argc, char **argv)
{
    struct line_options o = {0};
    int status = parse_options(argc, argv, &o);

    if (status >= 0)
        return status;
    return o.xml_file ? print_apart(&o) : print_line(&o);
}
