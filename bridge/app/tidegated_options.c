// SPDX-License-Identifier: GPL-2.0-or-later
#include "app/tidegated.h"

#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <string.h>

#define ACCOUNT_DIR   "/var/run/secrets/kubernetes.io/serviceaccount/"
#define MAX_PERIOD_MS 60000 /* a link that is lost for longer is of no use */
#define MAX_SECONDS   86400 /* a hold of more than a day is a slip of the hand */

enum option_kind { KIND_TEXT, KIND_SECONDS };

/* One row an option: --NAME VALUE, or TIDEGATE_NAME in the environment. */
struct option_row {
    const char *name;
    enum option_kind kind;
    size_t offset;        /* in struct options */
    const char *fallback; /* NULL: none */
    const char *help;
};

#define ROW(opt, kind, member, fallback, help)                                           \
    {opt, kind, offsetof(struct options, member), fallback, help}

static const struct option_row rows[] = {
    ROW("namespace", KIND_TEXT, namespace, NULL,
        "of the pools, the pods and the Lease (default: the service account's)"),
    ROW("identity", KIND_TEXT, identity, NULL,
        "in the Lease; the same over a restart (default: POD_NAME_POD_UID)"),
    ROW("lease", KIND_TEXT, lease, "tidegate-bridge", "name of the Lease"),
    ROW("listen", KIND_TEXT, listen, "0.0.0.0:8080", "address of the HTTP server"),
    ROW("pod-selector", KIND_TEXT, pod_selector, "app.kubernetes.io/component=node",
        "label selector of the slurmd pods"),
    ROW("kube-server", KIND_TEXT, kube_server, NULL,
        "URL of the API server (default: the pod's own)"),
    ROW("kube-ca", KIND_TEXT, kube_ca, NULL, "file with the API server's CA"),
    ROW("kube-token", KIND_TEXT, kube_token, NULL, "file with a bearer token"),
    ROW("kube-cert", KIND_TEXT, kube_cert, NULL, "file with a client certificate"),
    ROW("kube-key", KIND_TEXT, kube_key, NULL, "file with its key"),
    ROW("agents-listen", KIND_TEXT, agents_listen, "0.0.0.0:6821",
        "address for the nodes' agents; none: nodes have no agents"),
    ROW("agents-period", KIND_SECONDS, agents_period_ms, "3",
        "seconds between two heartbeats of an agent; three missed: its link is lost"),
    ROW("apply", KIND_TEXT, apply, NULL,
        "apply the CustomResourceDefinition in this JSON file, then exit"),
    ROW("resume-hold", KIND_SECONDS, policy.resume_hold_ms, "5",
        "seconds that Ready must have stood before a node is resumed"),
    ROW("down-confirm", KIND_SECONDS, policy.down_confirm_ms, "5",
        "seconds that slurmd must have been silent before DOWN"),
};

static void print_help(void)
{
    printf(
        "usage: tidegated [OPTION]...\n"
        "Keeps Kubernetes and Slurm in step. Each option can stand in the environment as "
        "well: --kube-ca as TIDEGATE_KUBE_CA.\n\n");
    for (size_t i = 0; i < TG_LEN(rows); i++) {
        printf("  --%-15s %s %s", rows[i].name,
               rows[i].kind == KIND_SECONDS ? "SECONDS" : "VALUE  ", rows[i].help);
        if (rows[i].fallback)
            printf(" (default: %s)", rows[i].fallback);
        putchar('\n');
    }
    printf("  --help, --version\n");
}

static int set_seconds(int64_t *ret_ms, const char *name, const char *value,
                       struct err *err)
{
    char *end;
    long s;

    errno = 0;
    s = strtol(value, &end, 10);
    if (!isdigit((unsigned char)*value) || *end || errno || s > MAX_SECONDS)
        return err_set(err, -EINVAL,
                       "--%s is \"%s\", expected whole seconds from 0 to %d", name, value,
                       MAX_SECONDS);
    *ret_ms = (int64_t)s * 1000;
    return 0;
}

static int set_row(struct options *o, const struct option_row *row, const char *value,
                   struct err *err)
{
    char *member = (char *)o + row->offset;

    if (row->kind == KIND_SECONDS)
        return set_seconds((int64_t *)(void *)member, row->name, value, err);
    mem_set((char **)(void *)member, value);
    return 0;
}

