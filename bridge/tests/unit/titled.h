/* SPDX-License-Identifier: GPL-2.0-or-later */
/* cmocka tests whose titles are sentences: tests/lint/promises finds promises and rows by them. */
#ifndef TG_TESTS_TITLED_H
#define TG_TESTS_TITLED_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define TITLED(title, function) {.name = (title), .test_func = (function)}

#endif
