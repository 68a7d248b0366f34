/* SPDX-License-Identifier: Apache-2.0 */
/* reduce.c - from a job to the kernels: which row of the table, and the scaling of integers.
 *
 * Floats are scaled inside the kernel. Integers are scaled in double and truncated, one source at a
 * time, so they are processed in blocks that stay in the L1 cache: scale a source into scratch,
 * fold it into the accumulator, scale that, copy it to the targets.
 *
 * Thread: any.  Owner: no state; scratch is on the stack.  Invariant: all sources of a block are
 * read before its first target is written.  Start reading at reduce_run(). */
#include "reduce/reduce.h"

#include <assert.h>
#include <string.h>

#include "reduce/isa.h"
#include "reduce/kernels.h"
#include "reduce/scale.h"

#define BLOCK_BYTES 4096 /* accumulator and one scaled source: a quarter of a 32 KiB cache */

static bool is_float(hvd_dtype_t dtype)
{
    return dtype == HVD_FLOAT16 || dtype == HVD_BFLOAT16 || dtype == HVD_FLOAT32 ||
           dtype == HVD_FLOAT64;
}

static bool is_one(double factor)
{
    return factor <= 1.0 && factor >= 1.0;
}

static enum reduce_kernel_op kernel_op(hvd_reduce_t op)
{
    switch (op) {
    case HVD_AVERAGE:
    case HVD_SUM: return REDUCE_KERNEL_SUM;
    case HVD_MIN: return REDUCE_KERNEL_MIN;
    case HVD_MAX: return REDUCE_KERNEL_MAX;
    case HVD_PRODUCT: return REDUCE_KERNEL_PRODUCT;
    case HVD_ADASUM:
    case HVD_REDUCE_COUNT: break;
    }
    return REDUCE_KERNEL_OP_COUNT;
}

hvd_status_t reduce_check(hvd_dtype_t dtype, hvd_reduce_t op, double prescale, double postscale)
{
    if (hvd_dtype_bytes(dtype) == 0 || kernel_op(op) == REDUCE_KERNEL_OP_COUNT)
        return HVD_ERR_UNSUPPORTED;
    if (is_one(prescale) && is_one(postscale))
        return HVD_OK;
    return is_float(dtype) || scale_has_dtype(dtype) ? HVD_OK : HVD_ERR_UNSUPPORTED;
}

static void copy_to_targets(const void *from, void *const *targets, int32_t target_count, size_t at,
                            size_t bytes)
{
    for (int32_t d = 0; d < target_count; d++) {
        unsigned char *to = (unsigned char *)targets[d] + at;
        if (to != from)
            memcpy(to, from, bytes);
    }
}

static void reduce_plain(const struct reduce_kernels *kernels, const struct reduce_job *job,
                         enum reduce_kernel_mode mode)
{
    const struct reduce_block block = {
        .sources = job->sources,
        .source_count = job->source_count,
        .targets = job->targets,
        .target_count = job->target_count,
        .count = job->count,
        .prescale = job->prescale,
        .postscale = job->postscale,
    };
    kernels->block[job->dtype][kernel_op(job->op)][mode](&block);
}

static void fold(const struct reduce_kernels *kernels, const struct reduce_job *job, void *sum,
                 const void *addend, size_t count)
{
    const void *sources[2] = {sum, addend};
    void *targets[1] = {sum};
    const struct reduce_block block = {
        .sources = sources,
        .source_count = 2,
        .targets = targets,
        .target_count = 1,
        .count = count,
        .prescale = 1.0,
        .postscale = 1.0,
    };
    kernels->block[job->dtype][kernel_op(job->op)][REDUCE_KERNEL_PLAIN](&block);
}

static void reduce_scaled_integers(const struct reduce_kernels *kernels,
                                   const struct reduce_job *job)
{
    const size_t bytes = hvd_dtype_bytes(job->dtype), block_count = BLOCK_BYTES / bytes;
    const bool has_pre = !is_one(job->prescale), has_post = !is_one(job->postscale);
    _Alignas(64) unsigned char sum[BLOCK_BYTES], scaled[BLOCK_BYTES];

    for (size_t i = 0; i < job->count; i += block_count) {
        const size_t n = job->count - i < block_count ? job->count - i : block_count;
        for (int32_t s = 0; s < job->source_count; s++) {
            const void *source = (const unsigned char *)job->sources[s] + i * bytes;
            void *copy = s == 0 ? sum : scaled;
            if (has_pre)
                scale_integers(job->dtype, source, n, job->prescale, copy);
            else if (s == 0)
                memcpy(copy, source, n * bytes);
            if (s > 0)
                fold(kernels, job, sum, has_pre ? copy : source, n);
        }
        if (has_post)
            scale_integers(job->dtype, sum, n, job->postscale, sum);
        copy_to_targets(sum, job->targets, job->target_count, i * bytes, n * bytes);
    }
}

