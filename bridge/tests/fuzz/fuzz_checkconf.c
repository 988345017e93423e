// SPDX-License-Identifier: GPL-2.0-or-later
/* Any text as checks.json and as the file of kept states: what is accepted lies within its bounds, and
 * a state reads the same after it was written. */
#include <stdint.h>
#include <string.h>

#include "codec/checkconf.h"
#include "codec/checksave.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void expect(bool holds)
{
    if (!holds)
        abort();
}

static void try_conf(const char *text, size_t size)
{
    struct checkconf *c;
    struct err err;

    if (checkconf_parse(text, size, &c, &err) < 0) {
        expect(memchr(err.text, '\0', sizeof(err.text)) != NULL);
        return;
    }
    expect(c->n <= CHECKCONF_CHECKS_MAX);
    for (size_t i = 0; i < c->n; i++) {
        const struct checkdef *d = &c->items[i];
        const struct check_rule *r = &d->rule;

        expect(*d->name && strlen(d->name) <= CHECKCONF_NAME_MAX && *d->command[0]);
        expect(d->moments > 0 && d->moments < 32);
        expect(d->period_ms >= 1000 && d->period_ms <= CHECKCONF_PERIOD_MAX * 1000);
        expect(d->deadline_ms >= 1000 && d->deadline_ms <= CHECKCONF_DEADLINE_MAX * 1000);
        expect(r->fail_times >= 1 && r->fail_times <= r->fail_of);
        expect(r->fail_of <= CHECK_RUNS_MAX && r->clear_times <= CHECK_RUNS_MAX);
        expect(r->clear != CLEAR_RUNS || r->clear_times >= 1);
    }
    checkconf_free(c);
}

static void try_save(const char *text, size_t size)
{
    struct checksave *s, *again;
    struct buf b = BUF_INIT(CHECKSAVE_MAX), b2 = BUF_INIT(CHECKSAVE_MAX);

    if (checksave_parse(text, size, &s, NULL) < 0)
        return;
    checksave_render(s, &b);
    expect(checksave_parse(b.data, b.len, &again, NULL) == 0 && again->n == s->n);
    checksave_render(again, &b2);
    expect(strcmp(b.data, b2.data) == 0);
    checksave_free(s);
    checksave_free(again);
    buf_free(&b);
    buf_free(&b2);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    /* A copy with no byte behind it, so that reading past the end is seen. */
    char *text = malloc(size ? size : 1);

    if (!text)
        return 0;
    memcpy(text, data, size);
    try_conf(text, size);
    try_save(text, size);
    free(text);
    return 0;
}
