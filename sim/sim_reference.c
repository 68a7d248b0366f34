/* SPDX-License-Identifier: Apache-2.0 */
/* sim_reference.c - see sim_reference.h. */
#include "sim_reference.h"

#include <math.h>
#include <string.h>

#include "reduce/reduce.h"
#include "sim_adasum.h"

static const struct sim_spec *spec_of(const struct sim_program *p, int32_t call, int32_t op)
{
    return &p->specs[p->calls[call].spec + op];
}

static void odd_shape(struct sim_spec *s)
{
    bool is_rows = s->kind == HVD_ALLGATHER || s->kind == HVD_ALLTOALL;
    if (s->ndim == 0 || (is_rows && s->ndim == 1))
        s->shape[s->ndim++] = 2;
    else
        s->shape[s->ndim - 1]++;
}

void sim_reference_spec(const struct sim_program *program, int32_t call, int32_t op, int32_t rank,
                        struct sim_spec *ret)
{
    const struct sim_call *c = &program->calls[call];
    *ret = *spec_of(program, call, op);
    if (ret->ndim > 0)
        ret->shape[0] = sim_program_rows(program, call, op, rank);
    if (c->odd_rank != rank || c->odd_op != op)
        return;
    if (c->odd == SIM_ODD_DTYPE || c->odd == SIM_ODD_REDUCE || c->odd == SIM_ODD_KIND)
        ret->wire = HVD_WIRE_SAME; /* what it does instead could not travel so */
    switch (c->odd) {
    case SIM_ODD_NONE: return;
    case SIM_ODD_DTYPE:
        if (ret->reduce == HVD_ADASUM && ret->kind == HVD_ALLREDUCE)
            ret->dtype = ret->dtype == HVD_FLOAT32 ? HVD_FLOAT64 : HVD_FLOAT32;
        else
            ret->dtype = ret->dtype == HVD_FLOAT32 ? HVD_INT32 : HVD_FLOAT32;
        return;
    case SIM_ODD_SHAPE: odd_shape(ret); return;
    case SIM_ODD_WIRE:
        ret->wire = ret->wire == HVD_WIRE_SAME ? HVD_WIRE_BFLOAT16 : HVD_WIRE_SAME;
        return;
    case SIM_ODD_REDUCE: ret->reduce = ret->reduce == HVD_SUM ? HVD_MAX : HVD_SUM; return;
    case SIM_ODD_SCALE: ret->prescale *= 4; return;
    case SIM_ODD_ROOT: ret->root = (ret->root + 1) % program->sets[c->set].count; return;
    case SIM_ODD_KIND: ret->kind = HVD_BROADCAST; return;
    case SIM_ODD_NAME: strcat(ret->name, ".other"); return;
    }
}

int64_t sim_reference_count(const struct sim_spec *spec)
{
    int64_t count = spec->kind == HVD_BARRIER ? 0 : 1;
    for (int32_t i = 0; i < spec->ndim; i++)
        count *= spec->shape[i];
    return count;
}

/* ---- inputs ---- */

static int32_t value(uint64_t random, hvd_dtype_t dtype, hvd_reduce_t reduce)
{
    bool is_signed = dtype != HVD_UINT8 && dtype != HVD_UINT16 && dtype != HVD_BOOL;
    int32_t small = (int32_t)(random >> 33 & 7);
    if (dtype == HVD_BOOL)
        return small & 1;
    if (reduce == HVD_ADASUM)
        return small + 1; /* vectors that cancel out leave noise, which it would scale up */
    if (reduce == HVD_PRODUCT)
        return (random >> 40 & 15) == 0 ? 2 : is_signed && (small & 1) != 0 ? -1 : 1;
    if (dtype == HVD_BFLOAT16)
        return small & 3;
    return is_signed ? small - 3 : small;
}

static void store(hvd_dtype_t dtype, void *bytes, size_t i, int32_t v)
{
    switch (dtype) {
    case HVD_UINT8:
    case HVD_INT8:
    case HVD_BOOL: ((int8_t *)bytes)[i] = (int8_t)v; return;
    case HVD_UINT16:
    case HVD_INT16: ((int16_t *)bytes)[i] = (int16_t)v; return;
    case HVD_INT32: ((int32_t *)bytes)[i] = v; return;
    case HVD_INT64: ((int64_t *)bytes)[i] = v; return;
    case HVD_FLOAT16: ((uint16_t *)bytes)[i] = reduce_float_to_half((float)v); return;
    case HVD_BFLOAT16: ((uint16_t *)bytes)[i] = reduce_float_to_bfloat((float)v); return;
    case HVD_FLOAT32: ((float *)bytes)[i] = (float)v; return;
    case HVD_FLOAT64: ((double *)bytes)[i] = v; return;
    case HVD_DTYPE_COUNT: return;
    }
}

