// SPDX-License-Identifier: GPL-2.0-or-later
#include "io/timer.h"

#include <string.h>
#include <time.h>

#define ACCURACY_USEC 1000 /* 0 would mean a quarter of a second */

int timer_new(sd_event *event, sd_event_time_handler_t handler, void *userdata,
              sd_event_source **ret, struct err *err)
{
    sd_event_source *s = NULL;
    int r =
        sd_event_add_time(event, &s, CLOCK_BOOTTIME, 0, ACCURACY_USEC, handler, userdata);

    if (r < 0)
        return err_set(err, r, "cannot make a timer: %s", strerror(-r));
    timer_stop(s);
    *ret = s;
    return 0;
}

/* These two fail only when the loop has ended, and then nothing is waited for any more.
 */

void timer_arm(sd_event_source *timer, int64_t at_ms)
{
    (void)sd_event_source_set_time(timer, at_ms > 0 ? (uint64_t)at_ms * 1000 : 0);
    (void)sd_event_source_set_enabled(timer, SD_EVENT_ONESHOT);
}

void timer_stop(sd_event_source *timer)
{
    (void)sd_event_source_set_enabled(timer, SD_EVENT_OFF);
}
