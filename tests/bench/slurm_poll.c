// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Tells when a Slurm node turned. For each line "NODE drain" or "NODE free" on stdin it asks
 * slurmctld for that node again and again, and prints the time in us since 1970 at which the answer
 * first was so. A process each (scontrol) would take longer than what is measured.
 */
#include <inttypes.h>
#include <slurm/slurm.h>
#include <slurm/slurm_errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static int64_t now_us(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

static bool drains(char *name)
{
    node_info_msg_t *m = NULL;
    bool yes = false;

    if (slurm_load_node_single(&m, name, SHOW_ALL) != SLURM_SUCCESS)
        return false;
    for (uint32_t i = 0; i < m->record_count; i++) {
        if (m->node_array[i].name && strcmp(m->node_array[i].name, name) == 0)
            yes = m->node_array[i].node_state & NODE_STATE_DRAIN;
    }
    slurm_free_node_info_msg(m);
    return yes;
}

int main(void)
{
    char line[256], name[200], wanted[32];

    slurm_init(NULL);
    while (fgets(line, sizeof(line), stdin)) {
        if (sscanf(line, "%199s %31s", name, wanted) != 2)
            return 1;
        while (drains(name) != (strcmp(wanted, "drain") == 0))
            (void)usleep(500);
        printf("%" PRId64 "\n", now_us());
        (void)fflush(stdout);
    }
    return 0;
}
