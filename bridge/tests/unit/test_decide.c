// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The tables of bridge/tests/decide/: facts, and what is to be decided on them. One test per case.
 * After each the action is applied to a model of slurmctld, and deciding again must give nothing.
 * docs/testing.md tells how a case is written. Run at the top of the repository.
 */
#include <cjson/cJSON.h>
#include <glob.h>
#include <stdio.h>

#include "base/buf.h"
#include "core/causes.h"
#include "core/plan.h"
#include "core/text.h"
#include "tests/unit/sim.h"
#include "tests/unit/titled.h"

#define TABLES "bridge/tests/decide/*.json"
#define NOW    INT64_C(1733050000000)
#define NODE   "w1"

struct row {
    const cJSON *json;
    struct kube_node kube;
    struct kube_pod pod;
    struct kube_pool pools[3];
    size_t n_pools;
    struct sim sim;
    struct agent_fact agent;
    struct policy policy;
    struct node_facts facts;
    struct slurm_node slurm;
};

/* ---- reading a case --------------------------------------------------------------------------- */

/* A key that nobody reads is a case that tests less than it says. */
static void check_keys(const cJSON *o, const char *known)
{
    const cJSON *item;

    cJSON_ArrayForEach(item, o)
    {
        _cleanup_(mem_freep) char *padded = mem_printf(" %s ", item->string);

        if (!strstr(known, padded))
            fail_msg("unknown key \"%s\"; known are%s", item->string, known);
    }
}

static const cJSON *get(const cJSON *o, const char *key)
{
    return cJSON_GetObjectItemCaseSensitive(o, key);
}

static const char *get_str(const cJSON *o, const char *key, const char *otherwise)
{
    const cJSON *item = get(o, key);

    if (!item)
        return otherwise;
    if (cJSON_IsNull(item))
        return NULL;
    if (!cJSON_IsString(item))
        fail_msg("\"%s\" must be a string", key);
    return item->valuestring;
}

static bool get_bool(const cJSON *o, const char *key, bool otherwise)
{
    const cJSON *item = get(o, key);

    if (item && !cJSON_IsBool(item))
        fail_msg("\"%s\" must be true or false", key);
    return item ? cJSON_IsTrue(item) : otherwise;
}

/* Seconds in the case, ms here. */
static int64_t get_ms(const cJSON *o, const char *key, double otherwise)
{
    const cJSON *item = get(o, key);

    if (item && !cJSON_IsNumber(item))
        fail_msg("\"%s\" must be a number of seconds", key);
    return (int64_t)((item ? item->valuedouble : otherwise) * 1000);
}

static enum tri get_tri(const cJSON *o, const char *key, const char *otherwise)
{
    const char *s = get_str(o, key, otherwise);

    if (strcmp(s, "yes") != 0 && strcmp(s, "no") != 0 && strcmp(s, "unknown") != 0)
        fail_msg("\"%s\" must be yes, no or unknown, not \"%s\"", key, s);
    return *s == 'y' ? TRI_YES : *s == 'n' ? TRI_NO : TRI_UNKNOWN;
}

static void read_kube(struct row *r)
{
    const cJSON *k = get(r->json, "kube");

    const cJSON *label;

    check_keys(k, " ready ready_ago cordoned labels ");
    r->kube = (struct kube_node){
        .name = mem_strdup(NODE),
        .uid = mem_strdup("uid-1"),
        .ready = get_tri(k, "ready", "yes"),
        .ready_since = NOW - get_ms(k, "ready_ago", 3600),
        .unschedulable = get_bool(k, "cordoned", false),
    };
    cJSON_ArrayForEach(label, get(k, "labels"))
        labels_add(&r->kube.labels, label->string, label->valuestring);
    if (!k || !cJSON_IsNull(k))
        r->facts.kube = &r->kube;
}

static const struct kube_pool *read_pool(struct row *r, const char *key,
                                         const char *otherwise)
{
    const char *name = get_str(r->json, key, otherwise);
    const cJSON *label;
    struct kube_pool *p;

    for (size_t i = 0; name && i < r->n_pools; i++) {
        if (strcmp(r->pools[i].name, name) == 0)
            return &r->pools[i];
    }
    if (!name)
        return NULL;
    p = &r->pools[r->n_pools++];
    *p = (struct kube_pool){.name = mem_strdup(name),
                            .feature = mem_strdup(name),
                            .qualify = get_bool(r->json, "pool_qualify", false)};
    p->feature_labels = mem_calloc(8, sizeof(*p->feature_labels));
    cJSON_ArrayForEach(label, get(r->json, "feature_labels"))
        p->feature_labels[p->n_feature_labels++] = mem_strdup(label->valuestring);
    return p;
}

