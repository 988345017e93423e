// SPDX-License-Identifier: GPL-2.0-or-later
/* Any Extra: never lost when foreign, and what is ours reads the same after it was
 * written. */
#include <stdint.h>
#include <string.h>

#include "codec/ledger.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = mem_strndup((const char *)data, size);
    enum extra_state state, state2;
    struct ledger l, l2;
    char *other, *other2, *again;

    ledger_parse(text, &state, &l, &other);
    if (state == EXTRA_FOREIGN) {
        if (strcmp(other, text) != 0 || !ledger_is_empty(&l))
            abort();
    } else {
        again = ledger_render(&l, other);
        ledger_parse(again, &state2, &l2, &other2);
        if (state2 != EXTRA_OURS || !ledger_equal(&l, &l2) ||
            strlen(again) > LEDGER_EXTRA_MAX ||
            strcmp(other ? other : "", other2 ? other2 : "") != 0)
            abort();
        free(again);
        free(other2);
    }
    free(other);
    free(text);
    return 0;
}
