// SPDX-License-Identifier: GPL-2.0-or-later
/* tidegated --apply: brings our own CustomResourceDefinition up to date when the chart is upgraded
 * (helm itself installs what lies in crds/ once and never touches it again). */
#include <cjson/cJSON.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "app/tidegated.h"
#include "base/buf.h"
#include "base/log.h"

#define FILE_CAP   1048576 /* etcd takes no larger object */
#define TIMEOUT_MS 30000
#define OUR_CRD    "pools.tidegate.dev"

struct apply {
    sd_event *event;
    struct err *err;
    int code;
};

static int read_file(const char *file, struct buf *b, struct err *err)
{
    FILE *f = fopen(file, "re");
    char chunk[4096];
    size_t n;
    int r = 0;

    if (!f)
        return err_set(err, -errno, "%s: %s", file, strerror(errno));
    do {
        n = fread(chunk, 1, sizeof(chunk), f);
        r = buf_add(b, chunk, n);
    } while (r == 0 && n == sizeof(chunk));
    if (r < 0)
        r = err_set(err, r, "%s is larger than the %d bytes that an object may have",
                    file, FILE_CAP);
    else if (ferror(f))
        r = err_set(err, -EIO, "%s cannot be read", file);
    (void)fclose(f);
    return r;
}

static int check_object(const char *file, const char *text, struct err *err)
{
    cJSON *o = cJSON_Parse(text);
    const char *kind = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(o, "kind"));
    const cJSON *meta = cJSON_GetObjectItemCaseSensitive(o, "metadata");
    const char *name =
        cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(meta, "name"));
    bool ok = kind && name && strcmp(kind, "CustomResourceDefinition") == 0 &&
              strcmp(name, OUR_CRD) == 0;
    int r = ok ? 0
               : err_set(err, -EINVAL,
                         "%s holds kind \"%s\" name \"%s\", expected the "
                         "CustomResourceDefinition " OUR_CRD " as JSON",
                         file, kind ? kind : "", name ? name : "");

    cJSON_Delete(o);
    return r;
}

static void on_done(const struct kube_result *result, void *userdata)
{
    struct apply *a = userdata;

    if (result->code < 0 || result->status >= 300)
        a->code = err_set(a->err, result->code < 0 ? result->code : -EIO,
                          "the API server did not take " OUR_CRD ": %s", result->error);
    else
        log_info("applied", LOG_STR("name", OUR_CRD), LOG_NUM("status", result->status));
    (void)sd_event_exit(a->event, 0);
}

int apply_file(sd_event *event, struct kube *kube, const char *file, struct err *err)
{
    _cleanup_(buf_free) struct buf b = BUF_INIT(FILE_CAP);
    struct apply a = {.event = event, .err = err};
    struct kube_call call = {
        .method = "PATCH",
        .path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/" OUR_CRD
                "?fieldManager=tidegate&force=true",
        .content_type = "application/apply-patch+yaml", /* of which JSON is a part */
        .timeout_ms = TIMEOUT_MS,
        .on_done = on_done,
        .userdata = &a,
    };
    struct kube_request *request;
    int r = read_file(file, &b, err);

    if (r == 0)
        r = check_object(file, buf_str(&b), err);
    if (r < 0)
        return r;
    call.body = buf_str(&b);
    r = kube_start(kube, &call, &request, err);
    if (r < 0)
        return r;
    r = sd_event_loop(event);
    if (r < 0)
        return err_set(err, r, "event loop: %s", strerror(-r));
    return a.code;
}