static void read_state(struct sim *s, const char *state)
{
    static const char *const bases[] = {"UNKNOWN",   "DOWN",  "IDLE",
                                        "ALLOCATED", "MIXED", "FUTURE"};
    _cleanup_(mem_freep) char *copy = mem_strdup(state);
    char *save = NULL;
    const char *word = strtok_r(copy, "+", &save);
    size_t base = 0;

    while (base < TG_LEN(bases) && strcmp(bases[base], word) != 0)
        base++;
    if (base == TG_LEN(bases))
        fail_msg("unknown state \"%s\"", word);
    s->base = (enum slurm_base)base;
    while ((word = strtok_r(NULL, "+", &save))) {
        if (strcmp(word, "DRAIN") == 0)
            s->drain = true;
        else if (strcmp(word, "FAIL") == 0)
            s->fail = true;
        else if (strcmp(word, "NOT_RESPONDING") == 0)
            s->not_responding = true;
        else if (strcmp(word, "INVALID_REG") == 0)
            s->invalid_reg = true;
        else if (strcmp(word, "REBOOT") == 0)
            s->rebooting = true;
        else
            fail_msg("unknown state flag \"%s\"", word);
    }
}

static uint32_t read_uid(const cJSON *s)
{
    const cJSON *uid = get(s, "uid");

    if (cJSON_IsNumber(uid))
        return (uint32_t)uid->valuedouble;
    /* who most often wrote such a text */
    if (!uid)
        return text_is_ours(get_str(s, "reason", NULL)) ? SIM_SLURM_UID : SIM_ROOT;
    return strcmp(uid->valuestring, "slurm") == 0 ? SIM_SLURM_UID : SIM_ROOT;
}

static uint64_t names_mask(const cJSON *list)
{
    const cJSON *item;
    uint64_t mask = 0;

    cJSON_ArrayForEach(item, list) mask |= check_bit(item->valuestring);
    return mask;
}

/* [sockets, cores of each, threads of each, MiB] */
static void read_line(const cJSON *o, uint32_t shape[3], uint64_t *memory)
{
    static const int otherwise[] = {1, 2, 2, 8000};
    const cJSON *list = get(o, "line");
    int n[4];

    for (int i = 0; i < 4; i++)
        n[i] = list ? cJSON_GetArrayItem(list, i)->valueint : otherwise[i];
    for (int i = 0; i < 3; i++)
        shape[i] = (uint32_t)n[i];
    *memory = (uint64_t)n[3];
}

static int one_of(const char *word, const char *const *words, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (strcmp(word, words[i]) == 0)
            return (int)i;
    }
    fail_msg("unknown word \"%s\"", word);
    return -1;
}

/* The checks are borrowed from the case; agent_fact_clear() is not for this one. */
static void read_agent(struct row *r)
{
    static const char *const phases[] = {"starting", "up", "stopping", "giving-up"};
    static const char *const states[] = {"off", "running", "waiting"};
    const cJSON *a = get(r->json, "agent"), *check;
    struct agent_fact *f = &r->agent;
    uint32_t shape[3];

    r->policy.agents = a || get_bool(r->json, "agents", false);
    if (!a || cJSON_IsNull(a))
        return;
    check_keys(a, " linked ago pod instance phase slurmd steps reported line features "
                  "checks ");
    read_line(a, shape, &f->line.memory_mib);
    f->line.boards = 1;
    f->line.sockets = shape[0];
    f->line.cores = shape[1];
    f->line.threads = shape[2];
    f->line.cpus = shape[0] * shape[1] * shape[2];
    f->line.features = (char *)get_str(a, "features", NULL);
    f->linked = get_tri(a, "linked", "yes");
    f->since = NOW - get_ms(a, "ago", 3600);
    f->pod_uid = (char *)get_str(a, "pod", "pod-1");
    f->instance = (char *)get_str(a, "instance", "start-1");
    f->phase = (enum agent_phase)one_of(get_str(a, "phase", "up"), phases, 4);
    f->slurmd = (enum slurmd_state)one_of(get_str(a, "slurmd", "running"), states, 3);
    f->steps = get(a, "steps") ? (uint32_t)get(a, "steps")->valueint : 0;
    f->reported = get_bool(a, "reported", true);
    f->checks = mem_calloc(8, sizeof(*f->checks));
    cJSON_ArrayForEach(check, get(a, "checks")) f->checks[f->n_checks++] =
        (struct check_fact){.name = check->string, .text = check->valuestring};
    r->facts.agent = f;
}

