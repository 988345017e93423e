// SPDX-License-Identifier: GPL-2.0-or-later
#include "io/checks.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "io/checks_priv.h"
#include "io/timer.h"

#define CAPTURE_MAX    4096
#define START_AGAIN_MS 1000 /* between two runs of a check of the start */
#define SPREAD_PERCENT                                                                   \
    10 /* of the period: a fleet's checks must not ask one server all at once */

struct check {
    struct checks *checks;
    struct checkdef def;
    struct check_state state;
    struct check_words
        words; /* of the last failure; while it holds, of the one that began it */
    pid_t
        pid; /* of the last run; it may hang in the kernel long after its end was told */
    bool running;     /* its end is waited for */
    unsigned moments; /* that this run is for */
    bool failed;      /* at the last run */
    bool ran;         /* since this agent has started */
    sd_event_source *timer;
};

/* Who waits for the checks of a moment. */
struct request {
    struct request *next;
    enum check_moment moment;
    void (*on_done)(const struct check_fact *failed, size_t n, void *userdata);
    void *userdata;
    struct check **waits;
    size_t n_waits;
    struct check_fact *failed;
    size_t n_failed;
};

struct checks {
    sd_event *event;
    struct children *children;
    struct checks_host host;
    char boot_id[64];
    struct check **items;
    size_t n;
    struct request *requests; /* the oldest first */
    struct check_fact *failing;
    size_t n_failing;
    bool begun;
    bool changed; /* on_change is due */
    sd_event_source *later;
    struct keeper *keeper; /* NULL: nothing is kept */
};

static void start_run(struct check *k, unsigned moment, const char *const *setenv);

/* ---- facts --------------------------------------------------------------------------- */

static struct check_fact fact_of(const struct check *k)
{
    return (struct check_fact){.name = mem_strdup(k->def.name),
                               .text = mem_strdup(k->words.text),
                               .since = k->state.since};
}

static void facts_free(struct check_fact *facts, size_t n)
{
    for (size_t i = 0; i < n; i++)
        check_fact_clear(&facts[i]);
    free(facts);
}

static int by_since(const void *a, const void *b)
{
    const struct check *x = *(struct check *const *)a, *y = *(struct check *const *)b;

    if (x->state.since != y->state.since)
        return x->state.since < y->state.since ? -1 : 1;
    return strcmp(x->def.name, y->def.name);
}

static void build_failing(struct checks *c)
{
    struct check **held = mem_calloc(c->n, sizeof(struct check *));
    size_t n = 0;

    for (size_t i = 0; i < c->n; i++) {
        if (c->items[i]->state.holds)
            held[n++] = c->items[i];
    }
    qsort(held, n, sizeof(struct check *), by_since);
    facts_free(c->failing, c->n_failing);
    c->failing = mem_calloc(n, sizeof(*c->failing));
    c->n_failing = n;
    for (size_t i = 0; i < n; i++)
        c->failing[i] = fact_of(held[i]);
    free(held);
}

const struct check_fact *checks_failing(const struct checks *c, size_t *ret_n)
{
    *ret_n = c->n_failing;
    return c->failing;
}

static void wake_later(struct checks *c)
{
    (void)sd_event_source_set_enabled(c->later, SD_EVENT_ONESHOT);
}

static void set_changed(struct checks *c)
{
    build_failing(c);
    c->changed = true;
    wake_later(c);
}

/* Checks that are settled have nothing to keep. */
static void keep(struct checks *c)
{
    _cleanup_(checksave_freep) struct checksave *s = NULL;
    struct buf b = BUF_INIT(CHECKSAVE_MAX);

    if (!c->keeper)
        return;
    s = mem_zalloc(sizeof(*s));
    for (size_t i = 0; i < c->n; i++) {
        const struct check *k = c->items[i];
        struct checksave_item *item = &s->items[s->n];

        if (!check_state_unsettled(&k->state, &k->def.rule))
            continue;
        s->n++;
        (void)snprintf(item->name, sizeof(item->name), "%s", k->def.name);
        item->state = k->state;
        memcpy(item->text, k->words.text, sizeof(item->text));
    }
    checksave_render(s, &b);
    keeper_put(c->keeper, b.data, b.len);
    buf_free(&b);
}

