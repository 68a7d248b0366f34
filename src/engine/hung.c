/* SPDX-License-Identifier: Apache-2.0 */
/* hung.c - peers that are there but show no sign of life: stopped, swapped out, stuck in the
 * kernel.
 *
 * Every rank looks at its peers about once a second while something of its own is pending. After
 * HOROVOD_HUNG_WARN_SECONDS without a heartbeat people are told, once per silence, which rank it is
 * and what waits for it; after HOROVOD_HUNG_ERROR_SECONDS (if set) every pending op ends with that
 * cause. Ranks that are alive but have not submitted something are stall.c's.
 *
 * Thread: token holder.  Start reading at hung_tick(). */
#include <stdio.h>

#include "engine/engine.h"

#define SECOND_NS 1000000000LL

/* Nanoseconds of silence; 0: alive, or the transport does not know. */
static int64_t silence_ns(struct engine *engine, int32_t rank, int64_t now_ns)
{
    struct transport *t = engine->options.routes[rank];
    if (t == NULL || t->ops->last_heard_ns == NULL)
        return 0;
    int64_t heard_ns = t->ops->last_heard_ns(t, rank, now_ns);
    return heard_ns > 0 && now_ns > heard_ns ? now_ns - heard_ns : 0;
}

static void describe(struct engine *engine, const struct procset *set, int32_t rank,
                     int64_t silent_ns, int64_t now_ns, char *ret, size_t bytes)
{
    char name[160];
    const struct op *op = set->pending_head;
    engine_peer_name(engine, rank, name, sizeof name);
    snprintf(ret, bytes,
             "%s has shown no sign of life for %.0f s; %.300s has waited %.1f s. Is the process "
             "stopped?",
             name, (double)silent_ns / 1e9, op->tensor->name,
             (double)(now_ns - op->submit_ns) / 1e9);
}

static bool peer_check(struct engine *engine, struct procset *set, int32_t rank, int64_t now_ns)
{
    const struct config *config = engine->config;
    char text[HVD_ERROR_MAX];
    int64_t silent_ns = silence_ns(engine, rank, now_ns);
    /* Heartbeats and looks are up to a second apart each: told early rather than late. */
    int64_t warn_s = config->hung_warn_s > 0 ? config->hung_warn_s : config->hung_error_s;
    bool is_warned = warn_s > 0 && silent_ns >= warn_s * SECOND_NS - SECOND_NS;
    if (!is_warned || silent_ns < SECOND_NS * 2) {
        engine->is_hung_told[rank] = 0;
        return false;
    }
    describe(engine, set, rank, silent_ns, now_ns, text, sizeof text);
    if (!engine->is_hung_told[rank])
        LOG_AT(engine->log, LOG_WARNING, "%s", text);
    engine->is_hung_told[rank] = 1;
    if (config->hung_error_s <= 0 || silent_ns < config->hung_error_s * SECOND_NS)
        return false;
    engine_stop(engine, HVD_ERR_PEER_HUNG, text, true);
    return true;
}

void hung_tick(struct engine *engine, int64_t now_ns)
{
    if (engine->config->stall_check_disable)
        return;
    for (int32_t i = 0; i < engine->member_count; i++) {
        struct procset *set = engine->members[i];
        for (int32_t k = 0; k < set->size; k++) {
            if (set->ranks[k] == engine->rank)
                continue;
            if (set->pending_head == NULL || set->broken != HVD_OK)
                silence_ns(engine, set->ranks[k],
                           now_ns); /* keeps the record of signs up to date */
            else if (peer_check(engine, set, set->ranks[k], now_ns))
                return;
        }
    }
}