static void run_with(const struct reduce_kernels *kernels, const struct reduce_job *job)
{
    const bool has_pre = !is_one(job->prescale), has_post = !is_one(job->postscale);

    assert(reduce_check(job->dtype, job->op, job->prescale, job->postscale) == HVD_OK);
    assert(job->source_count >= 1 && job->source_count <= REDUCE_SOURCES_MAX);
    assert(job->target_count >= 1 && job->target_count <= REDUCE_TARGETS_MAX);
    if (job->count == 0)
        return;
    if (!has_pre && !has_post && job->source_count == 1)
        copy_to_targets(job->sources[0], job->targets, job->target_count, 0,
                        job->count * hvd_dtype_bytes(job->dtype));
    else if (!has_pre && !has_post)
        reduce_plain(kernels, job, REDUCE_KERNEL_PLAIN);
    else if (is_float(job->dtype))
        reduce_plain(kernels, job, has_pre ? REDUCE_KERNEL_BOTH : REDUCE_KERNEL_POST);
    else
        reduce_scaled_integers(kernels, job);
}

void reduce_run(const struct reduce_job *job)
{
    run_with(isa_kernels_best(), job);
}

void reduce_run_isa(enum reduce_isa isa, const struct reduce_job *job)
{
    const struct reduce_kernels *kernels = isa_kernels(isa);
    run_with(kernels ? kernels : isa_kernels_best(), job);
}

void reduce_copy(hvd_dtype_t dtype, const void *from, void *to, size_t count, double factor)
{
    const struct reduce_job job = {
        .dtype = dtype,
        .op = HVD_SUM,
        .prescale = 1.0,
        .postscale = factor,
        .sources = &from,
        .source_count = 1,
        .targets = &to,
        .target_count = 1,
        .count = count,
    };
    reduce_run(&job);
}

void reduce_scale(hvd_dtype_t dtype, void *data, size_t count, double factor)
{
    reduce_copy(dtype, data, data, count, factor);
}

/* --- between 16 bits and float32, and sums that must not overflow on their way --- */

void reduce_widen(hvd_dtype_t narrow, const void *from, size_t count, double factor,
                  float *ret_floats)
{
    const struct reduce_kernels *kernels = isa_kernels_best();
    assert(narrow == HVD_FLOAT16 || narrow == HVD_BFLOAT16);
    (narrow == HVD_FLOAT16 ? kernels->widen_f16 : kernels->widen_bf16)(from, count, (float)factor,
                                                                       ret_floats);
}

void reduce_narrow(hvd_dtype_t narrow, const float *floats, size_t count, double factor,
                   void *ret_narrow)
{
    const struct reduce_kernels *kernels = isa_kernels_best();
    assert(narrow == HVD_FLOAT16 || narrow == HVD_BFLOAT16);
    (narrow == HVD_FLOAT16 ? kernels->narrow_f16 : kernels->narrow_bf16)(floats, count,
                                                                         (float)factor, ret_narrow);
}

/* An exponent of all ones carries into the sign when one is added to it. */
static bool is_finite_16(const uint16_t *bits, size_t count, uint16_t exponent_one)
{
    uint16_t any = 0;
    for (size_t i = 0; i < count; i++)
        any |= (uint16_t)((bits[i] & 0x7fff) + exponent_one);
    return (any & 0x8000) == 0;
}

static bool is_finite_32(const uint32_t *bits, size_t count)
{
    uint32_t any = 0;
    for (size_t i = 0; i < count; i++)
        any |= (bits[i] & 0x7fffffff) + (1u << 23);
    return (any & 0x80000000) == 0;
}

bool reduce_is_finite(hvd_dtype_t dtype, const void *values, size_t count)
{
    if (dtype == HVD_FLOAT32)
        return is_finite_32(values, count);
    return is_finite_16(values, count, dtype == HVD_FLOAT16 ? 1u << 10 : 1u << 7);
}

bool reduce_needs_width(hvd_dtype_t dtype, hvd_reduce_t op, double postscale)
{
    return dtype == HVD_FLOAT16 && op == HVD_SUM && postscale > -1.0 && postscale < 1.0;
}