/* ---- who waits ----------------------------------------------------------------------- */

static bool waits_for(const struct request *q, const struct check *k)
{
    for (size_t i = 0; i < q->n_waits; i++) {
        if (q->waits[i] == k)
            return true;
    }
    return false;
}

/* This check is done with for who waits, when it is one of those waited for. */
static void resolve(struct request *q, const struct check *k, bool failed)
{
    for (size_t i = 0; i < q->n_waits; i++) {
        if (q->waits[i] != k)
            continue;
        q->waits[i] = q->waits[--q->n_waits];
        if (failed) {
            q->failed = mem_resize(q->failed, q->n_failed + 1, sizeof(*q->failed));
            q->failed[q->n_failed++] = fact_of(k);
        }
        wake_later(k->checks);
        return;
    }
}

static bool start_waits_for(const struct check *k)
{
    for (const struct request *q = k->checks->requests; q; q = q->next) {
        if (q->moment == CHECK_START && waits_for(q, k))
            return true;
    }
    return false;
}

static void request_free(struct request *q)
{
    facts_free(q->failed, q->n_failed);
    free(q->waits);
    free(q);
}

/* Calls back outside of whatever call has brought the news. */
static int on_later(sd_event_source *s, void *userdata)
{
    struct checks *c = userdata;
    struct request **at = &c->requests;

    (void)s;
    if (c->changed) {
        c->changed = false;
        if (c->host.on_change)
            c->host.on_change(c->host.userdata);
    }
    while (*at) {
        struct request *q = *at;

        if (q->n_waits) {
            at = &q->next;
            continue;
        }
        *at = q->next;
        if (q->on_done)
            q->on_done(q->failed, q->n_failed, q->userdata);
        request_free(q);
        at = &c->requests; /* it may have asked for more */
    }
    return 0;
}

/* ---- runs ---------------------------------------------------------------------------- */

static int64_t next_period(const struct check *k)
{
    uint32_t spread = (uint32_t)(k->def.period_ms * SPREAD_PERCENT / 100);

    return k->def.period_ms - spread + arc4random_uniform(2 * spread + 1);
}

static void arm(struct check *k)
{
    bool due = (k->def.moments & (CHECK_PERIOD | CHECK_IDLE)) ||
               check_state_unsettled(&k->state, &k->def.rule);

    if (k->failed && !k->state.holds && start_waits_for(k))
        timer_arm(k->timer, clock_mono_ms() + START_AGAIN_MS);
    else if (k->checks->begun && due)
        timer_arm(k->timer, clock_mono_ms() + (k->ran ? next_period(k) : 0));
    else
        timer_stop(k->timer);
}

static void say_change(const struct check *k, bool held, bool had_failed)
{
    if (k->state.holds && !held)
        log_warn("a health check keeps this node from jobs",
                 LOG_STR("check", k->def.name), LOG_STR("text", k->words.text));
    else if (!k->state.holds && held)
        log_info("a health check lets this node go again", LOG_STR("check", k->def.name));
    else if (k->failed && !had_failed && !held)
        log_info("a health check has failed, not yet often enough to hold the node",
                 LOG_STR("check", k->def.name), LOG_STR("text", k->words.text));
}