/* Fallbacks, then the environment. An empty variable is none. */
static int set_from_environment(struct options *o, struct err *err)
{
    for (size_t i = 0; i < TG_LEN(rows); i++) {
        _cleanup_(mem_freep) char *name = mem_printf("TIDEGATE_%s", rows[i].name);
        const char *value;
        int r;

        for (char *c = name; *c; c++)
            *c = *c == '-' ? '_' : (char)toupper((unsigned char)*c);
        value = getenv(name);
        if (!value || !*value)
            value = rows[i].fallback;
        r = value ? set_row(o, &rows[i], value, err) : 0;
        if (r < 0)
            return err_context(err, r, "%s in the environment", name);
    }
    return 0;
}

static int set_from_arguments(struct options *o, int argc, char **argv, struct err *err)
{
    struct option longs[TG_LEN(rows) + 3] = {0};
    int c, index, r;

    for (size_t i = 0; i < TG_LEN(rows); i++)
        longs[i] = (struct option){rows[i].name, required_argument, NULL, 'o'};
    longs[TG_LEN(rows)] = (struct option){"help", no_argument, NULL, 'h'};
    longs[TG_LEN(rows) + 1] = (struct option){"version", no_argument, NULL, 'v'};
    opterr = 0;
    while ((c = getopt_long(argc, argv, ":", longs, &index)) != -1) {
        switch (c) {
        case 'h':
            print_help();
            return 1;
        case 'v':
            printf("tidegated %s\n", TIDEGATE_VERSION);
            return 1;
        case 'o':
            r = set_row(o, &rows[index], optarg, err);
            if (r < 0)
                return r;
            break;
        default:
            return err_set(err, -EINVAL, "%s: %s; see tidegated --help", argv[optind - 1],
                           c == ':' ? "a value must follow" : "no such option");
        }
    }
    if (optind < argc)
        return err_set(err, -EINVAL, "\"%s\" is no option; see tidegated --help",
                       argv[optind]);
    return 0;
}

static char *read_line(const char *file)
{
    char text[256] = "";
    FILE *f = fopen(file, "re");

    if (!f)
        return NULL;
    if (!fgets(text, sizeof(text), f))
        text[0] = '\0';
    (void)fclose(f);
    text[strcspn(text, "\n")] = '\0';
    return *text ? mem_strdup(text) : NULL;
}

static void set_in_cluster(struct options *o)
{
    const char *host = getenv("KUBERNETES_SERVICE_HOST");
    const char *port = getenv("KUBERNETES_SERVICE_PORT");

    if (!o->namespace)
        o->namespace = read_line(ACCOUNT_DIR "namespace");
    if (!o->identity && getenv("POD_NAME") && getenv("POD_UID"))
        o->identity = mem_printf("%s_%s", getenv("POD_NAME"), getenv("POD_UID"));
    if (o->kube_server || !host || !port)
        return;
    /* an address of IPv6 stands in brackets in a URL */
    o->kube_server =
        mem_printf(strchr(host, ':') ? "https://[%s]:%s" : "https://%s:%s", host, port);
    if (!o->kube_ca)
        o->kube_ca = mem_strdup(ACCOUNT_DIR "ca.crt");
    if (!o->kube_token && !o->kube_cert)
        o->kube_token = mem_strdup(ACCOUNT_DIR "token");
}

int options_parse(int argc, char **argv, struct options *ret, struct err *err)
{
    int r = set_from_environment(ret, err);

    if (r == 0)
        r = set_from_arguments(ret, argc, argv, err);
    if (r != 0)
        return r;
    set_in_cluster(ret);
    if (!ret->kube_server)
        return err_set(
            err, -EINVAL,
            "no API server: this is no pod of a cluster (KUBERNETES_SERVICE_HOST is "
            "not set), so give --kube-server");
    if (ret->apply)
        return 0;
    if (!ret->namespace)
        return err_set(err, -EINVAL, "no namespace: give --namespace");
    if (!*ret->agents_listen)
        mem_set(&ret->agents_listen, "none");
    if (!ret->agents_period_ms || ret->agents_period_ms > MAX_PERIOD_MS)
        return err_set(err, -EINVAL,
                       "--agents-period is %lld s, expected whole seconds from 1 to %d",
                       (long long)ret->agents_period_ms / 1000, MAX_PERIOD_MS / 1000);
    if (!ret->identity)
        return err_set(err, -EINVAL,
                       "no identity: give --identity, or set POD_NAME and POD_UID");
    return 0;
}

void options_clear(struct options *o)
{
    for (size_t i = 0; i < TG_LEN(rows); i++) {
        if (rows[i].kind == KIND_TEXT)
            free(*(char **)(void *)((char *)o + rows[i].offset));
    }
    *o = (struct options){0};
}
