/* SPDX-License-Identifier: Apache-2.0 */
/* batch.c - tensor fusion: ready ops become batches by kind, dtype, reduction, scale, wire type,
 * memory, devices and group.
 *
 * Greedy with look-ahead: the first op not yet taken opens a batch; later ones that match join it
 * while the sum stays within HOROVOD_FUSION_THRESHOLD; those that do not match are stepped over, as
 * long as what was stepped over also fits, and keep their order.
 *
 * Thread: coordinator's token holder.  Pure apart from is_taken.  Start reading at batch_fuse(). */
#include "engine/batch.h"

#include <assert.h>

#include "engine/engine_private.h"

static bool is_fusable(const struct entry *e)
{
    if (e->kind == HVD_ALLREDUCE)
        return true;
    return e->kind == HVD_ALLGATHER || e->kind == HVD_REDUCESCATTER;
}

static bool is_match(const struct procset *set, const struct entry *a, const struct entry *b)
{
    if (a->kind != b->kind || a->dtype != b->dtype || a->memory != b->memory ||
        a->devices != b->devices || a->device != b->device)
        return false;
    if (set->engine->config->disable_group_fusion && a->group != b->group)
        return false;
    if (a->kind == HVD_ALLGATHER)
        return true;
    return a->reduce == b->reduce && a->wire == b->wire &&
           factor_is_same(a->prescale, b->prescale) && factor_is_same(a->postscale, b->postscale);
}

bool batch_is_sane(const struct procset *set, const uint32_t *ids, int32_t count)
{
    const struct entry *first = count > 0 ? procset_entry(set, ids[0]) : NULL;
    if (first == NULL || count > COLL_PARTS_MAX || (count > 1 && !is_fusable(first)))
        return false;
    for (int32_t i = 1; i < count; i++) {
        const struct entry *e = procset_entry(set, ids[i]);
        if (e == NULL || !is_match(set, first, e))
            return false;
    }
    return true;
}

/* Bytes of the batch: for an allgather, the inputs of all ranks. */
static uint64_t fused_bytes(const struct procset *set, const struct entry *e)
{
    if (e->kind != HVD_ALLGATHER || e->dim0 == NULL || e->ndim == 0)
        return e->bytes;
    uint64_t row = hvd_dtype_bytes((hvd_dtype_t)e->dtype), rows = 0;
    for (int32_t i = 1; i < e->ndim; i++)
        row *= (uint64_t)e->shape[i];
    for (int32_t i = 0; i < set->size; i++)
        rows += (uint64_t)e->dim0[i];
    return row * rows;
}

static int32_t collect(const struct procset *set, struct batch_item *items, int32_t first,
                       int32_t count, uint32_t *ret_ids)
{
    uint64_t limit = (uint64_t)set->tunables.fusion_threshold_bytes;
    assert(first < count && !items[first].is_taken);
    const struct entry *head = items[first].entry;
    uint64_t used = fused_bytes(set, head), skipped = 0;
    int32_t taken = 1;
    ret_ids[0] = head->id;
    items[first].is_taken = true;
    if (!is_fusable(head) || used > limit)
        return 1;
    for (int32_t i = first + 1; i < count && taken < COLL_PARTS_MAX; i++) {
        if (items[i].is_taken)
            continue;
        const struct entry *e = items[i].entry;
        uint64_t bytes = fused_bytes(set, e);
        if (head->kind == HVD_ALLGATHER && e->kind == HVD_BARRIER)
            break;
        if (is_match(set, head, e) && used + bytes <= limit) {
            items[i].is_taken = true;
            ret_ids[taken++] = e->id;
            used += bytes;
            continue;
        }
        skipped += bytes;
        if (used + skipped > limit)
            break;
    }
    return taken;
}

void batch_fuse(const struct procset *set, struct batch_item *items, int32_t count,
                void (*emit)(void *arg, const uint32_t *ids, int32_t count), void *arg)
{
    uint32_t ids[COLL_PARTS_MAX];
    for (int32_t first = 0; first < count; first++) {
        if (items[first].is_taken)
            continue;
        int32_t taken = collect(set, items, first, count, ids);
        assert(taken >= 1 && taken <= COLL_PARTS_MAX);
        emit(arg, ids, taken);
    }
}
