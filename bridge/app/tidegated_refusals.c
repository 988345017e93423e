// SPDX-License-Identifier: GPL-2.0-or-later
#include <string.h>
#include <uthash.h>

#include "app/tidegated.h"
#include "base/clock.h"
#include "base/log.h"

/* A node that slurmctld refused is left alone for this long, doubled up to the maximum. */
#define RETRY_MIN_MS 1000
#define RETRY_MAX_MS 60000

struct refusal {
    char *name;
    char *error;
    int64_t wait_ms;
    int64_t again_at; /* CLOCK_BOOTTIME */
    UT_hash_handle hh;
};

struct refusals {
    struct refusal *by_name;
};

struct refusals *refusals_new(void)
{
    return mem_zalloc(sizeof(struct refusals));
}

static struct refusal *find(const struct refusals *r, const char *name)
{
    struct refusal *f;

    HASH_FIND_STR(r->by_name, name, f);
    return f;
}

static void drop(struct refusals *r, struct refusal *f)
{
    HASH_DEL(r->by_name, f);
    free(f->name);
    free(f->error);
    free(f);
}

void refusals_free(struct refusals *r)
{
    struct refusal *f, *next;

    if (!r)
        return;
    HASH_ITER(hh, r->by_name, f, next)
    drop(r, f);
    free(r);
}

void refusals_note(struct refusals *r, const char *name, const char *error)
{
    struct refusal *f = find(r, name);

    if (!f) {
        f = mem_zalloc(sizeof(*f));
        f->name = mem_strdup(name);
        f->wait_ms = RETRY_MIN_MS;
        HASH_ADD_KEYPTR(hh, r->by_name, f->name, strlen(f->name), f);
    } else if (f->wait_ms < RETRY_MAX_MS) {
        f->wait_ms *= 2;
    }
    f->again_at = clock_mono_ms() + f->wait_ms;
    if (f->error && strcmp(f->error, error) == 0)
        return; /* said already */
    mem_set(&f->error, error);
    log_warn("slurmctld refused a change; it is tried again later", LOG_STR("node", name),
             LOG_STR("error", error));
}

void refusals_forget(struct refusals *r, const char *name)
{
    struct refusal *f = find(r, name);

    if (f)
        drop(r, f);
}

bool refusals_hold(const struct refusals *r, const char *name, int64_t mono_ms)
{
    const struct refusal *f = find(r, name);

    return f && mono_ms < f->again_at;
}

void refusals_trim(struct refusals *r, const struct world *w)
{
    struct refusal *f, *next;

    HASH_ITER(hh, r->by_name, f, next)
    {
        if (!world_find(w, f->name))
            drop(r, f);
    }
}
