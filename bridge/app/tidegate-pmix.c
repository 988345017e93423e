// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * tidegate-pmix: proves that processes of one job find each other by PMIx, as an MPI program does in MPI_Init.
 * Run by `srun --mpi=pmix`: each rank publishes a word, all meet in a fence, each reads its neighbour's word,
 * and rank 0 says how long that took the slowest. It keeps its own deadline: a wire-up that hangs ends with a
 * sentence. Exit status: 0 good; 1 the wire-up failed; 3 it was too slow; 64 wrong usage.
 */
#include <errno.h>
#include <getopt.h>
#include <pmix.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sysexits.h>
#include <time.h>
#include <unistd.h>

#include "base/mem.h"

#define PROGRAM     "tidegate-pmix"
#define EXIT_FAIL   1
#define EXIT_SLOW   3

#define BOUND_MAX_S 3600
#define KEY_WORD    "tidegate.word"
#define KEY_TIMES   "tidegate.times"

static const char usage[] =
    "usage: srun --mpi=pmix -n N " PROGRAM " [--bound SECONDS] [--ranks N] [--json]\n"
    "\n"
    "  --bound SECONDS  the whole wire-up must be done within this time (10)\n"
    "  --ranks N        there must be so many ranks (any number)\n"
    "  --json           rank 0 says the times as a JSON object\n"
    "  --help, --version\n"
    "\n"
    "Exit status: 0 good; 1 the wire-up failed; 3 it was too slow; 64 wrong usage.\n";

struct options {
    double bound_s;
    uint32_t ranks; /* 0: any number */
    bool json;
};

struct times {
    double init_ms;
    double fence_ms;
};

struct wireup {
    const struct options *options;
    double began_ms;
    pmix_proc_t me;
    uint32_t ranks;
    uint32_t nodes; /* 0: the server does not tell */
    struct times times;
};

/* ---- the deadline ----------------------------------------------------------------------------- */

/* What the alarm says; a signal handler has nothing but globals. */
static char who[128];              /* "tidegate-pmix: n1, rank 0: " */
static char bound_text[64];        /* " within 10 s" */
static const char *volatile stage; /* "PMIx_Init has not come back" */
static const char *volatile advice;

static struct iovec piece(const char *text)
{
    return (struct iovec){(char *)text, strlen(text)};
}

static void on_alarm(int signal_number)
{
    const struct iovec said[] = {piece(who),  piece(stage),  piece(bound_text),
                                 piece(": "), piece(advice), piece("\n")};

    (void)signal_number;
    if (writev(STDERR_FILENO, said, TG_LEN(said)) < 0) {
        /* nobody listens; the exit status tells it as well */
    }
    _exit(EXIT_SLOW);
}

static void name_self(const char *rank)
{
    const char *node = getenv("SLURMD_NODENAME");

    (void)snprintf(who, sizeof(who), PROGRAM ": %s%srank %s: ", node ? node : "",
                   node ? ", " : "", rank ? rank : "unknown");
}

static void start_deadline(double bound_s)
{
    const struct sigaction action = {.sa_handler = on_alarm};
    const time_t whole = (time_t)bound_s;
    const struct itimerval timer = {
        .it_value = {whole, (suseconds_t)((bound_s - (double)whole) * 1e6)}};

    (void)snprintf(bound_text, sizeof(bound_text), " within %g s", bound_s);
    (void)sigaction(SIGALRM, &action, NULL);
    (void)setitimer(ITIMER_REAL, &timer, NULL);
}

static void enter(const char *what, const char *what_to_do)
{
    advice = what_to_do;
    stage = what;
}

/* ---- PMIx ------------------------------------------------------------------------------------- */

