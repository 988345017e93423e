// SPDX-License-Identifier: GPL-2.0-or-later
//
// ring: a first MPI program. A token goes around all ranks, each adds its number, and rank 0 checks
// the sum. It prints where each rank ran, and how long after the start of its process MPI_Init and
// the first barrier were done: the price of the wire-up. Exits with 1 when the sum is wrong.
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

static long pass_token(int rank, int size)
{
    long token = 0;

    if (size == 1)
        return 0;
    if (rank > 0) {
        MPI_Recv(&token, 1, MPI_LONG, rank - 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        token += rank;
    }
    MPI_Send(&token, 1, MPI_LONG, (rank + 1) % size, 0, MPI_COMM_WORLD);
    if (rank == 0)
        MPI_Recv(&token, 1, MPI_LONG, size - 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    return token;
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

    long sum = pass_token(rank, size);

    if (rank == 0) {
        long want = (long)size * (size - 1) / 2;

        print(all, size);
        wrong = sum != want;
        if (wrong)
            printf("ring is WRONG: sum %ld, expected %ld\n", sum, want);
        else
            printf("ring is right: sum %ld\n", sum);
        fflush(stdout);
    }
    MPI_Bcast(&wrong, 1, MPI_INT, 0, MPI_COMM_WORLD);
    free(all);
    MPI_Finalize();
    return wrong;
}