static void read_pod(struct row *r)
{
    static char name[] = "slurmd-1";
    const cJSON *p = get(r->json, "pod");

    check_keys(p, " uid ready terminating ");
    r->pod = (struct kube_pod){
        .name = name,
        .uid = (char *)get_str(p, "uid", "pod-1"),
        .ready = get_bool(p, "ready", true),
        .terminating = get_bool(p, "terminating", false),
    };
    if (p ? !cJSON_IsNull(p) : r->policy.agents)
        r->facts.pod = &r->pod;
}

static void read_qualify(struct row *r)
{
    static const char *const states[] = {"none", "reserved", "running", "passed",
                                         "failed"};
    const cJSON *q = get(r->json, "qualify");

    check_keys(q, " state instance text ");
    r->facts.qualify = (struct qualify_fact){
        .state = (enum qualify_state)one_of(get_str(q, "state", "none"), states, 5),
        .instance = get_str(q, "instance", q ? "start-1" : NULL),
        .text = get_str(q, "text", NULL),
    };
}

/* "episode" and "overruled" are short for an Extra with our ledger. */
static void read_extra(const struct row *r, struct sim *sim, const cJSON *s)
{
    struct ledger l = {.episode = cause_from_name(get_str(s, "episode", "none"))};
    const cJSON *item;

    l.episode_at = l.episode ? NOW - 60000 : 0;
    cJSON_ArrayForEach(item, get(s, "overruled")) l.overruled |=
        UINT32_C(1) << cause_from_name(item->valuestring);
    l.checks = names_mask(get(s, "checks"));
    l.overruled_checks = names_mask(get(s, "overruled_checks"));
    instance_copy(l.proved, get_str(s, "proved", NULL));
    instance_copy(l.failed, get_str(s, "failed", NULL));
    if (get_bool(s, "line_taken", false))
        l.line = line_print(&r->agent.line);
    sim->extra = ledger_render(&l, NULL);
    if (get(s, "extra"))
        mem_set(&sim->extra, get_str(s, "extra", NULL));
}

static void read_slurm(struct row *r)
{
    const cJSON *s = get(r->json, "slurm");

    uint32_t shape[3];

    check_keys(s,
               " state reason uid episode overruled extra checks overruled_checks proved "
               "failed line_taken line jobs features ");
    if (s && cJSON_IsNull(s))
        return;
    read_state(&r->sim, get_str(s, "state", "IDLE"));
    mem_set(&r->sim.reason, get_str(s, "reason", NULL));
    r->sim.reason_uid = read_uid(s);
    r->sim.reason_at = NOW - 60000;
    r->sim.registered = true;
    read_line(s, shape, &r->sim.memory_mib);
    r->sim.sockets = shape[0];
    r->sim.cores = shape[1];
    r->sim.threads = shape[2];
    r->sim.cpus = shape[0] * shape[1] * shape[2];
    r->sim.jobs = get(s, "jobs") ? (uint32_t)get(s, "jobs")->valueint : 0;
    mem_set(&r->sim.features, get_str(s, "features", NULL));
    read_extra(r, &r->sim, s);
    sim_look(&r->sim, NODE, &r->slurm);
    r->facts.slurm = &r->slurm;
}

static void read_row(struct row *r)
{
    const cJSON *probe = get(r->json, "slurmd");

    check_keys(
        r->json,
        " name kube slurm pool selected rival pool_qualify feature_labels pod agents "
        "agent slurmd kubelet kubelet_ago qualify want ");
    check_keys(probe, " answers ago ");
    r->facts.name = NODE;
    r->facts.slurm_uid = SIM_SLURM_UID;
    r->policy = POLICY_DEFAULT;
    read_agent(r);
    read_pod(r);
    read_qualify(r);
    r->facts.kubelet.renewed = get_tri(r->json, "kubelet", "unknown");
    r->facts.kubelet.since = NOW - get_ms(r->json, "kubelet_ago", 60);
    read_kube(r);
    read_slurm(r);
    r->facts.pool = read_pool(r, "pool", "hpc");
    if (r->facts.kube)
        r->facts.selected = read_pool(r, "selected", "hpc");
    r->facts.rival = read_pool(r, "rival", NULL);
    r->facts.probe.answers = get_tri(probe, "answers", "unknown");
    if (r->facts.probe.answers != TRI_UNKNOWN)
        r->facts.probe.since = NOW - get_ms(probe, "ago", 60);
}

