// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * tidegate-node prolog|epilog: for Prolog= and Epilog= of slurm.conf, by a file of one line,
 *
 *   #!/usr/bin/tidegate-node prolog
 *
 * since Slurm gives no arguments. They ask the agent, and go on to the site's own /etc/tidegate/prolog or
 * /etc/tidegate/epilog: a program, or a directory of programs that run in the order of their names.
 *
 * Without an agent a job starts as it would without Tidegate. An agent that says no, or is there but does not
 * answer, keeps the job away: the prolog then drains the node in Tidegate's words, before it fails, since
 * slurmctld would else write 'Prolog error', which looks like a person's word.
 */
#include "app/tidegate-node.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sysexits.h>
#include <unistd.h>

#include "base/log.h"
#include "core/text.h"
#include "io/children.h"
#include "io/local.h"

#define ANSWER_MS    10000
#define SCONTROL_MS  5000
#define SCONTROL_MAX 16384
#define PATH_DEFAULT                                                                     \
    "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin" /* slurmd gives none */

struct gate {
    enum local_what what;
    const char *name;
    const char *socket;
    char *site; /* where the site's own is looked for */
};

/* ---- Slurm ------------------------------------------------------------------------- */

struct outcome {
    sd_event *event;
    int status;
    char *output;
};

static void on_end(const struct child_end *end, void *userdata)
{
    struct outcome *o = userdata;

    o->status = end->status;
    o->output = mem_strdup(end->output);
    (void)sd_event_exit(o->event, 0);
}

/* Runs it to its end and gives back what it printed, or NULL and a sentence. */
static char *run_program(const char *const *argv, struct err *err)
{
    _cleanup_(children_freep) struct children *children = NULL;
    struct outcome o = {0};
    struct child_spec spec = {.argv = argv,
                              .capture = SCONTROL_MAX,
                              .deadline_ms = SCONTROL_MS,
                              .on_end = on_end,
                              .userdata = &o};
    int r = sd_event_new(&o.event);

    if (r < 0) {
        (void)err_set(err, r, "no event loop: %s", strerror(-r));
        return NULL;
    }
    r = children_new(o.event, &children, err);
    if (r == 0)
        r = child_start(children, &spec, NULL, err);
    if (r == 0)
        r = sd_event_loop(o.event);
    children_freep(&children);
    (void)sd_event_unref(o.event);
    if (r == 0 && o.status != 0)
        (void)err_set(err, -EIO, "%s: %.200s", argv[0], *o.output ? o.output : "failed");
    if (r < 0 || o.status != 0) {
        free(o.output);
        return NULL;
    }
    return o.output;
}

/* Nobody keeps jobs from it yet: whoever does, what is written there is their word. */
static bool is_free(const char *node)
{
    const char *const argv[] = {"scontrol", "-o", "show", "node", node, NULL};
    struct err err = {""};
    _cleanup_(mem_freep) char *line = run_program(argv, &err);
    char state[128] = "";

    if (!line) {
        log_warn("the node cannot be looked up in Slurm", LOG_STR("error", err.text));
        return false;
    }
    if (strstr(line, " State="))
        (void)sscanf(strstr(line, " State="), " State=%127s", state);
    return *state && !strstr(state, "DRAIN") && !strstr(state, "DOWN") &&
           !strstr(state, "FAIL");
}

static void drain(const char *sentence)
{
    const char *node = getenv("SLURMD_NODENAME");
    bool whole = strncmp(sentence, TEXT_PREFIX, strlen(TEXT_PREFIX)) == 0;
    _cleanup_(mem_freep) char *name = mem_printf("nodename=%s", node ? node : "");
    _cleanup_(mem_freep) char *reason =
        mem_printf("reason=%s%s", whole ? "" : TEXT_PREFIX "health: ", sentence);
    const char *const argv[] = {"scontrol", "update", name, "state=drain", reason, NULL};
    struct err err = {""};
    char *output;

    if (!node || !is_free(node))
        return;
    output = run_program(argv, &err);
    if (!output)
        log_warn("the node cannot be drained from here", LOG_STR("error", err.text));
    free(output);
}

/* ---- the agent --------------------------------------------------------------------- */

static uint32_t number_from(const char *name)
{
    const char *text = getenv(name);

    return text ? (uint32_t)strtoul(text, NULL, 10) : 0;
}

/* Returns whether the job may go on; else the sentence why not. */
static bool ask_agent(const struct gate *g, char *ret_text, size_t size)
{
    struct local_question q = {.what = g->what,
                               .job = number_from("SLURM_JOB_ID"),
                               .uid = number_from("SLURM_JOB_UID")};
    struct local_reply reply;
    struct err err = {""};
    int r = local_ask(g->socket, &q, ANSWER_MS, &reply, &err);

    if (r == -ENOENT || r == -ECONNREFUSED) {
        log_warn("there is no agent to ask, so the job goes on as without one",
                 LOG_STR("socket", g->socket), LOG_NUM("job", q.job));
        return true;
    }
    if (r < 0)
        (void)snprintf(ret_text, size,
                       "the agent of this node does not answer (%s), expected an answer "
                       "within %d s; "
                       "look at the log of its slurmd pod",
                       strerror(-r), ANSWER_MS / 1000);
    else if (!reply.yes)
        (void)snprintf(ret_text, size, "%s",
                       *reply.text ? reply.text : "the agent of this node says no");
    return r == 0 && reply.yes;
}