/* A run has ended, or could not begin. */
static void take_result(struct check *k, bool failed, const struct check_words *words)
{
    struct checks *c = k->checks;
    struct check_rule rule = k->def.rule;
    bool held = k->state.holds, had_failed = k->failed, news;

    k->running = false;
    k->ran = true;
    k->failed = failed;
    if (k->moments & CHECK_PROLOG)
        rule.fail_times = 1; /* a job is waiting */
    news = check_state_add(&k->state, &rule, failed, c->boot_id, clock_wall_ms());
    if (failed && !(held && check_same_words(k->words.text, words->text))) {
        k->words = *words;
        news = news || held;
    }
    say_change(k, held, had_failed);
    if (news)
        set_changed(c);
    keep(c);
    for (struct request *q = c->requests; q; q = q->next) {
        /* N of M is waited for at the start, when there is time. */
        if (q->moment != CHECK_START || !failed || k->state.holds)
            resolve(q, k, failed);
    }
    arm(k);
}

static void on_end(const struct child_end *end, void *userdata)
{
    struct check *k = userdata;
    struct check_words words = {""};
    bool failed = check_result(&k->def, end, &words);

    take_result(k, failed, &words);
}

/* Three lists in one, ended by NULL; the strings are borrowed. */
static const char **environment_for(const struct checks *c, const char *const *more,
                                    const char *own)
{
    const char *const *host =
        c->host.environment ? c->host.environment(c->host.userdata) : NULL;
    const char **all;
    size_t n = 2;

    for (const char *const *e = host; e && *e; e++)
        n++;
    for (const char *const *e = more; e && *e; e++)
        n++;
    all = mem_calloc(n, sizeof(const char *));
    n = 0;
    all[n++] = own;
    for (const char *const *e = host; e && *e; e++)
        all[n++] = *e;
    for (const char *const *e = more; e && *e; e++)
        all[n++] = *e;
    return all;
}

static void start_child(struct check *k, const char *const *setenv)
{
    struct checks *c = k->checks;
    _cleanup_(mem_freep) char *own = mem_printf("TIDEGATE_CHECK=%s", k->def.name);
    _cleanup_(mem_freep) const char **environment = environment_for(c, setenv, own);
    struct child_spec spec = {
        .argv = (const char *const *)k->def.command,
        .setenv = environment,
        .capture = CAPTURE_MAX,
        .deadline_ms = k->def.deadline_ms,
        .on_end = on_end,
        .userdata = k,
    };
    struct err err;

    if (child_start(c->children, &spec, &k->pid, &err) < 0) {
        struct check_words words = check_not_started(&k->def, err.text);

        take_result(k, true, &words);
        return;
    }
    k->running = true;
}

static void start_run(struct check *k, unsigned moment, const char *const *setenv)
{
    if (k->running) {
        k->moments |= moment; /* its result is good for both */
        return;
    }
    timer_stop(k->timer);
    k->moments = moment;
    if (k->pid && child_exists(k->checks->children, k->pid)) {
        struct check_words words = check_still_hangs(&k->def);

        take_result(k, true, &words); /* a second one would hang as well */
        return;
    }
    start_child(k, setenv);
}

static bool may_run_now(const struct check *k)
{
    const struct checks_host *h = &k->checks->host;

    return !(k->def.moments & CHECK_IDLE) || (k->def.moments & CHECK_PERIOD) ||
           !h->idle || h->idle(h->userdata);
}

static int on_timer(sd_event_source *s, uint64_t usec, void *userdata)
{
    struct check *k = userdata;
    unsigned moment = start_waits_for(k) ? CHECK_START : CHECK_PERIOD;

    (void)s;
    (void)usec;
    if (moment == CHECK_START || may_run_now(k))
        start_run(k, moment, NULL);
    else
        timer_arm(k->timer, clock_mono_ms() + next_period(k));
    return 0;
}

