/* SPDX-License-Identifier: Apache-2.0 */
/* hung.c - detects peers that send nothing at all: stopped, swapped out, stuck in the kernel, or on
 * a machine that is down.
 *
 * Every rank checks its peers about twice a second. A peer that has been silent for
 * HOROVOD_HUNG_WARN_SECONDS while something waits for it is reported, once per silence; after
 * HOROVOD_HUNG_ERROR_SECONDS every pending op fails with that cause. stall.c handles peers that are
 * alive but have not submitted something.
 *
 * Silence is time in which this rank checked and received nothing. It begins with the first check
 * after connecting, not with the connection; a peer that has sent nothing since then may still be
 * connecting to others, which has a separate limit (HOROVOD_GLOO_TIMEOUT_SECONDS). And a rank that
 * did not check, because it was stopped or had no core, does not blame its peers for that time:
 * each check counts for at most two beats. With a limit of 1 or 2 s all ranks check, and give signs
 * of life, four times as often (config_beat_ns()): a silence of a second is then as telling as one
 * of two seconds is otherwise.
 *
 * Thread: token holder.  Owner: struct engine.  Start reading at hung_tick(). */
#include "engine/hung.h"

#include <assert.h>
#include <stdio.h>

#include "engine/engine_private.h"
#include "engine/suspects.h"

#define SECOND_NS 1000000000LL

static void look(struct engine *engine, int32_t rank, int64_t now_ns)
{
    struct transport *t = engine->options.routes[rank];
    struct sign *sign = &engine->signs[rank];
    int64_t heard_ns =
        t != NULL && t->ops->last_heard_ns != NULL ? t->ops->last_heard_ns(t, rank, now_ns) : 0;
    if (heard_ns == sign->heard_ns && heard_ns != 0)
        return;
    sign->is_told = false;
    sign->heard_ns = heard_ns;
    sign->awake_ns = engine->awake_ns;
}

static void look_around(struct engine *engine, int64_t now_ns)
{
    int64_t gap_ns = engine->looked_ns >= 0 ? now_ns - engine->looked_ns : 0;
    int64_t most_ns = 2 * config_beat_ns(engine->config);
    engine->looked_ns = now_ns;
    engine->awake_ns += gap_ns < most_ns ? gap_ns : most_ns;
    for (int32_t i = 0; i < engine->size; i++)
        if (i != engine->rank)
            look(engine, i, now_ns);
}

int64_t hung_silence_ns(const struct engine *engine, int32_t rank)
{
    const struct sign *sign = &engine->signs[rank];
    int64_t silent_ns = engine->awake_ns - sign->awake_ns;
    assert(silent_ns >= 0); /* signs are dated by this clock */
    if (sign->heard_ns == 0)
        return 0; /* the transport does not know */
    if (sign->heard_ns < 0)
        silent_ns -= engine->config->timeout_s * SECOND_NS;
    return silent_ns > 0 ? silent_ns : 0;
}

/* The time from which a limit counts as reached: reported early rather than late, but not before
 * two beats, or a second: signs of life and checks are up to a beat apart. */
static int64_t threshold_ns(const struct config *config, int64_t limit_s)
{
    int64_t beat_ns = config_beat_ns(config);
    int64_t least_ns = 2 * beat_ns > SECOND_NS ? 2 * beat_ns : SECOND_NS;
    if (limit_s <= 0)
        return INT64_MAX;
    int64_t ns = limit_s * SECOND_NS - beat_ns;
    return ns > least_ns ? ns : least_ns;
}

static int64_t warn_ns(const struct config *config)
{
    return threshold_ns(config,
                        config->hung_warn_s > 0 ? config->hung_warn_s : config->stall_check_time_s);
}

/* A silent rank submits nothing, so the limit of the stall check applies to it as well. */
static int64_t error_ns(const struct config *config)
{
    int64_t hung_ns = threshold_ns(config, config->hung_error_s);
    int64_t stall_ns = threshold_ns(config, config->stall_shutdown_time_s);
    return hung_ns < stall_ns ? hung_ns : stall_ns;
}

static void describe(const struct engine *engine, const struct procset *set, int32_t rank,
                     char *ret, size_t bytes)
{
    char name[160], self[160], others[32] = "";
    const struct op *op = set->pending_head;
    int64_t silent_ns = hung_silence_ns(engine, rank);
    int32_t more = 0;
    for (int32_t i = 0; i < set->size; i++)
        more += set->ranks[i] != rank && set->ranks[i] != engine->rank &&
                hung_silence_ns(engine, set->ranks[i]) + SECOND_NS >= silent_ns;
    if (more > 0)
        snprintf(others, sizeof others, " and %d more", more);
    engine_peer_name(engine, rank, name, sizeof name);
    engine_peer_name(engine, engine->rank, self, sizeof self);
    snprintf(ret, bytes,
             "%s%s: no sign of life for %.0f s, as seen by %s; %.300s has waited %.1f s. Is the "
             "process stopped, or its machine gone?",
             name, others, (double)silent_ns / 1e9, self, op->tensor->name,
             (double)(engine->now_ns - op->submit_ns) / 1e9);
}

/* true: the job has ended. */
static bool peer_check(struct engine *engine, struct procset *set, int32_t rank)
{
    char text[HVD_ERROR_MAX];
    int64_t silent_ns = hung_silence_ns(engine, rank);
    bool is_over = silent_ns >= error_ns(engine->config);
    if (!is_over && (silent_ns < warn_ns(engine->config) || engine->signs[rank].is_told))
        return false;
    assert(rank != engine->rank && set->pending_head != NULL);
    describe(engine, set, rank, text, sizeof text);
    if (!engine->signs[rank].is_told) {
        LOG_AT(engine->log, LOG_WARNING, "%s", text);
        suspects_silent(set, rank, engine->now_ns);
    }
    engine->signs[rank].is_told = true;
    if (is_over) {
        engine_blame(engine, rank);
        engine_stop(engine, HVD_ERR_PEER_HUNG, text, true);
    }
    return is_over;
}

void hung_tick(struct engine *engine, int64_t now_ns)
{
    if (engine->config->stall_check_disable)
        return;
    look_around(engine, now_ns);
    for (int32_t i = 0; i < engine->member_count; i++) {
        struct procset *set = engine->members[i];
        for (int32_t k = 0; k < set->size; k++) {
            if (set->pending_head == NULL || set->broken != HVD_OK)
                break;
            if (set->ranks[k] != engine->rank && peer_check(engine, set, set->ranks[k]))
                return;
        }
    }
}
