// SPDX-License-Identifier: GPL-2.0-or-later
/* tidegate: asks the bridge about the nodes. Also a plugin of kubectl, as kubectl-tidegate. */
#include "app/tidegate.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "codec/json.h"
#include "codec/termtext.h"

struct args {
    struct source source;
    bool json;
    bool help;
    bool version;
    char **words; /* command and its arguments */
    int n_words;
};

static const char usage[] =
    "usage: %1$s nodes [--json]        all nodes: what Kubernetes and Slurm say, who "
    "holds them\n"
    "       %1$s why NODE [--json]     who holds a node, since when, why, and what will "
    "end it\n"
    "       %1$s --help | --version\n"
    "\n"
    "Where the bridge is asked:\n"
    "  --url URL            its address; default: TIDEGATE_BRIDGE_URL, else the one that "
    "a pod\n"
    "                       finds in TIDEGATE_BRIDGE_SERVICE_HOST and _PORT, else\n"
    "                       http://127.0.0.1:8080\n"
    "  --kubectl            through the Kubernetes API server, by kubectl (the default "
    "as\n"
    "                       `kubectl tidegate`)\n"
    "  -n, --namespace NS   of the bridge (tidegate)                     implies "
    "--kubectl\n"
    "  --service NAME       the bridge's Service (tidegate-bridge)       implies "
    "--kubectl\n"
    "  --context NAME       kubectl's own                                implies "
    "--kubectl\n"
    "  --kubeconfig FILE    kubectl's own                                implies "
    "--kubectl\n"
    "\n"
    "Exit status: 0 done; 1 there is no such node; 2 wrong usage; 69 the bridge or "
    "slurmctld\n"
    "cannot be reached; 77 no permission. More in tidegate(1).\n";

enum { OPT_URL = 256, OPT_KUBECTL, OPT_SERVICE, OPT_CONTEXT, OPT_KUBECONFIG, OPT_JSON };

static const struct option options[] = {
    {"url", required_argument, NULL, OPT_URL},
    {"kubectl", no_argument, NULL, OPT_KUBECTL},
    {"namespace", required_argument, NULL, 'n'},
    {"service", required_argument, NULL, OPT_SERVICE},
    {"context", required_argument, NULL, OPT_CONTEXT},
    {"kubeconfig", required_argument, NULL, OPT_KUBECONFIG},
    {"json", no_argument, NULL, OPT_JSON},
    {"help", no_argument, NULL, 'h'},
    {"version", no_argument, NULL, 'V'},
    {NULL, 0, NULL, 0},
};

static int parse_option(int option, struct args *a, bool *implied)
{
    switch (option) {
    case OPT_URL:
        a->source.url = optarg;
        return 0;
    case OPT_KUBECTL:
        *implied = true;
        return 0;
    case 'n':
        a->source.namespace = optarg;
        *implied = true;
        return 0;
    case OPT_SERVICE:
        a->source.service = optarg;
        *implied = true;
        return 0;
    case OPT_CONTEXT:
        a->source.context = optarg;
        *implied = true;
        return 0;
    case OPT_KUBECONFIG:
        a->source.kubeconfig = optarg;
        *implied = true;
        return 0;
    case OPT_JSON:
        a->json = true;
        return 0;
    case 'h':
        a->help = true;
        return 0;
    case 'V':
        a->version = true;
        return 0;
    }
    return -EINVAL; /* getopt has said what is wrong */
}

static int parse_args(int argc, char **argv, const char *self, struct args *a)
{
    bool implied = false;
    int option;

    *a = (struct args){.source = {.namespace = "tidegate", .service = "tidegate-bridge"}};
    while ((option = getopt_long(argc, argv, "n:hV", options, NULL)) != -1) {
        if (parse_option(option, a, &implied) < 0)
            return -EINVAL;
    }
    if (implied && a->source.url) {
        (void)fprintf(stderr,
                      "%s: --url asks the bridge itself, --kubectl and its options ask "
                      "through the API server: give one of the two\n",
                      self);
        return -EINVAL;
    }
    a->source.kubectl =
        implied || (!a->source.url && strcmp(self, "kubectl-tidegate") == 0);
    a->words = argv + optind;
    a->n_words = argc - optind;
    return 0;
}

