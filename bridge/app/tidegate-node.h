/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * tidegate-node: one program for all that runs on a compute node. See docs/man/tidegate-node.8.
 *
 * Each verb is a function of its own file, called with argv[0] = the verb; it returns the exit status,
 * a code of sysexits.h, or of a check: 0 good, anything else failed.
 */
#ifndef TG_APP_TIDEGATE_NODE_H
#define TG_APP_TIDEGATE_NODE_H

#define TG_NODE_PROGRAM "tidegate-node"

int verb_run(int argc, char **argv); /* PID 1 of the compute pod */
int verb_greet(
    int argc,
    char **argv); /* a credential from the greeting on stdin, for the agent itself */
int verb_line(int argc, char **argv);  /* what this node may tell Slurm that it has */
int verb_check(int argc, char **argv); /* one of the health checks that are shipped */
int verb_prolog(int argc,
                char **argv); /* called by slurmd before the first step of a job */
int verb_epilog(int argc, char **argv); /* and after its last */

#endif
