// SPDX-License-Identifier: GPL-2.0-or-later
/* tidegate-node check: finds the check, and what all of them need. */
#include "app/tidegate-node_check.h"

#include <errno.h>
#include <stdarg.h>
#include <string.h>
#include <sysexits.h>

#include "app/tidegate-node.h"
#include "codec/checksave.h"
#include "io/local.h"

#define RELEASE_MS 5000

static const struct {
    const char *name;
    check_function *run;
    const char *help;
} checks[] = {
    {"space", check_space,
     "PATH [--min-percent N] [--min-mib N] [--min-inode-percent N] [--writable]"},
    {"memory", check_memory, "[--min-available-percent N]"},
    {"mount", check_mount, "PATH [--type TYPE] [--source SOURCE]"},
    {"clock", check_clock, "[--max-ms N]"},
    {"munge", check_munge, ""},
    {"leftovers", check_leftovers, "[--min-uid N] [--max-zombies N] [--kill]"},
    {"ecc", check_ecc, "[--max-uncorrected N] [--max-corrected N] [--max-mce N]"},
    {"link", check_link, "NAME[:PORT]... [--min-gbit N]"},
    {"gpu", check_gpu, "[--count N] [--ignore-xids N,N...]"},
};

/* ---- what checks share ------------------------------------------------------------- */

static int print_line(int status, const char *fmt, va_list args)
{
    char line[CHECK_TEXT_MAX + 1];
    int n = vsnprintf(line, sizeof(line), fmt, args);

    if (n >= (int)sizeof(line))
        memcpy(line + sizeof(line) - 4, "...", 4);
    (void)puts(line);
    return status;
}

int check_failed(const char *fmt, ...)
{
    va_list args;
    int r;

    va_start(args, fmt);
    r = print_line(1, fmt, args);
    va_end(args);
    return r;
}

int check_good(const char *fmt, ...)
{
    va_list args;
    int r;

    va_start(args, fmt);
    r = print_line(0, fmt, args);
    va_end(args);
    return r;
}

char *check_path(const struct check_call *c, const char *fmt, ...)
{
    char path[4096];
    va_list args;

    va_start(args, fmt);
    (void)vsnprintf(path, sizeof(path), fmt, args);
    va_end(args);
    return mem_printf("%s%s", c->root, path);
}

char *check_read_line(const char *path)
{
    FILE *f = fopen(path, "re");
    char line[256], *got;

    if (!f)
        return NULL;
    got = fgets(line, sizeof(line), f);
    (void)fclose(f);
    if (!got)
        return NULL;
    line[strcspn(line, "\n")] = '\0';
    return mem_strdup(line);
}

/* Whole and not negative; what stands behind it goes to *ret_end. */
static bool read_number(const char *text, int64_t *ret, const char **ret_end)
{
    char *end;
    long long n;

    if (*text < '0' || *text > '9')
        return false;
    errno = 0;
    n = strtoll(text, &end, 10);
    *ret = n;
    *ret_end = end;
    return errno == 0;
}

int64_t check_read_number(const char *path)
{
    _cleanup_(mem_freep) char *line = check_read_line(path);
    const char *end;
    int64_t n;

    return line && read_number(line, &n, &end) ? n : -1;
}

bool check_env_number(const char *name, int64_t *ret)
{
    const char *text = getenv(name), *end;
    bool minus = text && *text == '-';

    if (!text || !read_number(text + minus, ret, &end) || *end)
        return false;
    if (minus)
        *ret = -*ret;
    return true;
}

/* ---- options ----------------------------------------------------------------------- */

static int usage(const char *word, const char *expected)
{
    (void)fprintf(stderr,
                  TG_NODE_PROGRAM " check: '%s': expected %s; see " TG_NODE_PROGRAM
                                  " check --help\n",
                  word, expected);
    return EX_USAGE;
}

