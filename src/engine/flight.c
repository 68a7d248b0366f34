/* SPDX-License-Identifier: Apache-2.0 */
/* flight.c - see flight.h.
 *
 * A sequence lock per event. Its words are atomics, so that reading concurrently with the writer is
 * not a data race; release and acquire on each of them keep them between the two values of the
 * sequence. */
#include "engine/flight.h"

#include <string.h>

#include "base/log.h"

#define LOG_EVENTS 64
#define HEAD_WORDS 2 /* before the name */

_Static_assert(sizeof(struct flight_event) == FLIGHT_WORDS * sizeof(uint64_t), "words of an event");

void flight_name_set(struct flight_name *ret, const char *text, size_t bytes)
{
    size_t keep = bytes < sizeof *ret ? bytes : sizeof *ret - 1;
    memset(ret, 0, sizeof *ret);
    memcpy(ret->words, text + (bytes - keep), keep);
}

void flight_note(struct flight *flight, int64_t now_ns, enum flight_kind kind, int32_t set,
                 int32_t value, const struct flight_name *name)
{
    uint64_t number = atomic_load_explicit(&flight->next, memory_order_relaxed);
    struct flight_slot *slot = &flight->slots[number % FLIGHT_EVENTS];
    const struct flight_event e = {.kind = (uint16_t)kind, .set = (uint16_t)set, .value = value};
    uint64_t words[HEAD_WORDS] = {(uint64_t)now_ns, 0};
    memcpy(&words[1], &e.kind, sizeof words[1]);
    atomic_store_explicit(&slot->sequence, 2 * number + 1, memory_order_relaxed);
    for (size_t i = 0; i < HEAD_WORDS; i++)
        atomic_store_explicit(&slot->words[i], words[i], memory_order_release);
    for (size_t i = 0; i < FLIGHT_WORDS - HEAD_WORDS; i++)
        atomic_store_explicit(&slot->words[HEAD_WORDS + i], name->words[i], memory_order_release);
    atomic_store_explicit(&slot->sequence, 2 * number + 2, memory_order_release);
    atomic_store_explicit(&flight->next, number + 1, memory_order_release);
}

void flight_note_text(struct flight *flight, int64_t now_ns, enum flight_kind kind, int32_t set,
                      int32_t value, const char *text)
{
    struct flight_name name;
    flight_name_set(&name, text, strlen(text));
    flight_note(flight, now_ns, kind, set, value, &name);
}

uint64_t flight_count(const struct flight *flight)
{
    return atomic_load_explicit(&flight->next, memory_order_acquire);
}

bool flight_read(const struct flight *flight, uint64_t number, struct flight_event *ret)
{
    const struct flight_slot *slot = &flight->slots[number % FLIGHT_EVENTS];
    uint64_t words[FLIGHT_WORDS];
    if (atomic_load_explicit(&slot->sequence, memory_order_acquire) != 2 * number + 2)
        return false;
    for (int i = 0; i < FLIGHT_WORDS; i++)
        words[i] = atomic_load_explicit(&slot->words[i], memory_order_acquire);
    memcpy(ret, words, sizeof words);
    return atomic_load_explicit(&slot->sequence, memory_order_relaxed) == 2 * number + 2;
}

const char *flight_kind_name(uint16_t kind)
{
    switch ((enum flight_kind)kind) {
    case FLIGHT_SUBMIT: return "submit";
    case FLIGHT_ANNOUNCE: return "announce";
    case FLIGHT_BATCH: return "batch";
    case FLIGHT_DONE: return "done";
    case FLIGHT_ERROR: return "error";
    case FLIGHT_PLAN_BEGIN: return "plan begin";
    case FLIGHT_PLAN_BREAK: return "plan break";
    case FLIGHT_PEER_DOWN: return "peer down";
    case FLIGHT_SHUTDOWN: return "shutdown";
    case FLIGHT_TUNE: return "tune";
    }
    return "?";
}

void flight_log(const struct flight *flight, const struct log *log, int64_t now_ns)
{
    uint64_t count = flight_count(flight);
    if (log == NULL || log->level > LOG_DEBUG)
        return;
    LOG_AT(log, LOG_DEBUG, "The last events:");
    for (uint64_t i = count > LOG_EVENTS ? count - LOG_EVENTS : 0; i < count; i++) {
        struct flight_event e;
        if (flight_read(flight, i, &e))
            LOG_AT(log, LOG_DEBUG, "  %llu: %.6f s ago, %s, process set %u, %d %s",
                   (unsigned long long)i, (double)(now_ns - e.time_ns) / 1e9,
                   flight_kind_name(e.kind), e.set, e.value, (const char *)e.name.words);
    }
}
