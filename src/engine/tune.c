/* SPDX-License-Identifier: Apache-2.0 */
/* tune.c - how a change of the tunables reaches all members of a set at the same point.
 *
 * The root keeps a requested change until only its own response stream decides what comes next: a
 * plan in force is left first, as for a shutdown. The item is then sent with the other items, waits
 * among the batches and takes effect when all batches before it have run. On the rank that
 * coordinates another set it starts the same change there.
 *
 *      batches of the set    7  8  9  [version 3]  10  11      on every member
 *
 * Invariant: versions only increase. A version that does not, and values outside the limits of the
 * settings, break the set with an error that names the coordinator. Thread: token holder.  Blocks:
 * never.  Start reading at tune_ask(), tune_item(). */
#include "engine/tune.h"

#include <string.h>

#include "engine/coordinator.h"
#include "engine/engine_private.h"
#include "engine/flight.h"
#include "engine/learn.h"
#include "engine/negotiate.h"
#include "engine/plan.h"
#include "engine/response.h"

#define FORM        1u /* of the item; another one is another struct */
#define MS_NS       1000000
#define US_NS       1000
#define PERCENT_MAX 10000

struct tunables tune_configured(const struct config *config)
{
    return (struct tunables){
        .fusion_threshold_bytes = config->fusion_threshold_bytes,
        .cycle_time_ns = (int64_t)(config->cycle_time_ms * MS_NS),
        .spin_ns = config->spin_us < 0 ? -1 : config->spin_us * US_NS,
        .flows = (int32_t)(config->tcp_flows < 1 ? 1 : config->tcp_flows),
        .threshold_percent = 100,
    };
}

static hvd_status_t limit_check(int64_t value, enum setting_row row, int64_t unit,
                                struct error *error)
{
    const struct setting *s = &setting_rows[row];
    int64_t lowest = s->lowest < 0 ? -1 : s->lowest * unit;
    if (value >= lowest && value <= s->highest * unit)
        return HVD_OK;
    return error_set(error, HVD_ERR_INVALID, "the tunable %s can't be %lld (%lld to %lld)", s->id,
                     (long long)value, (long long)lowest, (long long)(s->highest * unit));
}

hvd_status_t tune_check(const struct tunables *t, struct error *error)
{
    hvd_status_t status =
        limit_check(t->fusion_threshold_bytes, ROW_fusion_threshold_bytes, 1, error);
    if (status == HVD_OK)
        status = limit_check(t->cycle_time_ns, ROW_cycle_time_ms, MS_NS, error);
    if (status == HVD_OK)
        status = limit_check(t->spin_ns, ROW_spin_us, US_NS, error);
    if (status == HVD_OK)
        status = limit_check(t->flows, ROW_tcp_flows, 1, error);
    if (status == HVD_OK && (t->threshold_percent < 1 || t->threshold_percent > PERCENT_MAX))
        status =
            error_set(error, HVD_ERR_INVALID, "the tunable threshold_percent can't be %d (1 to %d)",
                      t->threshold_percent, PERCENT_MAX);
    return status;
}

/* ---- the root ---- */

void tune_ask(struct procset *set, const struct tunables *tunables)
{
    struct coordinator *c = set->coordinator;
    c->tune_wanted = *tunables;
    c->is_tuning = true;
}

static void item_put(struct procset *set, const struct tunables *t)
{
    struct writer *w = response_room(set, RESPONSE_ITEM_FIXED);
    put_u8(w, ITEM_TUNE);
    put_u8(w, FORM);
    put_u64(w, t->version);
    put_i64(w, t->fusion_threshold_bytes);
    put_i64(w, t->cycle_time_ns);
    put_i64(w, t->spin_ns);
    put_u32(w, (uint32_t)t->flows);
    put_u32(w, (uint32_t)t->threshold_percent);
}

void tune_flush(struct procset *set)
{
    struct coordinator *c = set->coordinator;
    if (!c->is_tuning || c->is_shutdown)
        return;
    if (plan_is_on(set) && !plan_is_ending(set)) {
        plan_break(set);
        return;
    }
    c->is_tuning = false;
    item_put(set, &c->tune_wanted);
    learn_restart(set);
}

/* ---- every member ---- */

static bool item_get(struct reader *r, struct tunables *ret)
{
    ret->version = get_u64(r);
    ret->fusion_threshold_bytes = get_i64(r);
    ret->cycle_time_ns = get_i64(r);
    ret->spin_ns = get_i64(r);
    ret->flows = (int32_t)get_u32(r);
    ret->threshold_percent = (int32_t)get_u32(r);
    return !r->bad;
}

hvd_status_t tune_item(struct procset *set, struct reader *r, struct error *error)
{
    const struct os *os = set->engine->os;
    struct error why = {0};
    struct tunables t;
    uint8_t form = get_u8(r);
    if (form != FORM)
        return negotiate_refused(set, error, "sent tunables of the unknown form %u", form);
    if (!item_get(r, &t))
        return negotiate_refused(set, error, "sent tunables that end early");
    if (t.version <= set->tune_version)
        return negotiate_refused(set, error, "sent version %llu of the tunables after version %llu",
                                 (unsigned long long)t.version,
                                 (unsigned long long)set->tune_version);
    if (tune_check(&t, &why) != HVD_OK)
        return negotiate_refused(set, error, "sent tunables that are out of range: %s", why.text);
    struct tunables *kept = os_alloc(os, sizeof *kept);
    if (kept == NULL)
        return procset_no_memory(set, error, "the tunables");
    *kept = t;
    struct batch batch = {.kind = BATCH_TUNE, .ids = (uint32_t *)kept, .is_owned = true};
    if (procset_batch_push(set, &batch) != HVD_OK) {
        os_free(os, kept);
        return procset_no_memory(set, error, "the queue of batches");
    }
    set->tune_version = t.version;
    return HVD_OK;
}

/* The other sets that this rank coordinates follow the global one. */
static void pass_on(struct engine *engine)
{
    const struct tunables *now = &engine->sets[HVD_PROCESS_SET_GLOBAL]->tunables;
    for (int32_t i = 0; i < engine->member_count; i++) {
        struct procset *set = engine->members[i];
        if (set->id != HVD_PROCESS_SET_GLOBAL && set->coordinator != NULL &&
            set->broken == HVD_OK && set->tune_version < now->version)
            tune_ask(set, now);
    }
}

void tune_take_effect(struct procset *set, const struct batch *batch)
{
    struct engine *engine = set->engine;
    memcpy(&set->tunables, batch->ids, sizeof set->tunables);
    flight_note_text(engine->flight, engine->now_ns, FLIGHT_TUNE, set->id,
                     (int32_t)set->tunables.version, "");
    if (set->coordinator != NULL)
        learn_restart(set); /* also for what leaving a plan has taught it */
    if (set->id == HVD_PROCESS_SET_GLOBAL)
        pass_on(engine);
    if (engine->options.tuned != NULL)
        engine->options.tuned(engine->options.tuned_ctx, set->id, &set->tunables, set->order);
}