void sim_reference_fill(const struct sim_program *program, int32_t call, int32_t op, int32_t rank,
                        const struct sim_spec *spec, void *ret_bytes)
{
    size_t count = (size_t)sim_reference_count(spec);
    uint64_t random = sim_hash(program->seed * 1000 + (uint64_t)call, (uint64_t)(rank * 64 + op));
    for (size_t i = 0; i < count; i++) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        store(spec->dtype, ret_bytes, i, value(random, spec->dtype, spec->reduce));
    }
}

/* ---- results ---- */

static size_t spec_bytes(const struct sim_spec *s)
{
    return (size_t)sim_reference_count(s) * hvd_dtype_bytes(s->dtype);
}

/* The input of a member; of one that has joined, zeros. */
static void *input_of(const struct sim_program *p, int32_t call, int32_t op, int32_t rank)
{
    struct sim_spec s;
    sim_reference_spec(p, call, op, rank, &s);
    void *bytes = os_alloc(p->os, spec_bytes(&s) + 1);
    if (bytes != NULL && (p->calls[call].submitters >> rank & 1) != 0)
        sim_reference_fill(p, call, op, rank, &s, bytes);
    return bytes;
}

static void adasum(const struct sim_spec *s, void **inputs, int32_t size, void *ret)
{
    size_t count = (size_t)sim_reference_count(s);
    double *all = ret; /* room for size vectors of doubles */
    for (int32_t r = 0; r < size; r++)
        for (size_t i = 0; i < count; i++)
            all[(size_t)r * count + i] = s->dtype == HVD_FLOAT32 ? (double)((float *)inputs[r])[i]
                                                                 : ((double *)inputs[r])[i];
    for (int32_t d = 1; d < size; d *= 2)
        for (int32_t r = 0; r + d < size; r += 2 * d)
            sim_adasum_pair(all + (size_t)r * count, all + (size_t)(r + d) * count, count);
}

static void reduce_all(const struct sim_spec *s, void **inputs, int32_t size, void *ret)
{
    struct reduce_job job = {.dtype = s->dtype,
                             .op = s->reduce == HVD_AVERAGE ? HVD_SUM : s->reduce,
                             .prescale = s->prescale,
                             .postscale =
                                 s->reduce == HVD_AVERAGE ? s->postscale / size : s->postscale,
                             .sources = (const void *const *)inputs,
                             .source_count = size,
                             .targets = &ret,
                             .target_count = 1,
                             .count = (size_t)sim_reference_count(s)};
    if (job.count > 0)
        reduce_run_isa(REDUCE_SCALAR, &job);
}

/* What all ranks share: the reduction of everything, everything gathered, or the root's. */
static void *common_result(const struct sim_program *p, int32_t call, int32_t op)
{
    const struct sim_set *set = &p->sets[p->calls[call].set];
    const struct sim_spec *s = spec_of(p, call, op);
    void *inputs[SIM_RANKS_MAX] = {0};
    size_t bytes = 0, at = 0, each[SIM_RANKS_MAX];
    for (int32_t i = 0; i < set->count; i++) {
        struct sim_spec own;
        sim_reference_spec(p, call, op, set->ranks[i], &own);
        inputs[i] = input_of(p, call, op, set->ranks[i]);
        each[i] = spec_bytes(&own);
        bytes += each[i];
    }
    uint8_t *result = os_alloc(p->os, bytes * (s->reduce == HVD_ADASUM ? 2 : 1) + 1);
    for (int32_t i = 0; result != NULL && i < set->count; i++) {
        if (s->kind == HVD_ALLGATHER && each[i] > 0)
            memcpy(result + at, inputs[i], each[i]);
        at += each[i];
    }
    if (result != NULL && s->kind == HVD_BROADCAST)
        memcpy(result, inputs[s->root], each[s->root]);
    if (result != NULL && (s->kind == HVD_ALLREDUCE || s->kind == HVD_REDUCESCATTER)) {
        if (s->reduce == HVD_ADASUM)
            adasum(s, inputs, set->count, result);
        else
            reduce_all(s, inputs, set->count, result);
    }
    for (int32_t i = 0; i < set->count; i++)
        os_free(p->os, inputs[i]);
    return result;
}

