// SPDX-License-Identifier: GPL-2.0-or-later
/* What a run of a check comes to, as a sentence. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include "io/checks_priv.h"

#define COMMAND_MAX 80 /* bytes of it in a sentence */

/* Printable ASCII; what is too long ends in "...". */
static struct check_words words_of(const char *text, size_t size)
{
    struct check_words w;
    size_t n = 0;

    for (size_t i = 0; i < size; i++) {
        unsigned char c = (unsigned char)text[i];

        if (c >= 0x80 && c < 0xc0)
            continue; /* goes on with a character that already has its '?' */
        if (n == CHECK_TEXT_MAX) {
            memcpy(w.text + n - 3, "...", 3);
            break;
        }
        w.text[n++] = c == '\t' ? ' ' : c < ' ' || c > '~' ? '?' : (char)c;
    }
    w.text[n] = '\0';
    return w;
}

/* The first line that is not blank. */
static bool first_line(const char *output, struct check_words *ret)
{
    const char *end;

    output += strspn(output, " \t\r\n");
    end = output + strcspn(output, "\r\n");
    while (end > output && (end[-1] == ' ' || end[-1] == '\t'))
        end--;
    *ret = words_of(output, (size_t)(end - output));
    return end > output;
}

/* As a person would type it, cut. */
static struct check_words command_of(const struct checkdef *d)
{
    char line[COMMAND_MAX + 1] = "";
    size_t n = 0;

    for (char **arg = d->command; *arg && n < sizeof(line) - 1; arg++) {
        int more = snprintf(line + n, sizeof(line) - n, "%s%s", n ? " " : "", *arg);

        n += more > 0 ? (size_t)more : 0;
    }
    if (n >= sizeof(line))
        memcpy(line + sizeof(line) - 4, "...", 4);
    return words_of(line, strlen(line));
}

_printf_(1, 2) static struct check_words say(const char *fmt, ...)
{
    char line[2 * CHECK_TEXT_MAX];
    va_list args;

    va_start(args, fmt);
    (void)vsnprintf(line, sizeof(line), fmt, args);
    va_end(args);
    return words_of(line, strlen(line));
}

struct check_words check_not_started(const struct checkdef *d, const char *why)
{
    return say(
        "check %s: %s; correct its command, or put the program where it is expected",
        d->name, why);
}

struct check_words check_still_hangs(const struct checkdef *d)
{
    return say(
        "check %s does not answer: killed after %lld s, it hangs in the kernel; look in "
        "dmesg for the disk or mount that '%s' uses",
        d->name, (long long)(d->deadline_ms / 1000), command_of(d).text);
}

bool check_result(const struct checkdef *d, const struct child_end *end,
                  struct check_words *ret)
{
    if (end->stuck) {
        *ret = check_still_hangs(d);
    } else if (end->timed_out) {
        *ret = say("check %s has not ended within %lld s and was killed; run '%s' on the "
                   "node to "
                   "see what it waits for",
                   d->name, (long long)(d->deadline_ms / 1000), command_of(d).text);
    } else if (WIFSIGNALED(end->status)) {
        *ret = say("check %s crashed by signal %d (%s), expected an exit status; run "
                   "'%s' on the "
                   "node to see why",
                   d->name, WTERMSIG(end->status), strsignal(WTERMSIG(end->status)),
                   command_of(d).text);
    } else if (WEXITSTATUS(end->status) != 0 && !first_line(end->output, ret)) {
        *ret = say("check %s failed with status %d and said nothing, expected a line; "
                   "run '%s' on "
                   "the node to see why",
                   d->name, WEXITSTATUS(end->status), command_of(d).text);
    }
    return end->stuck || end->status != 0;
}

static bool is_digit(char c)
{
    return (c >= '0' && c <= '9') || c == '.';
}

bool check_same_words(const char *a, const char *b)
{
    for (;;) {
        bool numbers = is_digit(*a) && is_digit(*b);

        while (numbers && is_digit(*a))
            a++;
        while (numbers && is_digit(*b))
            b++;
        if (*a != *b)
            return false;
        if (!*a)
            return true;
        a++;
        b++;
    }
}
