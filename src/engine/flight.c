/* SPDX-License-Identifier: Apache-2.0 */
/* flight.c - see flight.h. */
#include "engine/flight.h"

#include <stdio.h>
#include <string.h>

void flight_note(struct flight *flight, int64_t now_ns, enum flight_kind kind, int32_t set,
                 int32_t value, const char *name)
{
    if (flight == NULL)
        return;
    struct flight_event *e = &flight->events[flight->next % FLIGHT_EVENTS];
    e->sequence = flight->next++;
    e->time_ns = now_ns;
    e->kind = (uint16_t)kind;
    e->set = (uint16_t)set;
    e->value = value;
    size_t n = name != NULL ? strlen(name) : 0;
    size_t keep = n < sizeof e->name ? n : sizeof e->name - 1;
    memcpy(e->name, name != NULL ? name + (n - keep) : "", keep);
    e->name[keep] = '\0';
}

static const char *flight_kind_name(uint16_t kind)
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
    }
    return "?";
}

void flight_dump(const struct flight *flight, const struct os *os, int fd)
{
    uint64_t first = flight->next > FLIGHT_EVENTS ? flight->next - FLIGHT_EVENTS : 0;
    for (uint64_t i = first; i < flight->next; i++) {
        const struct flight_event *e = &flight->events[i % FLIGHT_EVENTS];
        char line[160];
        int n = snprintf(line, sizeof line, "%llu %.6f %s set %u value %d %s\n",
                         (unsigned long long)e->sequence, (double)e->time_ns / 1e9,
                         flight_kind_name(e->kind), e->set, e->value, e->name);
        if (n > 0)
            os->write(os->ctx, fd, line, (size_t)n < sizeof line ? (size_t)n : sizeof line - 1);
    }
}
