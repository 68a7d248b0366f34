/* SPDX-License-Identifier: Apache-2.0 */
/* flight.h - the recorder of recent events of a rank, always on: snapshots and the log show them
 * after a hang or a failure.
 *
 * Thread: the token holder writes; any thread may read at any time. Every event has a sequence
 * number that shows whether it is complete: a reader skips an event that is being written.
 * Start reading at flight_note(). */
#ifndef HVD_ENGINE_FLIGHT_H
#define HVD_ENGINE_FLIGHT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FLIGHT_EVENTS 4096u
#define FLIGHT_WORDS  7

struct log;

enum flight_kind {
    FLIGHT_SUBMIT = 1,
    FLIGHT_ANNOUNCE,
    FLIGHT_BATCH,
    FLIGHT_DONE,
    FLIGHT_ERROR,
    FLIGHT_PLAN_BEGIN,
    FLIGHT_PLAN_BREAK,
    FLIGHT_PEER_DOWN,
    FLIGHT_SHUTDOWN,
    FLIGHT_TUNE
};

/* The bytes of the end of a name, zero beyond it: made once per tensor, so that an event copies
 * whole words. */
struct flight_name {
    uint64_t words[FLIGHT_WORDS - 2];
};

struct flight_event {
    int64_t time_ns;
    uint16_t kind, set;
    int32_t value;
    struct flight_name name;
};

struct flight_slot {
    _Atomic uint64_t sequence; /* 2 n + 1: event n is being written; 2 n + 2: it is complete */
    _Atomic uint64_t words[FLIGHT_WORDS]; /* of a struct flight_event */
};

struct flight {
    _Atomic uint64_t next;
    struct flight_slot slots[FLIGHT_EVENTS];
};

void flight_name_set(struct flight_name *ret, const char *text, size_t bytes);
void flight_note(struct flight *flight, int64_t now_ns, enum flight_kind kind, int32_t set,
                 int32_t value, const struct flight_name *name);
/* The same for events that are rare. */
void flight_note_text(struct flight *flight, int64_t now_ns, enum flight_kind kind, int32_t set,
                      int32_t value, const char *text);

/* ---- any thread ---- */
uint64_t flight_count(const struct flight *flight); /* events since the beginning */
/* Event `number`, counted from 0; false: it was overwritten, or is being written. */
bool flight_read(const struct flight *flight, uint64_t number, struct flight_event *ret);
const char *flight_kind_name(uint16_t kind); /* "batch" */
/* Logs the last events at debug level. */
void flight_log(const struct flight *flight, const struct log *log, int64_t now_ns);

#endif
