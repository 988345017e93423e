// SPDX-License-Identifier: GPL-2.0-or-later
/* How the command gets the bridge's answer: from the bridge itself, or through the API server. */
#include <curl/curl.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "app/tidegate.h"
#include "base/buf.h"
#include "codec/json.h"

#define ANSWER_MAX (64 << 20)
#define STDERR_MAX (64 << 10)
#define TIMEOUT_S  5

extern char **environ;

/* ---- the bridge itself ------------------------------------------------------------------------ */

static char *default_url(void)
{
    const char *url = getenv("TIDEGATE_BRIDGE_URL");
    const char *host = getenv("TIDEGATE_BRIDGE_SERVICE_HOST");
    const char *port = getenv("TIDEGATE_BRIDGE_SERVICE_PORT");

    if (url && *url)
        return mem_strdup(url);
    if (host && *host)
        return mem_printf(strchr(host, ':') ? "http://[%s]:%s" : "http://%s:%s", host,
                          port && *port ? port : "8080");
    return mem_strdup("http://127.0.0.1:8080");
}

static size_t on_body(char *data, size_t size, size_t n, void *userdata)
{
    return buf_add(userdata, data, size * n) == 0 ? size * n : 0;
}

static int set_options(CURL *curl, const char *url, struct buf *body)
{
    CURLcode c = curl_easy_setopt(curl, CURLOPT_URL, url);

    c = c ? c : curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
    c = c ? c
          : curl_easy_setopt(curl, CURLOPT_NOPROXY, "*"); /* it is inside the cluster */
    c = c ? c : curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    c = c ? c : curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT, (long)TIMEOUT_S);
    c = c ? c : curl_easy_setopt(curl, CURLOPT_LOW_SPEED_LIMIT, 1L);
    c = c ? c : curl_easy_setopt(curl, CURLOPT_LOW_SPEED_TIME, (long)TIMEOUT_S);
    c = c ? c : curl_easy_setopt(curl, CURLOPT_TIMEOUT, 6L * TIMEOUT_S);
    c = c ? c : curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, on_body);
    c = c ? c : curl_easy_setopt(curl, CURLOPT_WRITEDATA, body);
    return c ? -EINVAL : 0;
}

static int curl_failed(CURLcode c, const char *base, bool explicit, struct err *err)
{
    if (c == CURLE_WRITE_ERROR)
        return err_set(err, -EHOSTUNREACH, "%s sent more than %d MiB: that is no bridge",
                       base, ANSWER_MAX >> 20);
    return err_set(
        err, -EHOSTUNREACH, "the bridge cannot be reached at %s: %s%s", base,
        curl_easy_strerror(c),
        explicit ? ""
                 : " (elsewhere: --url URL or TIDEGATE_BRIDGE_URL; from outside the "
                   "cluster: --kubectl)");
}

/* What the bridge, or whoever answered, says in {"error": "..."}. */
static int refused(long status, const struct buf *body, const char *base, bool one,
                   struct err *err)
{
    _cleanup_(cJSON_Deletep) cJSON *answer = NULL;
    const char *text = NULL;
    int code = status == 404 && one             ? -ENOENT
               : status == 401 || status == 403 ? -EACCES
                                                : -EHOSTUNREACH;

    if (json_parse(buf_str(body), body->len, &answer, NULL) == 0 &&
        json_opt_str(answer, "error", &text, NULL) == 0 && text)
        return err_set(err, code, "%s", text);
    /* a 404 that is not the bridge's says nothing about a node */
    return err_set(err, code == -ENOENT ? -EHOSTUNREACH : code,
                   "%s answers with HTTP status %ld: is that the bridge?", base, status);
}

static int get_by_curl(const struct source *s, const char *node, struct buf *body,
                       struct err *err)
{
    _cleanup_(mem_freep) char *base = s->url ? mem_strdup(s->url) : default_url();
    _cleanup_(mem_freep) char *url = NULL;
    char *escaped;
    CURL *curl = curl_easy_init();
    long status = 0;
    int r;
    CURLcode c;