static void clear_row(struct row *r)
{
    kube_node_clear(&r->kube);
    for (size_t i = 0; i < r->n_pools; i++)
        kube_pool_clear(&r->pools[i]);
    slurm_node_clear(&r->slurm);
    sim_clear(&r->sim);
    free(r->agent.checks);
}

/* ---- comparing -------------------------------------------------------------------------------- */

static const char *why_name(enum why w)
{
    static const char *const names[WHY_COUNT_] = {
        [WHY_HEALTHY] = "healthy",       [WHY_NOT_REGISTERED] = "not-registered",
        [WHY_NOT_OURS] = "not-ours",     [WHY_TWO_POOLS] = "two-pools",
        [WHY_CAUSE] = "cause",           [WHY_PERSON] = "person",
        [WHY_OVERRULED] = "overruled",   [WHY_HOLD_TIME] = "hold-time",
        [WHY_SILENT] = "silent",         [WHY_INVALID_REG] = "invalid-reg",
        [WHY_RESUMING] = "resuming",     [WHY_NOT_READY_YET] = "not-ready-yet",
        [WHY_NO_AGENT] = "no-agent",     [WHY_STARTING] = "starting",
        [WHY_QUALIFYING] = "qualifying", [WHY_NO_LEDGER] = "no-ledger",
    };

    return names[w] ? names[w] : "(no name in test_decide.c)";
}

static void same_str(const char *what, const char *is, const char *wanted)
{
    is = is ? is : "(none)";
    wanted = wanted ? wanted : "(none)";
    if (strcmp(is, wanted) != 0)
        fail_msg("%s is \"%s\", wanted \"%s\"", what, is, wanted);
}

static void same_bool(const char *what, bool is, bool wanted)
{
    same_str(what, is ? "true" : "false", wanted ? "true" : "false");
}

static char *overruled_names(uint32_t bits)
{
    char *text = mem_strdup("");

    for (enum cause c = CAUSE_NONE + 1; c < CAUSE_COUNT_; c++) {
        char *longer;

        if (!(bits & UINT32_C(1) << c))
            continue;
        longer = mem_printf("%s%s%s", text, *text ? "," : "", cause_name(c));
        free(text);
        text = longer;
    }
    return text;
}

static void check_verdict(const struct row *r, const struct verdict *v, const cJSON *want)
{
    _cleanup_(mem_freep) char *overruled = overruled_names(v->ledger.overruled);
    _cleanup_(mem_freep) char *why = text_why(&r->facts, v);
    _cleanup_(mem_freep) char *ends = text_ends(&r->facts, v);
    int64_t again =
        get(want, "look_again_in") ? NOW + get_ms(want, "look_again_in", 0) : 0;

    same_str("verb", verb_name(v->verb), get_str(want, "verb", "none"));
    same_str("cause", cause_name(v->cause), get_str(want, "cause", "none"));
    same_str("holder", holder_name(v->holder), get_str(want, "holder", "nobody"));
    same_str("why", why_name(v->why), get_str(want, "why", "healthy"));
    same_str("episode", cause_name(v->ledger.episode), get_str(want, "episode", "none"));
    same_str("overruled", overruled, get_str(want, "overruled", ""));
    same_bool("suspect", v->suspect, get_bool(want, "suspect", false));
    same_str("what is asked", v->ask == ASK_RESTART_SLURMD ? "restart-slurmd" : "none",
             get_str(want, "ask", "none"));
    same_bool("qualify", v->qualify, get_bool(want, "qualify", false));
    assert_int_equal(v->ledger.checks, names_mask(get(want, "checks")));
    assert_int_equal(v->ledger.overruled_checks,
                     names_mask(get(want, "overruled_checks")));
    if (get(want, "proved"))
        same_str("who is proved", v->ledger.proved, get_str(want, "proved", NULL));
    if (get(want, "failed"))
        same_str("who has failed", v->ledger.failed, get_str(want, "failed", NULL));
    assert_int_equal(v->look_again_at, again);
    if (get(want, "says"))
        same_str("the sentence", why, get_str(want, "says", NULL));
    if (get(want, "ends"))
        same_str("the end", ends, get_str(want, "ends", NULL));
}