void checks_run(struct checks *c, enum check_moment moment, const char *const *setenv,
                void (*on_done)(const struct check_fact *failed, size_t n,
                                void *userdata),
                void *userdata)
{
    struct request *q = mem_zalloc(sizeof(*q)), **at = &c->requests;

    while (*at)
        at = &(*at)->next;
    *at = q;
    *q = (struct request){.moment = moment, .on_done = on_done, .userdata = userdata};
    q->waits = mem_calloc(c->n, sizeof(struct check *));
    for (size_t i = 0; i < c->n; i++) {
        if (c->items[i]->def.moments & moment)
            q->waits[q->n_waits++] = c->items[i];
    }
    wake_later(c);
    for (size_t i = 0; i < c->n; i++) {
        if (c->items[i]->def.moments & moment)
            start_run(c->items[i], moment, setenv);
    }
}

void checks_run_now(struct checks *c, const char *name)
{
    for (size_t i = 0; i < c->n; i++) {
        struct check *k = c->items[i];

        if ((!name || strcmp(name, k->def.name) == 0) && may_run_now(k))
            start_run(k, CHECK_PERIOD, NULL);
    }
}

void checks_begin(struct checks *c)
{
    c->begun = true;
    for (size_t i = 0; i < c->n; i++) {
        if (!c->items[i]->running)
            arm(c->items[i]);
    }
}

/* ---- a person ------------------------------------------------------------------------ */

static struct check *find(const struct checks *c, const char *name)
{
    for (size_t i = 0; i < c->n; i++) {
        if (strcmp(c->items[i]->def.name, name) == 0)
            return c->items[i];
    }
    return NULL;
}

int checks_release(struct checks *c, const char *name, struct err *err)
{
    struct check *k = find(c, name);

    if (!k)
        return err_set(err, -ENOENT, "this node has no check of the name %.40s", name);
    if (!k->state.holds)
        return err_set(err, -EALREADY, "check %s holds nothing", name);
    if (k->def.rule.clear == CLEAR_BOOT)
        return err_set(
            err, -EPERM,
            "check %s is not for a person to release: it ends by a good run after "
            "another boot of the machine",
            name);
    if (!check_state_released(&k->state, &k->def.rule))
        return err_set(
            err, -EPERM,
            "check %s is not for a person to release: it ends by %u good runs, one "
            "after the other",
            name, k->def.rule.clear_times);
    log_info("a person has released a health check", LOG_STR("check", name));
    k->failed = false;
    set_changed(c);
    keep(c);
    return 0;
}

/* ---- making and ending --------------------------------------------------------------- */

static void check_free(struct check *k)
{
    if (!k)
        return;
    if (k->running) {
        child_kill(k->checks->children, k->pid, SIGKILL, true);
        child_forget(k->checks->children, k->pid);
    }
    (void)sd_event_source_disable_unref(k->timer);
    checkdef_clear(&k->def);
    free(k);
}

/* Takes `def` over. */
static int check_new(struct checks *c, struct checkdef *def, struct check **ret,
                     struct err *err)
{
    struct check *k = mem_zalloc(sizeof(*k));
    int r;

    k->checks = c;
    r = timer_new(c->event, on_timer, k, &k->timer, err);
    if (r < 0) {
        free(k);
        return r;
    }
    k->def = *def;
    *def = (struct checkdef){0};
    *ret = k;
    return 0;
}

static void read_boot_id(struct checks *c, const char *given)
{
    int fd;
    ssize_t n = -1;

    if (given) {
        (void)snprintf(c->boot_id, sizeof(c->boot_id), "%s", given);
        return;
    }
    fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        n = read(fd, c->boot_id, sizeof(c->boot_id) - 1);
        (void)close(fd);
    }
    c->boot_id[n > 0 ? n : 0] = '\0';
    c->boot_id[strcspn(c->boot_id, "\n")] = '\0';
    if (!*c->boot_id)
        (void)snprintf(c->boot_id, sizeof(c->boot_id), "unknown");
}