static int32_t index_of(const struct sim_set *set, int32_t rank)
{
    int32_t i = 0;
    while (set->ranks[i] != rank)
        i++;
    return i;
}

static bool check_alltoall(const struct sim_program *p, int32_t call, int32_t op, int32_t rank,
                           const uint8_t *out, int64_t out_rows, const int32_t *recv_splits)
{
    const struct sim_set *set = &p->sets[p->calls[call].set];
    int32_t self = index_of(set, rank);
    int64_t rows = 0;
    bool is_right = true;
    for (int32_t i = 0; i < set->count && is_right; i++) {
        struct sim_spec s;
        sim_reference_spec(p, call, op, set->ranks[i], &s);
        uint8_t *input = input_of(p, call, op, set->ranks[i]);
        int64_t split = sim_program_split(p, call, op, set->ranks[i], self), before = 0;
        size_t row = hvd_dtype_bytes(s.dtype);
        for (int32_t d = 1; d < s.ndim; d++)
            row *= (size_t)s.shape[d];
        for (int32_t k = 0; k < self; k++)
            before += sim_program_split(p, call, op, set->ranks[i], k);
        is_right = recv_splits != NULL && recv_splits[i] == split &&
                   memcmp(out + (size_t)rows * row, input + (size_t)before * row,
                          (size_t)split * row) == 0;
        rows += split;
        os_free(p->os, input);
    }
    return is_right && rows == out_rows;
}

static bool check_adasum(const struct sim_spec *s, const void *out, const double *expected)
{
    size_t count = (size_t)sim_reference_count(s);
    for (size_t i = 0; i < count; i++) {
        double got =
            s->dtype == HVD_FLOAT32 ? (double)((const float *)out)[i] : ((const double *)out)[i];
        if (!(fabs(got - expected[i]) <= 1e-3 * (1 + fabs(expected[i]))))
            return false;
    }
    return true;
}

static bool check_common(const struct sim_program *p, int32_t call, int32_t op, int32_t rank,
                         const void *out, int64_t out_rows, const uint8_t *common)
{
    const struct sim_set *set = &p->sets[p->calls[call].set];
    const struct sim_spec *s = spec_of(p, call, op);
    size_t bytes = spec_bytes(s), row = hvd_dtype_bytes(s->dtype);
    int64_t rows = 0, before = 0;
    for (int32_t d = 1; d < s->ndim; d++)
        row *= (size_t)s->shape[d];
    if (s->kind == HVD_ALLREDUCE && s->reduce == HVD_ADASUM)
        return check_adasum(s, out, (const double *)common);
    if (s->kind == HVD_ALLREDUCE || s->kind == HVD_BROADCAST)
        return bytes == 0 || memcmp(out, common, bytes) == 0;
    for (int32_t i = 0, self = index_of(set, rank); i < set->count; i++) {
        if (s->kind == HVD_ALLGATHER) {
            rows += sim_program_rows(p, call, op, set->ranks[i]);
            continue;
        }
        rows = s->shape[0] / set->count + (i < s->shape[0] % set->count ? 1 : 0);
        if (i == self)
            break;
        before += rows;
    }
    return rows == out_rows && memcmp(out, common + (size_t)before * row, (size_t)rows * row) == 0;
}

bool sim_reference_check(const struct sim_program *program, int32_t call, int32_t op, int32_t rank,
                         const void *out, int64_t out_rows, const int32_t *recv_splits,
                         void **cache)
{
    const struct sim_spec *s = spec_of(program, call, op);
    if (s->kind == HVD_BARRIER)
        return true;
    if (s->kind == HVD_ALLTOALL)
        return check_alltoall(program, call, op, rank, out, out_rows, recv_splits);
    if (*cache == NULL)
        *cache = common_result(program, call, op);
    return *cache != NULL && check_common(program, call, op, rank, out, out_rows, *cache);
}

void sim_reference_free(const struct sim_program *program, void *cache)
{
    os_free(program->os, cache);
}
