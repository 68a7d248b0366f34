/* SPDX-License-Identifier: Apache-2.0 */
/* status.h - horovodrun --status: what a running job is doing, asked from another terminal.
 *
 * A launcher listens on a Unix socket in a folder that only its user can enter: FOLDER/job-PID. A
 * client sends one byte, STATUS_LINE, STATUS_STORY or STATUS_TOP, and gets text until the
 * connection closes. For the last two the launcher asks all ranks (survey.h). It never waits for
 * any of them: clients, their time and their number are bounded, and a client of another user is
 * refused. Thread: the launcher's loop; the client is a process of its own.  Owner: struct job.
 * Start reading at status_event() in status.c, and at status_run() in status_client.c. */
#ifndef HVD_LAUNCHER_STATUS_H
#define HVD_LAUNCHER_STATUS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/os.h"
#include "mem.h"

#define STATUS_LINE     'l'
#define STATUS_STORY    's'
#define STATUS_TOP      't'
#define STATUS_PREFIX   "job-"
#define STATUS_TEXT_MAX (4u << 20) /* bytes of an answer */

struct job;

/* The folder of the sockets, made if need be; NULL: there is none that only we can enter. */
char *status_folder(struct mem *m, const struct os *os);

/* ---- the launcher ---- */
void status_open(struct job *job); /* a failure costs --status, not the job */
void status_close(struct job *job);
void status_event(struct job *job, int64_t now_ns); /* something may have happened on a socket */
void status_tick(struct job *job, int64_t now_ns);
/* "horovodrun 25400: 3 ranks on 1 host, running for 4 s: python train.py"; also for top.c. */
void status_say_line(struct job *job, struct bytes *out, int64_t now_ns);
/* Adds text. Nothing that a rank reports may command a terminal. */
void status_say(const struct job *job, struct bytes *out, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* ---- the client: the exit code ---- */
int status_run(struct mem *m, const struct os *os, char **command, bool is_watching);

#endif