static double now_ms(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static int pmix_error(pmix_status_t status, const char *what, struct err *err)
{
    return err_set(err, -EPROTO, "%s failed: %s (%d)", what, PMIx_Error_string(status),
                   status);
}

static pmix_proc_t peer_of(const struct wireup *w, pmix_rank_t rank)
{
    pmix_proc_t peer;

    PMIX_LOAD_PROCID(&peer, w->me.nspace, rank);
    return peer;
}

/* A number that the server knows of the whole job. */
static int job_number(const struct wireup *w, const char *key, uint32_t *ret,
                      struct err *err)
{
    const pmix_proc_t all = peer_of(w, PMIX_RANK_WILDCARD);
    pmix_value_t *value = NULL;
    pmix_status_t status = PMIx_Get(&all, key, NULL, 0, &value);
    int r = 0;

    if (status != PMIX_SUCCESS)
        return err_set(err, -EPROTO, "PMIx does not tell %s: %s (%d)", key,
                       PMIx_Error_string(status), status);
    if (value->type == PMIX_UINT32)
        *ret = value->data.uint32;
    else
        r = err_set(err, -EPROTO, "PMIx tells %s as type %d, not as uint32", key,
                    value->type);
    PMIX_VALUE_RELEASE(value);
    return r;
}

static int publish(const char *key, const char *text, struct err *err)
{
    pmix_value_t value = {.type = PMIX_STRING, .data = {.string = (char *)text}};
    pmix_status_t status = PMIx_Put(PMIX_GLOBAL, key, &value);

    if (status != PMIX_SUCCESS)
        return pmix_error(status, "PMIx_Put", err);
    status = PMIx_Commit();
    return status == PMIX_SUCCESS ? 0 : pmix_error(status, "PMIx_Commit", err);
}

/* All ranks meet, and what they have published is carried to each. */
static int meet(const struct wireup *w, struct err *err)
{
    const pmix_proc_t all = peer_of(w, PMIX_RANK_WILDCARD);
    bool collect = true;
    pmix_info_t info;
    pmix_status_t status;

    PMIX_INFO_LOAD(&info, PMIX_COLLECT_DATA, &collect, PMIX_BOOL);
    status = PMIx_Fence(&all, 1, &info, 1);
    PMIX_INFO_DESTRUCT(&info);
    return status == PMIX_SUCCESS ? 0 : pmix_error(status, "PMIx_Fence", err);
}

static int read_of(const struct wireup *w, pmix_rank_t rank, const char *key, char **ret,
                   struct err *err)
{
    const pmix_proc_t peer = peer_of(w, rank);
    pmix_value_t *value = NULL;
    pmix_status_t status = PMIx_Get(&peer, key, NULL, 0, &value);
    int r = 0;

    if (status != PMIX_SUCCESS)
        return err_set(err, -EPROTO, "PMIx_Get of what rank %u published failed: %s (%d)",
                       rank, PMIx_Error_string(status), status);
    if (value->type == PMIX_STRING && value->data.string)
        *ret = mem_strdup(value->data.string);
    else
        r = err_set(err, -EPROTO, "rank %u published a string, PMIx_Get gives type %d",
                    rank, value->type);
    PMIX_VALUE_RELEASE(value);
    return r;
}

/* ---- the wire-up ------------------------------------------------------------------------------ */

static char *word_of(const struct wireup *w, pmix_rank_t rank)
{
    return mem_printf("word of rank %u of %s", rank, w->me.nspace);
}

static int start(struct wireup *w, struct err *err)
{
    const double t0 = now_ms();
    pmix_status_t status;
    char rank[16];

    enter("PMIx_Init has not come back",
          "slurmd's PMIx server on this node does not answer; look at slurmd's log");
    status = PMIx_Init(&w->me, NULL, 0);
    if (status == PMIX_ERR_UNREACH)
        return err_set(err, -EPROTO,
                       "there is no PMIx server: start it by srun --mpi=pmix");
    if (status != PMIX_SUCCESS)
        return pmix_error(status, "PMIx_Init", err);
    w->times.init_ms = now_ms() - t0;
    (void)snprintf(rank, sizeof(rank), "%u", w->me.rank);
    name_self(rank);
    enter("the PMIx server has not told of the job", "look at slurmd's log");
    if (job_number(w, PMIX_NUM_NODES, &w->nodes, NULL) < 0)
        w->nodes = 0;
    return job_number(w, PMIX_JOB_SIZE, &w->ranks, err);
}

static int check_ranks(const struct wireup *w, struct err *err)
{
    const uint32_t expected = w->options->ranks;

    if (!expected || w->ranks == expected)
        return 0;
    return err_set(err, -EPROTO,
                   "PMIx tells of %u ranks, expected %u: were they started by one srun "
                   "--mpi=pmix?",
                   w->ranks, expected);
}

static int first_fence(struct wireup *w, struct err *err)
{
    _cleanup_(mem_freep) char *word = word_of(w, w->me.rank);
    double t0;
    int r = publish(KEY_WORD, word, err);

    if (r < 0)
        return r;
    enter("the first fence was not complete",
          "some rank did not come, or slurmd's PMIx ports between the nodes are blocked");
    t0 = now_ms();
    r = meet(w, err);
    w->times.fence_ms = now_ms() - t0;
    return r;
}

static int check_neighbour(const struct wireup *w, struct err *err)
{
    const pmix_rank_t neighbour = (w->me.rank + 1) % w->ranks;
    _cleanup_(mem_freep) char *expected = word_of(w, neighbour), *got = NULL;
    int r;

    enter("PMIx_Get has not come back", "look at slurmd's log on both nodes");
    r = read_of(w, neighbour, KEY_WORD, &got, err);
    if (r < 0)
        return r;
    if (!mem_same_str(got, expected))
        return err_set(err, -EPROTO, "rank %u published \"%s\", but \"%s\" came here",
                       neighbour, expected, got);
    return 0;
}

/* Of all ranks, for rank 0: the slowest in each of the two. */
static int slowest(const struct wireup *w, struct times *ret, struct err *err)
{
    *ret = w->times;
    for (pmix_rank_t rank = 1; rank < w->ranks; rank++) {
        _cleanup_(mem_freep) char *text = NULL;
        struct times t;
        int r = read_of(w, rank, KEY_TIMES, &text, err);

        if (r < 0)
            return r;
        if (sscanf(text, "%lf %lf", &t.init_ms, &t.fence_ms) != 2)
            return err_set(err, -EPROTO, "rank %u published \"%s\", expected two times",
                           rank, text);
        if (t.init_ms > ret->init_ms)
            ret->init_ms = t.init_ms;
        if (t.fence_ms > ret->fence_ms)
            ret->fence_ms = t.fence_ms;
    }
    return 0;
}

static int share_times(const struct wireup *w, struct err *err)
{
    _cleanup_(mem_freep) char *text =
        mem_printf("%.3f %.3f", w->times.init_ms, w->times.fence_ms);
    int r = publish(KEY_TIMES, text, err);

    if (r < 0)
        return r;
    enter("the second fence was not complete", "some rank did not come");
    return meet(w, err);
}

static void report(const struct wireup *w, const struct times *t)
{
    const double all_ms = now_ms() - w->began_ms;

    if (w->options->json)
        printf("{\"ranks\":%u,\"nodes\":%u,\"init_ms\":%.3f,\"fence_ms\":%.3f,"
               "\"all_ms\":%.3f}\n",
               w->ranks, w->nodes, t->init_ms, t->fence_ms, all_ms);
    else
        printf(PROGRAM ": %u ranks on %u node%s: PMIx_Init %.1f ms, first fence %.1f ms, "
                       "rank 0 done in %.1f ms\n",
               w->ranks, w->nodes, w->nodes == 1 ? "" : "s", t->init_ms, t->fence_ms,
               all_ms);
}

static int wire_up(struct wireup *w, struct err *err)
{
    struct times t;
    int r = start(w, err);

    if (r == 0)
        r = check_ranks(w, err);
    if (r == 0)
        r = first_fence(w, err);
    if (r == 0)
        r = check_neighbour(w, err);
    if (r == 0)
        r = share_times(w, err);
    if (r == 0 && w->me.rank == 0) {
        r = slowest(w, &t, err);
        if (r == 0)
            report(w, &t);
    }
    return r;
}

static int finish(struct err *err)
{
    pmix_status_t status;

    enter("PMIx_Finalize has not come back", "look at slurmd's log on this node");
    status = PMIx_Finalize(NULL, 0);
    return status == PMIX_SUCCESS ? 0 : pmix_error(status, "PMIx_Finalize", err);
}

/* ---- options ---------------------------------------------------------------------------------- */

enum { OPT_BOUND = 256, OPT_RANKS, OPT_JSON };

static const struct option long_options[] = {
    {"bound", required_argument, NULL, OPT_BOUND},
    {"ranks", required_argument, NULL, OPT_RANKS},
    {"json", no_argument, NULL, OPT_JSON},
    {"help", no_argument, NULL, 'h'},
    {"version", no_argument, NULL, 'V'},
    {NULL, 0, NULL, 0},
};

static int parse_bound(const char *text, double *ret, struct err *err)
{
    char *end;
    double value = strtod(text, &end);

    if (end == text || *end || !(value >= 0.001 && value <= BOUND_MAX_S))
        return err_set(err, -EINVAL,
                       "--bound is \"%s\", expected seconds from 0.001 to %d", text,
                       BOUND_MAX_S);
    *ret = value;
    return 0;
}

static int parse_ranks(const char *text, uint32_t *ret, struct err *err)
{
    char *end;
    long value = strtol(text, &end, 10);

    if (end == text || *end || value < 1 || value > 1000000)
        return err_set(err, -EINVAL,
                       "--ranks is \"%s\", expected a number from 1 to 1000000", text);
    *ret = (uint32_t)value;
    return 0;
}

/* 1: answered already. */
static int parse_one(int option, struct options *ret, struct err *err)
{
    switch (option) {
    case OPT_BOUND:
        return parse_bound(optarg, &ret->bound_s, err);
    case OPT_RANKS:
        return parse_ranks(optarg, &ret->ranks, err);
    case OPT_JSON:
        ret->json = true;
        return 0;
    case 'h':
        printf("%s", usage);
        return 1;
    case 'V':
        printf(PROGRAM " %s\n", TIDEGATE_VERSION);
        return 1;
    }
    return err_set(err, -EINVAL, "see " PROGRAM " --help");
}

static int parse_options(int argc, char **argv, struct options *ret, struct err *err)
{
    int option, r = 0;

    *ret = (struct options){.bound_s = 10};
    while (r == 0 && (option = getopt_long(argc, argv, "hV", long_options, NULL)) != -1)
        r = parse_one(option, ret, err);
    if (r == 0 && optind < argc)
        return err_set(err, -EINVAL, "\"%s\" is too much; see " PROGRAM " --help",
                       argv[optind]);
    return r;
}

int main(int argc, char **argv)
{
    struct options options;
    struct wireup w = {.options = &options, .began_ms = now_ms()};
    struct err err = {0};
    int r = parse_options(argc, argv, &options, &err);

    name_self(getenv("SLURM_PROCID"));
    if (r != 0) {
        if (r < 0)
            (void)fprintf(stderr, PROGRAM ": %s\n", err.text);
        return r < 0 ? EX_USAGE : EX_OK;
    }
    start_deadline(options.bound_s);
    r = wire_up(&w, &err);
    if (r == 0)
        r = finish(&err);
    if (r < 0) {
        /* no finalize: it would wait for ranks that may never come; srun ends them */
        (void)fprintf(stderr, "%s%s\n", who, err.text);
        return EXIT_FAIL;
    }
    return fflush(stdout) == 0 ? EX_OK : EXIT_FAIL;
}
