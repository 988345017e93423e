/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The ledger as text in a Slurm node's Extra:
 *
 *     {"tidegate":{"v":1,"episode":"cordoned","at":1733050000000,"overruled":["not-ready"]},...}
 *
 * beside which there may be "checks" (of the episode health) and "overruled_checks", masks in hex,
 * "proved" and "failed", instances of an agent, and "line", a print in hex. A bridge that knows less
 * than that sees a foreign Extra: it goes by the reason alone, and leaves all as it is.
 *
 * Keys of others beside "tidegate" are kept. An Extra that is no JSON object was written by
 * somebody else and is never touched. Extra is capped at LEDGER_EXTRA_MAX.
 */
#ifndef TG_CODEC_LEDGER_H
#define TG_CODEC_LEDGER_H

#include "core/model.h"

#define LEDGER_EXTRA_MAX 8192 /* bytes; a longer Extra counts as foreign */

/*
 * Reads Extra (NULL or "": empty). Always fills in all three; a "tidegate" member that is not of
 * this form counts as foreign too, so that nothing of a newer version or of a person is lost.
 * ret_other: the caller frees.
 */
void ledger_parse(const char *extra, enum extra_state *ret_state,
                  struct ledger *ret_ledger, char **ret_other);

/* The text to write; `other` as ledger_parse() gave it. "" when nothing is left. The caller frees. */
char *ledger_render(const struct ledger *l, const char *other);

#endif