static int wrong_usage(const char *self, const char *what, const char *word)
{
    _cleanup_(mem_freep) char *safe = termtext_escape(word);

    (void)fprintf(stderr, "%s: %s%s%s%s; '%s --help' lists the commands\n", self, what,
                  word ? " '" : "", safe, word ? "'" : "", self);
    return EXIT_USAGE;
}

static int exit_status(int code)
{
    switch (code) {
    case -ENOENT:
        return EXIT_NOT_SO;
    case -EACCES:
        return EX_NOPERM;
    }
    return EX_UNAVAILABLE;
}

/*
 * Behind one address stand several bridges, and only the one that leads hears the nodes' agents: its answer
 * is the better one. Each try comes to any of them, so that of two each second try is in vain.
 */
#define TRIES         24 /* all in vain: once in 16 million */
#define TRIES_KUBECTL 8  /* once in 256; each takes a quarter of a second */

static bool leads(const cJSON *answer)
{
    return cJSON_IsTrue(json_member(answer, "leader"));
}

static int get_from_leader(const struct source *s, const char *node, cJSON **ret,
                           struct err *err)
{
    int tries = s->kubectl ? TRIES_KUBECTL : TRIES;
    int r = source_get(s, node, ret, err);

    while (r == 0 && !leads(*ret) && --tries > 0) {
        cJSON *other = NULL;

        if (source_get(s, node, &other, NULL) < 0)
            continue;
        cJSON_Delete(*ret);
        *ret = other;
    }
    return r;
}

/* `node`: NULL for all. */
static int ask(const char *self, const struct args *a, const char *node)
{
    cJSON *answer = NULL;
    struct err err = {0};
    int r = get_from_leader(&a->source, node, &answer, &err);
    bool fresh;

    if (r < 0) {
        _cleanup_(mem_freep) char *safe = termtext_escape(err.text);

        (void)fprintf(stderr, "%s: %s\n", self, safe);
        return exit_status(r);
    }
    fresh = show_freshness(answer);
    if (a->json)
        show_json(answer);
    else if (node)
        show_node(answer);
    else
        show_nodes(answer);
    cJSON_Delete(answer);
    if (fflush(stdout) != 0 || ferror(stdout)) {
        (void)fprintf(stderr, "%s: cannot write: %s\n", self, strerror(errno));
        return EX_IOERR;
    }
    return fresh ? EXIT_OK : EX_UNAVAILABLE;
}

int main(int argc, char **argv)
{
    const char *slash = argc > 0 ? strrchr(argv[0], '/') : NULL;
    const char *self = slash ? slash + 1 : argc > 0 ? argv[0] : "tidegate";
    struct args a;

    if (parse_args(argc, argv, self, &a) < 0) {
        (void)fprintf(stderr, "'%s --help' lists the options\n", self);
        return EXIT_USAGE;
    }
    if (a.help) {
        (void)printf(usage,
                     strcmp(self, "kubectl-tidegate") == 0 ? "kubectl tidegate" : self);
        return EXIT_OK;
    }
    if (a.version) {
        (void)printf("tidegate %s\n", TIDEGATE_VERSION);
        return EXIT_OK;
    }
    if (a.n_words == 0)
        return wrong_usage(self, "a command is missing", NULL);
    if (strcmp(a.words[0], "nodes") == 0) {
        if (a.n_words > 1)
            return wrong_usage(self, "nodes takes no argument, but there is", a.words[1]);
        return ask(self, &a, NULL);
    }
    if (strcmp(a.words[0], "why") == 0) {
        if (a.n_words != 2 || !*a.words[1])
            return wrong_usage(self, "why takes the name of one node", NULL);
        return ask(self, &a, a.words[1]);
    }
    return wrong_usage(self, "unknown command", a.words[0]);
}
