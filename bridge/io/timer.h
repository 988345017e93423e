/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Timers of the event loop on CLOCK_BOOTTIME, in the ms of clock_mono_ms(). */
#ifndef TG_IO_TIMER_H
#define TG_IO_TIMER_H

#include <stdint.h>
#include <systemd/sd-event.h>

#include "base/err.h"

/* Made stopped; the caller ends it by sd_event_source_disable_unref(). */
int timer_new(sd_event *event, sd_event_time_handler_t handler, void *userdata,
              sd_event_source **ret, struct err *err) _must_use_;
/* Fires once at `at_ms`, at once when that has passed; replaces what it was set to. */
void timer_arm(sd_event_source *timer, int64_t at_ms);
void timer_stop(sd_event_source *timer);

#endif