/* ---- the site's own ---------------------------------------------------------------- */

static int not_executable(const char *path)
{
    log_error("a site's program cannot be run: make it executable (defaultMode 0755 of a "
              "ConfigMap volume), or take it away",
              LOG_STR("path", path), LOG_STR("error", strerror(errno)));
    return EX_CONFIG;
}

static int run_one(const char *path)
{
    char *const argv[] = {(char *)path, NULL};
    int status = 0;
    pid_t pid;

    if (access(path, X_OK) < 0)
        return not_executable(path);
    pid = fork();
    if (pid == 0) {
        (void)execv(path, argv);
        (void)not_executable(path);
        _exit(EX_CONFIG);
    }
    if (pid < 0 || waitpid(pid, &status, 0) < 0) {
        log_error("a site's program cannot be run", LOG_STR("path", path),
                  LOG_STR("error", strerror(errno)));
        return EX_OSERR;
    }
    status = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    if (status)
        log_warn("a site's program has failed", LOG_STR("path", path),
                 LOG_NUM("status", status));
    return status;
}

static int is_visible(const struct dirent *e)
{
    return e->d_name[0] != '.'; /* and so none of a ConfigMap volume's own */
}

/* In a prolog the first that fails is the last; an epilog goes on, to clean up what can be. */
static int run_directory(const struct gate *g)
{
    struct dirent **list = NULL;
    int n = scandir(g->site, &list, is_visible, alphasort), status = 0;

    if (n < 0)
        return not_executable(g->site);
    for (int i = 0; i < n; i++) {
        _cleanup_(mem_freep) char *path = mem_printf("%s/%s", g->site, list[i]->d_name);

        if (status == 0 || g->what == LOCAL_EPILOG) {
            int s = run_one(path);

            status = status ? status : s;
        }
        free(list[i]);
    }
    free(list);
    return status;
}

static int run_site(const struct gate *g)
{
    struct stat st;

    if (stat(g->site, &st) < 0)
        return errno == ENOENT ? EX_OK : not_executable(g->site);
    return S_ISDIR(st.st_mode) ? run_directory(g) : run_one(g->site);
}

/* ---- the verbs --------------------------------------------------------------------- */

/* The one argument without '-' is the file that names us, see above. */
static int read_arguments(int argc, char **argv, struct gate *g)
{
    for (int i = 1; i < argc; i++) {
        bool more = i + 1 < argc;

        if (strcmp(argv[i], "--socket") == 0 && more) {
            g->socket = argv[++i];
        } else if (strcmp(argv[i], "--site") == 0 && more) {
            mem_set(&g->site, argv[++i]);
        } else if (argv[i][0] == '-') {
            (void)fprintf(stderr,
                          "usage: " TG_NODE_PROGRAM " %s [--socket PATH] [--site PATH]\n",
                          g->name);
            return EX_USAGE;
        }
    }
    if (!getenv("PATH"))
        (void)setenv("PATH", PATH_DEFAULT, 1);
    return EX_OK;
}

int verb_prolog(int argc, char **argv)
{
    struct gate g = {LOCAL_PROLOG, argv[0], LOCAL_SOCKET,
                     mem_strdup("/etc/tidegate/prolog")};
    char text[LOCAL_TEXT_MAX] = "";
    int status = read_arguments(argc, argv, &g);

    if (status == EX_OK && !ask_agent(&g, text, sizeof(text))) {
        log_warn("this job does not start here",
                 LOG_NUM("job", number_from("SLURM_JOB_ID")), LOG_STR("text", text));
        drain(text);
        status = 1;
    }
    if (status == EX_OK)
        status = run_site(&g);
    free(g.site);
    return status;
}

/* What the agent finds it tells the bridge, which drains: a job that has ended well is not to be blamed. */
int verb_epilog(int argc, char **argv)
{
    struct gate g = {LOCAL_EPILOG, argv[0], LOCAL_SOCKET,
                     mem_strdup("/etc/tidegate/epilog")};
    char text[LOCAL_TEXT_MAX] = "";
    int status = read_arguments(argc, argv, &g);

    if (status == EX_OK) {
        status = run_site(&g);
        if (!ask_agent(&g, text, sizeof(text)))
            log_warn("the node is not well after this job",
                     LOG_NUM("job", number_from("SLURM_JOB_ID")), LOG_STR("text", text));
    }
    free(g.site);
    return status;
}