/* Returns false when there is nothing to do. */
static bool apply(struct row *r, const struct verdict *v, struct plan *plan)
{
    plan_make(&r->facts, v, 1, plan);
    if (v->verb == VERB_NONE) {
        assert_int_equal(plan->n, 0);
        return false;
    }
    assert_int_equal(plan->n, 1);
    assert_int_equal(plan->actions[0].n, 1);
    assert_string_equal(plan->actions[0].names[0], NODE);
    assert_int_equal(sim_apply(&r->sim, &plan->actions[0], NOW), 0);
    slurm_node_clear(&r->slurm);
    if (r->sim.deleted)
        r->facts.slurm = NULL;
    else
        sim_look(&r->sim, NODE, &r->slurm);
    return true;
}

static void test_case(void **state)
{
    struct row r = {.json = *state};
    const cJSON *want = get(r.json, "want");
    struct plan plan;
    struct verdict v;
    const struct action *a;

    check_keys(want, " checks overruled_checks proved failed ask qualify features verb "
                     "cause holder why episode overruled suspect look_again_in reason "
                     "extra_after reason_after says ends ");
    read_row(&r);
    v = decide(&r.facts, &r.policy, NOW);
    check_verdict(&r, &v, want);
    if (apply(&r, &v, &plan)) {
        struct verdict again = decide(&r.facts, &r.policy, NOW);
        bool renew = v.verb == VERB_DRAIN && v.cause == CAUSE_LINE && !r.sim.jobs;

        same_str("the verb of the next round", verb_name(again.verb),
                 renew ? "delete" : "none");
    }
    a = plan.n ? &plan.actions[0] : &(const struct action){0};
    same_str("reason", a->reason, get_str(want, "reason", NULL));
    same_str("features", a->features, get_str(want, "features", NULL));
    if (get(want, "extra_after"))
        same_str("Extra afterwards", r.sim.extra, get_str(want, "extra_after", NULL));
    if (get(want, "reason_after"))
        same_str("the reason afterwards", r.sim.reason,
                 get_str(want, "reason_after", NULL));
    plan_clear(&plan);
    clear_row(&r);
}

/* ---- the tables ------------------------------------------------------------------------------- */

static cJSON *read_table(const char *path)
{
    struct buf text = BUF_INIT(1 << 20);
    char part[4096];
    size_t n;
    FILE *f = fopen(path, "re");
    cJSON *o;

    assert_non_null(f);
    while ((n = fread(part, 1, sizeof(part), f)) > 0)
        assert_int_equal(buf_add(&text, part, n), 0);
    (void)fclose(f);
    o = cJSON_ParseWithOpts(buf_str(&text), NULL, true);
    if (!o || !cJSON_IsArray(get(o, "cases")) || !get_str(o, "title", NULL)) {
        fprintf(stderr, "%s: no JSON object with \"title\" and \"cases\"\n", path);
        exit(1);
    }
    buf_free(&text);
    return o;
}

static void add_cases(const char *path, const cJSON *table, struct CMUnitTest **tests,
                      size_t *n)
{
    const char *base = strrchr(path, '/') + 1;
    const cJSON *row;

    cJSON_ArrayForEach(row, get(table, "cases"))
    {
        *tests = mem_resize(*tests, *n + 1, sizeof(**tests));
        (*tests)[(*n)++] = (struct CMUnitTest){
            .name = mem_printf("%.*s: %s: %s", (int)strcspn(base, "."), base,
                               get_str(table, "title", NULL),
                               get_str(row, "name", "(no name)")),
            .test_func = test_case,
            .initial_state = (void *)row,
        };
    }
}

int main(void)
{
    struct CMUnitTest *tests = NULL;
    size_t n = 0;
    cJSON *tables = cJSON_CreateArray();
    glob_t files;
    int failed;

    if (glob(TABLES, 0, NULL, &files) != 0) {
        fprintf(stderr, "no " TABLES " here; run this at the top of the repository\n");
        return 1;
    }
    for (size_t i = 0; i < files.gl_pathc; i++) {
        cJSON *table = read_table(files.gl_pathv[i]);

        (void)cJSON_AddItemToArray(tables, table);
        add_cases(files.gl_pathv[i], table, &tests, &n);
    }
    failed = _cmocka_run_group_tests("decide", tests, n, NULL, NULL);
    for (size_t i = 0; i < n; i++)
        free((char *)tests[i].name);
    free(tests);
    cJSON_Delete(tables);
    globfree(&files);
    return failed;
}