    if (!curl)
        abort();
    while (*base && base[strlen(base) - 1] == '/')
        base[strlen(base) - 1] = '\0';
    escaped = node ? curl_easy_escape(curl, node, 0) : NULL;
    url = mem_printf("%s/v1/nodes%s%s", base, escaped ? "/" : "", escaped ? escaped : "");
    curl_free(escaped);
    r = set_options(curl, url, body);
    if (r < 0) {
        r = err_set(err, -EHOSTUNREACH, "'%s' is no URL of a bridge", base);
    } else {
        c = curl_easy_perform(curl);
        (void)curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
        if (c)
            r = curl_failed(c, base, s->url, err);
        else if (status != 200)
            r = refused(status, body, base, node, err);
    }
    curl_easy_cleanup(curl);
    return r;
}

/* ---- through the API server ------------------------------------------------------------------- */

/* Reads both to their ends. */
static int read_both(int out, int errors, struct buf *ret_out, struct buf *ret_errors)
{
    struct pollfd fds[] = {{.fd = out, .events = POLLIN},
                           {.fd = errors, .events = POLLIN}};
    struct buf *bufs[] = {ret_out, ret_errors};
    char part[65536];

    while (fds[0].fd >= 0 || fds[1].fd >= 0) {
        if (poll(fds, TG_LEN(fds), -1) < 0 && errno != EINTR)
            return -errno;
        for (size_t i = 0; i < TG_LEN(fds); i++) {
            ssize_t n;

            if (fds[i].fd < 0 || !fds[i].revents)
                continue;
            n = read(fds[i].fd, part, sizeof(part));
            if (n <= 0)
                fds[i].fd = -1;
            else if (buf_add(bufs[i], part, (size_t)n) < 0 && i == 0)
                return -EMSGSIZE; /* of the messages the first ones are enough */
        }
    }
    return 0;
}

static int spawn(const char *const *args, int out, int errors, pid_t *ret)
{
    posix_spawn_file_actions_t actions;
    int r = posix_spawn_file_actions_init(&actions);

    if (r)
        return -r;
    r = posix_spawn_file_actions_adddup2(&actions, out, STDOUT_FILENO);
    if (!r)
        r = posix_spawn_file_actions_adddup2(&actions, errors, STDERR_FILENO);
    if (!r)
        r = posix_spawnp(ret, args[0], &actions, NULL, (char *const *)args, environ);
    (void)posix_spawn_file_actions_destroy(&actions);
    return -r;
}

/* Runs a program; its exit status, or -Exxx. */
static int run(const char *const *args, struct buf *ret_out, struct buf *ret_errors)
{
    int out[2], errors[2], status = 0, r;
    pid_t pid = 0;

    if (pipe2(out, O_CLOEXEC) < 0)
        return -errno;
    if (pipe2(errors, O_CLOEXEC) < 0) {
        r = -errno;
        (void)close(out[0]);
        (void)close(out[1]);
        return r;
    }
    r = spawn(args, out[1], errors[1], &pid);
    (void)close(out[1]);
    (void)close(errors[1]);
    if (r == 0) {
        r = read_both(out[0], errors[0], ret_out, ret_errors);
        if (r < 0)
            (void)kill(pid, SIGTERM);
        while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
            ;
    }
    (void)close(out[0]);
    (void)close(errors[0]);
    if (r < 0)
        return r;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -ECHILD;
}

static int kubectl_failed(const struct source *s, const char *said, struct err *err)
{
    if (strstr(said, "(Forbidden)"))
        return err_set(
            err, -EACCES,
            "no permission: reading the bridge takes 'get' on 'services/proxy' of "
            "%s:http in namespace %s (kubectl says: %s)",
            s->service, s->namespace, said);
    if (strstr(said, "Unauthorized"))
        return err_set(
            err, -EACCES,
            "no permission: the API server does not accept kubectl's credentials "
            "(kubectl says: %s)",
            said);
    if (strstr(said, "(NotFound)"))
        return err_set(
            err, -EHOSTUNREACH,
            "there is no Service %s in namespace %s; --service and --namespace name "
            "another (kubectl says: %s)",
            s->service, s->namespace, said);
    return err_set(err, -EHOSTUNREACH, "the bridge cannot be reached through kubectl: %s",
                   *said ? said : "it failed without a word");
}

