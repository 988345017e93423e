// SPDX-License-Identifier: GPL-2.0-or-later
//
// ring [BYTES]: a first MPI program. A token (of 8 bytes, or BYTES) goes around all ranks, each adds
// its number to every word of it, and rank 0 checks the sums. It prints where each rank ran, and how
// long after the start of its process MPI_Init and the first barrier were done: the price of the
// wire-up. Exits with 1 when a sum is wrong.
//
//     srun --mpi=pmix -N2 --ntasks-per-node=2 /usr/share/tidegate/examples/ring

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct line {
    char host[64]; // the pod's name, under Kubernetes
    char node[64]; // Slurm's name of the node
    double init;   // seconds from the start of the process to the end of MPI_Init
    double barrier;
};

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_BOOTTIME, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

// When this process was started, on the clock of now(); the kernel tells it to 10 ms.
static double process_start(void)
{
    char text[1024];
    unsigned long long ticks;
    FILE *f = fopen("/proc/self/stat", "r");
    size_t n = f ? fread(text, 1, sizeof(text) - 1, f) : 0;

    if (f)
        fclose(f);
    text[n] = '\0';

    // Field 2 is the program's name, which may hold anything; field 22 is the start.
    const char *p = strrchr(text, ')');

    for (int field = 2; p && field < 22; field++)
        p = strchr(p + 1, ' ');
    if (!p || sscanf(p, "%llu", &ticks) != 1) {
        fprintf(stderr,
                "ring: /proc/self/stat does not tell when this process was started\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    return (double)ticks / (double)sysconf(_SC_CLK_TCK);
}

static void pass_token(long *token, int words, int rank, int size)
{
    if (size == 1)
        return;
    if (rank > 0) {
        MPI_Recv(token, words, MPI_LONG, rank - 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        for (int i = 0; i < words; i++)
            token[i] += rank;
    }
    MPI_Send(token, words, MPI_LONG, (rank + 1) % size, 0, MPI_COMM_WORLD);
    if (rank == 0)
        MPI_Recv(token, words, MPI_LONG, size - 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

// Word i starts as i, so that words which changed places are seen.
static int check_token(const long *token, int words, int size)
{
    long want = (long)size * (size - 1) / 2;

    for (int i = 0; i < words; i++) {
        if (token[i] - i != want) {
            printf("ring is WRONG: word %d has sum %ld, expected %ld\n", i, token[i] - i,
                   want);
            return 1;
        }
    }
    printf("ring is right: sum %ld\n", want);
    return 0;
}

static void print(const struct line *lines, int size)
{
    double init = 0, barrier = 0;
    int hosts = 0;

    for (int i = 0; i < size; i++) {
        int seen = 0;

        printf("rank %d of %d: host %s, node %s, MPI_Init %.3f s, first barrier %.3f s\n",
               i, size, lines[i].host, lines[i].node, lines[i].init, lines[i].barrier);
        for (int j = 0; j < i && !seen; j++)
            seen = strcmp(lines[i].host, lines[j].host) == 0;
        hosts += !seen;
        if (lines[i].init > init)
            init = lines[i].init;
        if (lines[i].barrier > barrier)
            barrier = lines[i].barrier;
    }
    printf("slowest of %d ranks on %d hosts: MPI_Init %.3f s, first barrier %.3f s\n",
           size, hosts, init, barrier);
}

int main(int argc, char **argv)
{
    int rank, size, wrong = 0;
    struct line mine = {0}, *all = NULL;
    const char *node = getenv("SLURMD_NODENAME");
    int words = argc > 1 ? atoi(argv[1]) / (int)sizeof(long) : 1;
    long *token;

    if (words < 1) {
        fprintf(stderr, "ring: BYTES is '%s', expected a number from 8 on\n", argv[1]);
        return 64;
    }
    token = calloc((size_t)words, sizeof(*token));
    for (int i = 0; i < words; i++)
        token[i] = i;

    MPI_Init(&argc, &argv);
    mine.init = now();
    MPI_Barrier(MPI_COMM_WORLD);
    mine.barrier = now();

    double start = process_start();

    mine.init -= start;
    mine.barrier -= start;
    gethostname(mine.host, sizeof(mine.host) - 1);
    snprintf(mine.node, sizeof(mine.node), "%s", node ? node : "(none)");
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);

    if (rank == 0)
        all = calloc((size_t)size, sizeof(*all));
    MPI_Gather(&mine, sizeof(mine), MPI_BYTE, all, sizeof(mine), MPI_BYTE, 0,
               MPI_COMM_WORLD);

    pass_token(token, words, rank, size);
    if (rank == 0) {
        print(all, size);
        wrong = check_token(token, words, size);
        fflush(stdout);
    }
    MPI_Bcast(&wrong, 1, MPI_INT, 0, MPI_COMM_WORLD);
    free(all);
    free(token);
    MPI_Finalize();
    return wrong;
}