static void load(struct checks *c, const char *path)
{
    _cleanup_(checksave_freep) struct checksave *s = NULL;
    struct err err;
    int r = keeper_load(path, &s, &err);

    if (r < 0 && r != -ENOENT)
        log_warn("the kept state of the health checks counts as none",
                 LOG_STR("error", err.text));
    for (size_t i = 0; s && i < s->n; i++) {
        struct check *k = find(c, s->items[i].name);

        if (!k)
            continue; /* no such check any more: nobody could ever let it go */
        k->state = s->items[i].state;
        (void)snprintf(k->words.text, sizeof(k->words.text), "%s", s->items[i].text);
        if (k->state.holds)
            log_info("a health check held this node before its restart, and still does",
                     LOG_STR("check", k->def.name), LOG_STR("text", k->words.text));
    }
    build_failing(c);
}

static int fill(struct checks *c, struct checkconf *conf, const char *state_file,
                struct err *err)
{
    int r = sd_event_add_defer(c->event, &c->later, on_later, c);

    if (r < 0)
        return err_set(err, r, "cannot add to the event loop: %s", strerror(-r));
    (void)sd_event_source_set_enabled(c->later, SD_EVENT_OFF);
    c->items = mem_calloc(conf->n, sizeof(struct check *));
    for (; c->n < conf->n; c->n++) {
        r = check_new(c, &conf->items[c->n], &c->items[c->n], err);
        if (r < 0)
            return r;
    }
    if (!state_file)
        return 0;
    load(c, state_file);
    return keeper_new(c->event, state_file, &c->keeper, err);
}

int checks_new(sd_event *event, struct children *children, struct checkconf *conf,
               const struct checks_host *host, struct checks **ret, struct err *err)
{
    struct checks *c = mem_zalloc(sizeof(*c));
    int r;

    c->event = event;
    c->children = children;
    c->host = *host;
    c->host.state_file = c->host.boot_id = NULL; /* borrowed for this call only */
    read_boot_id(c, host->boot_id);
    r = fill(c, conf, host->state_file, err);
    checkconf_free(conf);
    if (r < 0) {
        checks_free(c);
        return r;
    }
    *ret = c;
    return 0;
}

void checks_free(struct checks *c)
{
    if (!c)
        return;
    keeper_free(c->keeper);
    for (size_t i = 0; i < c->n; i++)
        check_free(c->items[i]);
    free(c->items);
    while (c->requests) {
        struct request *q = c->requests;

        c->requests = q->next;
        request_free(q);
    }
    facts_free(c->failing, c->n_failing);
    (void)sd_event_source_disable_unref(c->later);
    free(c);
}

/* ---- another configuration ----------------------------------------------------------- */

static struct check *take_old(struct checks *c, const char *name)
{
    for (size_t i = 0; i < c->n; i++) {
        struct check *k = c->items[i];

        if (k && strcmp(k->def.name, name) == 0) {
            c->items[i] = NULL;
            return k;
        }
    }
    return NULL;
}

static void drop_check(struct check *k)
{
    if (!k)
        return;
    for (struct request *q = k->checks->requests; q; q = q->next)
        resolve(q, k, false);
    check_free(k);
}

void checks_replace(struct checks *c, struct checkconf *conf)
{
    struct check **items = mem_calloc(conf->n, sizeof(struct check *));
    size_t n = 0;

    for (size_t i = 0; i < conf->n; i++) {
        struct checkdef *def = &conf->items[i];
        struct check *k = take_old(c, def->name);
        struct err err;

        if (k) {
            checkdef_clear(&k->def);
            k->def = *def;
            *def = (struct checkdef){0};
        } else if (check_new(c, def, &k, &err) < 0) {
            log_error("a new health check cannot be run", LOG_STR("check", def->name),
                      LOG_STR("error", err.text));
            continue;
        }
        items[n++] = k;
    }
    for (size_t i = 0; i < c->n; i++)
        drop_check(c->items[i]);
    free(c->items);
    c->items = items;
    c->n = n;
    checkconf_free(conf);
    set_changed(c);
    keep(c);
    for (size_t i = 0; i < n; i++) {
        if (!items[i]->running)
            arm(items[i]);
    }
}