/* Always asks for all nodes: a 404 about one node could not be told from one about the Service. */
static int get_by_kubectl(const struct source *s, struct buf *body, struct err *err)
{
    _cleanup_(buf_free) struct buf said = BUF_INIT(STDERR_MAX);
    _cleanup_(mem_freep) char *path = NULL;
    const char *args[16] = {"kubectl", "get", "--raw"};
    size_t n = 3;
    int r;

    if (strpbrk(s->namespace, "/?#%") || strpbrk(s->service, "/?#%"))
        return err_set(err, -EHOSTUNREACH,
                       "'%s' or '%s' is no name of a namespace or Service", s->namespace,
                       s->service);
    path = mem_printf("/api/v1/namespaces/%s/services/%s:http/proxy/v1/nodes",
                      s->namespace, s->service);
    args[n++] = path;
    args[n++] = "--request-timeout=5s";
    if (s->context) {
        args[n++] = "--context";
        args[n++] = s->context;
    }
    if (s->kubeconfig) {
        args[n++] = "--kubeconfig";
        args[n++] = s->kubeconfig;
    }
    r = run(args, body, &said);
    while (said.len && said.data[said.len - 1] == '\n')
        said.data[--said.len] = '\0';
    if (r == -ENOENT)
        return err_set(err, -EHOSTUNREACH, "kubectl is not installed, or not in PATH");
    if (r == -EMSGSIZE)
        return err_set(err, -EHOSTUNREACH,
                       "the answer has more than %d MiB: that is no bridge",
                       ANSWER_MAX >> 20);
    if (r < 0)
        return err_set(err, -EHOSTUNREACH, "cannot run kubectl: %s", strerror(-r));
    return r > 0 ? kubectl_failed(s, buf_str(&said), err) : 0;
}

/* Makes the answer for one node of the one for all. */
static int pick_node(cJSON *answer, const char *name, struct err *err)
{
    cJSON *nodes = cJSON_DetachItemFromObjectCaseSensitive(answer, "nodes");
    cJSON *node, *found = NULL;

    cJSON_ArrayForEach(node, nodes)
    {
        const char *is = NULL;

        if (json_get_str(node, "name", &is, NULL) == 0 && strcmp(is, name) == 0)
            found = node;
    }
    if (found)
        (void)cJSON_AddItemToObject(answer, "node",
                                    cJSON_DetachItemViaPointer(nodes, found));
    cJSON_Delete(nodes);
    return found ? 0 : err_set(err, -ENOENT, "there is no node '%s' in any pool", name);
}

/* ---- both ------------------------------------------------------------------------------------- */

static bool is_answer(const cJSON *answer, bool one)
{
    const cJSON *part;

    return json_get_obj(answer, "slurm", &part, NULL) == 0 &&
           (one ? json_get_obj(answer, "node", &part, NULL)
                : json_get_array(answer, "nodes", &part, NULL)) == 0;
}

int source_get(const struct source *s, const char *node, cJSON **ret, struct err *err)
{
    _cleanup_(buf_free) struct buf body = BUF_INIT(ANSWER_MAX);
    _cleanup_(cJSON_Deletep) cJSON *answer = NULL;
    struct err why = {0};
    int r;

    r = s->kubectl ? get_by_kubectl(s, &body, err) : get_by_curl(s, node, &body, err);
    if (r < 0)
        return r;
    r = json_parse(buf_str(&body), body.len, &answer, &why);
    if (r < 0)
        return err_set(err, -EHOSTUNREACH, "the answer is not the bridge's: %s",
                       why.text);
    if (!is_answer(answer, node && !s->kubectl))
        return err_set(err, -EHOSTUNREACH,
                       "the answer is not the bridge's: it lacks 'slurm', or its nodes");
    if (node && s->kubectl) {
        r = pick_node(answer, node, err);
        if (r < 0)
            return r;
    }
    *ret = answer;
    answer = NULL;
    return 0;
}
