/* SPDX-License-Identifier: Apache-2.0 */
/* flight.h - the ring of last events of a rank, always on: what later tools read after a hang or a
 * crash.
 *
 * Thread: token holder writes; a dump may read at any time (events may then be torn, which a reader
 * sees by the sequence number).  Start reading at flight_note(). */
#ifndef HVD_ENGINE_FLIGHT_H
#define HVD_ENGINE_FLIGHT_H

#include <stdint.h>

#include "base/os.h"

#define FLIGHT_EVENTS 4096u

enum flight_kind {
    FLIGHT_SUBMIT = 1,
    FLIGHT_ANNOUNCE,
    FLIGHT_BATCH,
    FLIGHT_DONE,
    FLIGHT_ERROR,
    FLIGHT_PLAN_BEGIN,
    FLIGHT_PLAN_BREAK,
    FLIGHT_PEER_DOWN,
    FLIGHT_SHUTDOWN
};

struct flight_event {
    uint64_t sequence;
    int64_t time_ns;
    uint16_t kind, set;
    int32_t value;
    char name[40]; /* end of the op's name */
};

struct flight {
    uint64_t next;
    struct flight_event events[FLIGHT_EVENTS];
};

void flight_note(struct flight *flight, int64_t now_ns, enum flight_kind kind, int32_t set,
                 int32_t value, const char *name);
/* Oldest first, as text lines into `fd`. */
void flight_dump(const struct flight *flight, const struct os *os, int fd);

#endif
