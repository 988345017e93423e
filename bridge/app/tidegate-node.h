/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * tidegate-node: one program for all that runs on a compute node. See docs/man/tidegate-node.8.
 *
 * Each verb is a function of its own file, called with argv[0] = the verb; it returns the exit status,
 * a code of sysexits.h, or of a check: 0 good, anything else failed. One that is not linked into this program
 * is NULL.
 */
#ifndef TG_APP_TIDEGATE_NODE_H
#define TG_APP_TIDEGATE_NODE_H

#define TG_NODE_PROGRAM "tidegate-node"

#define TG_VERB(name)   int name(int argc, char **argv) __attribute__((weak))
TG_VERB(verb_run);    /* PID 1 of the compute pod */
TG_VERB(verb_greet);  /* a credential from the greeting on stdin, for the agent itself */
TG_VERB(verb_line);   /* what this node may tell Slurm that it has */
TG_VERB(verb_check);  /* one of the health checks that are shipped */
TG_VERB(verb_prolog); /* called by slurmd before the first step of a job */
TG_VERB(verb_epilog); /* and after its last */
#undef TG_VERB

#endif
