// SPDX-License-Identifier: GPL-2.0-or-later
/* tidegate-node: what runs on a compute node. See docs/man/tidegate-node.8. */
#include "app/tidegate-node.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>

#include "base/mem.h"

static const struct verb_row {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *help; /* NULL: for the program itself only */
} verbs[] = {
    {"run", verb_run, "be PID 1 of the compute pod (when no verb is given)"},
    {"line", verb_line, "print what this node has for jobs, as slurm.conf wants it"},
    {"check", verb_check, "run one of the health checks that are shipped"},
    {"prolog", verb_prolog, "for slurm.conf: asks the agent whether a job may start"},
    {"epilog", verb_epilog, "for slurm.conf: tells the agent that a job has ended"},
    {"greet", verb_greet, NULL},
};

static int print_help(void)
{
    printf("usage: " TG_NODE_PROGRAM " [VERB [ARG]...]\n\n");
    for (size_t i = 0; i < TG_LEN(verbs); i++) {
        if (verbs[i].help)
            printf("  %-8s %s\n", verbs[i].name, verbs[i].help);
    }
    printf("  --help, --version\n");
    return EX_OK;
}

int main(int argc, char **argv)
{
    char run[] = "run", *run_only[] = {run, NULL};
    const char *verb = argc > 1 ? argv[1] : run;

    if (strcmp(verb, "--help") == 0)
        return print_help();
    if (strcmp(verb, "--version") == 0) {
        printf(TG_NODE_PROGRAM " %s\n", TIDEGATE_VERSION);
        return EX_OK;
    }
    for (size_t i = 0; i < TG_LEN(verbs); i++) {
        if (strcmp(verb, verbs[i].name) == 0)
            return argc > 1 ? verbs[i].run(argc - 1, argv + 1)
                            : verbs[i].run(1, run_only);
    }
    (void)fprintf(stderr,
                  TG_NODE_PROGRAM ": \"%s\" is no verb; see " TG_NODE_PROGRAM " --help\n",
                  verb);
    return EX_USAGE;
}
