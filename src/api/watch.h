/* SPDX-License-Identifier: Apache-2.0 */
/* watch.h - a thread that answers for a rank while its other threads are stuck: it writes the
 * snapshot on SIGUSR1 (HOROVOD_POSTMORTEM_DIR), tells horovodrun's agent what the rank is doing,
 * and takes from it how other ranks ended (HOROVOD_STATUS_SOCKET, wire/ask.h).
 *
 * It sleeps until one of them happens, so it costs an op nothing. It reads the engine with the
 * token or, if that is not released within 100 ms, what can be read without. A disk that does not
 * answer stops this thread only: watch_stop() then leaves it behind. Thread: one of its own. Owner:
 * struct world.  Start reading at watch_start(). */
#ifndef HVD_API_WATCH_H
#define HVD_API_WATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct world;

/* Only if the settings ask for it. A failure costs a diagnosis, not the job. */
void watch_start(struct world *world);
void watch_stop(struct world *world); /* within 1 s */
/* How that rank ended, as the agent has reported or reports within timeout_ns: "was killed by
 * signal 9 (SIGKILL)". false: no report. */
bool watch_end_of(struct world *world, int32_t rank, int64_t timeout_ns, char *ret, size_t bytes);

#endif
