/* SPDX-License-Identifier: Apache-2.0 */
/* status.h - horovodrun --status: what a running job is doing, asked from another terminal.
 *
 * A launcher listens on a Unix socket in a folder that only its user can enter: FOLDER/job-PID. A
 * client sends one byte, STATUS_LINE or STATUS_STORY, and gets text until the connection closes.
 * For the story the launcher asks its agents as for a stall (MESSAGE_LOOK), and they ask the ranks
 * (wire/ask.h). The launcher never waits for any of them: clients, their time and their number are
 * bounded, and a client of another user is refused.
 * Thread: the launcher's loop; the client is a process of its own.  Owner: struct job.
 * Start reading at status_event() in status.c, and at status_run() in status_client.c. */
#ifndef HVD_LAUNCHER_STATUS_H
#define HVD_LAUNCHER_STATUS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/os.h"
#include "mem.h"

#define STATUS_LINE     'l'
#define STATUS_STORY    's'
#define STATUS_PREFIX   "job-"
#define STATUS_TEXT_MAX (4u << 20)         /* bytes of an answer */
#define STATUS_ASKED    0x80000000u        /* marks the number of our questions to agents */
#define STATUS_WAIT_NS  (3 * 1000000000LL) /* for the agents */

struct host_run;
struct job;
struct reader;

/* The folder of the sockets, made if need be; NULL: there is none that only we can enter. */
char *status_folder(struct mem *m, const struct os *os);

/* ---- the launcher ---- */
void status_open(struct job *job); /* a failure costs --status, not the job */
void status_close(struct job *job);
void status_event(struct job *job, int64_t now_ns); /* something may have happened on a socket */
void status_tick(struct job *job, int64_t now_ns);
int64_t status_next_ns(const struct job *job); /* INT64_MAX: nothing is waited for */
/* LOOKED. False: not an answer to a question of ours, and nothing was read. */
bool status_answer(struct job *job, const struct host_run *run, struct reader *r);

/* ---- the client: the exit code ---- */
int status_run(struct mem *m, const struct os *os, char **command);

#endif