/* Takes the value at *i + 1 where the option has one. */
static int read_option(struct check_call *c, const struct check_option *o, int *i)
{
    const char *value = *i + 1 < c->argc ? c->argv[*i + 1] : NULL, *end;

    if (o->flag) {
        *o->flag = true;
        return 0;
    }
    if (!value)
        return usage(o->name, "a value behind it");
    (*i)++;
    if (o->text) {
        *o->text = value;
        return 0;
    }
    if (!read_number(value, o->number, &end) || *end)
        return usage(value, "a whole number");
    return 0;
}

int check_read_options(struct check_call *c, const struct check_option *options)
{
    const struct check_option root = {"--root", .text = &c->root};
    int r = 0;

    for (int i = 0; i < c->argc && r == 0; i++) {
        const struct check_option *o = options;

        if (strncmp(c->argv[i], "--", 2) != 0) {
            if (c->n_names == CHECK_NAMES_MAX)
                return usage(c->argv[i], "fewer words");
            c->names[c->n_names++] = c->argv[i];
            continue;
        }
        while (o->name && strcmp(o->name, c->argv[i]) != 0)
            o++;
        if (!o->name && strcmp(c->argv[i], root.name) == 0)
            o = &root;
        r = o->name ? read_option(c, o, &i)
                    : usage(c->argv[i], "an option that this check knows");
    }
    return r;
}

int check_expect_names(const struct check_call *c, size_t min, size_t max,
                       const char *what)
{
    if (c->n_names < min)
        return usage(c->n_names ? c->names[c->n_names - 1] : "", what);
    if (c->n_names > max)
        return usage(c->names[max], what);
    return 0;
}

int check_read_only_options(struct check_call *c, const struct check_option *options)
{
    int r = check_read_options(c, options);

    return r ? r : check_expect_names(c, 0, 0, "no further word");
}

/* ---- the verb ---------------------------------------------------------------------- */

/* By the agent, which keeps what the checks have found. */
static int release(const char *name, const char *socket)
{
    struct local_question q = {.what = LOCAL_RELEASE};
    struct local_reply reply;
    struct err err = {""};

    (void)snprintf(q.check, sizeof(q.check), "%s", name);
    if (local_ask(socket, &q, RELEASE_MS, &reply, &err) < 0) {
        (void)fprintf(stderr,
                      TG_NODE_PROGRAM
                      " check: check %s cannot be released: %s; run this in "
                      "the slurmd container, as root\n",
                      name, err.text);
        return EX_UNAVAILABLE;
    }
    if (!reply.yes)
        (void)fprintf(stderr, TG_NODE_PROGRAM " check: %s\n", reply.text);
    else
        (void)printf("check %s holds this node no more\n", name);
    return reply.yes ? EX_OK : 1;
}

static int print_help(void)
{
    (void)printf("usage: " TG_NODE_PROGRAM " check NAME [ARG]...\n\n");
    for (size_t i = 0; i < TG_LEN(checks); i++)
        (void)printf("  %-9s %s\n", checks[i].name, checks[i].help);
    (void)printf(
        "  --release NAME [SOCKET]  a person lets the node go in spite of a check of "
        "checks.json with \"clear\": \"person\"\n");
    return EX_OK;
}

int verb_check(int argc, char **argv)
{
    struct check_call call = {.argc = argc - 2, .argv = argv + 2, .root = ""};

    if (argc < 2)
        return usage("", "the name of a check");
    if (strcmp(argv[1], "--help") == 0)
        return print_help();
    if (strcmp(argv[1], "--release") == 0)
        return argc < 3 ? usage(argv[1], "the name of a check behind it")
                        : release(argv[2], argc > 3 ? argv[3] : LOCAL_SOCKET);
    for (size_t i = 0; i < TG_LEN(checks); i++) {
        if (strcmp(argv[1], checks[i].name) == 0)
            return checks[i].run(&call);
    }
    return usage(argv[1], "the name of a check");
}
