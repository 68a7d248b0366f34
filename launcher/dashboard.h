/* SPDX-License-Identifier: Apache-2.0 */
/* dashboard.h - horovodrun --dashboard: one page about the running job, for a browser on this
 * machine.
 *
 * Listens on 127.0.0.1 only. Every address needs the token that is part of the URL that is printed;
 * it is random and new for each job. `/` is the page (dashboard.html), which has no other parts;
 * `/job.json` what it shows, from a survey of all ranks (survey.h) that the request starts. The
 * launcher never waits for a client: their number, time and bytes are bounded.
 * Thread: the launcher's loop.  Owner: struct job.  Start reading at dashboard_event(). */
#ifndef HVD_LAUNCHER_DASHBOARD_H
#define HVD_LAUNCHER_DASHBOARD_H

#include <stdint.h>

#include "base/status.h"

struct bytes;
struct job;
struct survey;

/* If --dashboard asks for it; HVD_ERR_*: it can't listen. */
hvd_status_t dashboard_open(struct job *job, struct error *error);
void dashboard_close(struct job *job);
void dashboard_event(struct job *job, int64_t now_ns); /* something may have happened on a socket */
void dashboard_tick(struct job *job, int64_t now_ns);

/* dashboard_json.c: what the page shows; docs/dashboard.md has the fields. */
void dashboard_json(struct job *job, const struct survey *s, struct bytes *out);

#endif
