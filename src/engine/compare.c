/* SPDX-License-Identifier: Apache-2.0 */
/* compare.c - do the requests of two ranks for a name match? If not, the sentences are those of
 * 0.28.1.
 *
 * Thread: any (pure).  Start reading at compare_requests(). */
#include "engine/compare.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "engine/engine_private.h"
#include "engine/shape.h"
#include "reduce/reduce.h"

static const char *memory_name(const struct request *q)
{
    return q->memory == HVD_MEMORY_HOST ? "CPU" : "GPU";
}

static const char *reduce_name(uint8_t reduce)
{
    static const char *const names[] = {
        [HVD_AVERAGE] = "Average", [HVD_SUM] = "Sum", [HVD_ADASUM] = "Adasum",
        [HVD_MIN] = "Min",         [HVD_MAX] = "Max", [HVD_PRODUCT] = "Product"};
    const char *name = reduce < sizeof names / sizeof names[0] ? names[reduce] : NULL;
    return name != NULL ? name : "unknown";
}

__attribute__((format(printf, 2, 3))) static void set_value(char *ret, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    vsnprintf(ret, sizeof((struct difference *)NULL)->values[0], format, list);
    va_end(list);
}

static bool compare_basics(const struct request *a, const struct request *b, struct difference *d)
{
    const char *ka = kind_name(a->kind, a->reduce), *kb = kind_name(b->kind, b->reduce);
    char *va = d->values[0], *vb = d->values[1];
    if (a->dtype != b->dtype) {
        set_value(va, "%s", hvd_dtype_name((hvd_dtype_t)a->dtype));
        set_value(vb, "%s", hvd_dtype_name((hvd_dtype_t)b->dtype));
        snprintf(d->text, sizeof d->text,
                 "Mismatched data types: One rank had type %s, but another rank had type %s.", va,
                 vb);
    } else if (strcmp(ka, kb) != 0) {
        set_value(va, "%s", ka);
        set_value(vb, "%s", kb);
        snprintf(d->text, sizeof d->text,
                 "Mismatched operations: One rank did an %s, but another rank did an %s.", ka, kb);
    } else if ((a->memory == HVD_MEMORY_HOST) != (b->memory == HVD_MEMORY_HOST)) {
        set_value(va, "%s", memory_name(a));
        set_value(vb, "%s", memory_name(b));
        snprintf(d->text, sizeof d->text,
                 "Mismatched %s CPU/GPU device selection: One rank specified device %s, but "
                 "another rank specified device %s.",
                 ka, va, vb);
    } else if (a->memory != b->memory) {
        set_value(va, "memory kind %d", a->memory);
        set_value(vb, "memory kind %d", b->memory);
        snprintf(d->text, sizeof d->text,
                 "Mismatched %s kinds of memory: One rank had memory of kind %d, but another rank "
                 "had memory of kind %d.",
                 ka, a->memory, b->memory);
    } else {
        return true;
    }
    return false;
}

static bool compare_shape_exact(const struct request *a, const struct request *b,
                                struct difference *d)
{
    if (a->ndim == b->ndim && memcmp(a->shape, b->shape, (size_t)a->ndim * sizeof a->shape[0]) == 0)
        return true;
    shape_format(a->ndim, a->shape, d->values[0], sizeof d->values[0]);
    shape_format(b->ndim, b->shape, d->values[1], sizeof d->values[1]);
    snprintf(d->text, sizeof d->text,
             "Mismatched %s tensor shapes: One rank sent a tensor of shape %s, but another rank "
             "sent a tensor of shape %s.",
             kind_name(a->kind, a->reduce), d->values[0], d->values[1]);
    return false;
}

/* The first dimension may differ. */
static bool compare_shape_rows(const struct request *a, const struct request *b,
                               struct difference *d)
{
    const char *kind = kind_name(a->kind, a->reduce);
    int32_t i = 1;
    while (i < a->ndim && i < b->ndim && a->shape[i] == b->shape[i])
        i++;
    if (a->ndim == b->ndim && i >= a->ndim)
        return true;
    shape_format(a->ndim, a->shape, d->values[0], sizeof d->values[0]);
    shape_format(b->ndim, b->shape, d->values[1], sizeof d->values[1]);
    if (a->ndim != b->ndim)
        snprintf(d->text, sizeof d->text,
                 "Mismatched %s tensor shapes: One rank sent a tensor of rank %d, but another rank "
                 "sent a tensor of rank %d.",
                 kind, a->ndim, b->ndim);
    else
        snprintf(d->text, sizeof d->text,
                 "Mismatched %s tensor shapes: One rank sent a tensor with dimension %d equal to "
                 "%" PRId64 ", but another rank sent a tensor with dimension %d equal to %" PRId64
                 ".",
                 kind, i, a->shape[i], i, b->shape[i]);
    return false;
}

static bool compare_reduction(const struct request *a, const struct request *b,
                              struct difference *d)
{
    char *va = d->values[0], *vb = d->values[1];
    if (!factor_is_same(a->prescale, b->prescale) || !factor_is_same(a->postscale, b->postscale)) {
        set_value(va, "factors (%g, %g)", a->prescale, a->postscale);
        set_value(vb, "factors (%g, %g)", b->prescale, b->postscale);
        snprintf(d->text, sizeof d->text,
                 "Mismatched prescale and/or postscale factors: One rank sent %s, but another rank "
                 "sent %s.",
                 va, vb);
        return false;
    }
    if (a->kind == HVD_ALLREDUCE && a->reduce != b->reduce) {
        set_value(va, "%s", reduce_name(a->reduce));
        set_value(vb, "%s", reduce_name(b->reduce));
        snprintf(d->text, sizeof d->text,
                 "Mismatched reduction operation: One rank sent reduction op %s, but another rank "
                 "sent reduction op %s.",
                 va, vb);
        return false;
    }
    if (a->wire != b->wire) {
        set_value(va, "%s", hvd_dtype_name(reduce_wire_dtype((hvd_wire_t)a->wire)));
        set_value(vb, "%s", hvd_dtype_name(reduce_wire_dtype((hvd_wire_t)b->wire)));
        snprintf(d->text, sizeof d->text,
                 "Mismatched compression: One rank sends its values as %s, but another rank sends "
                 "them as %s.",
                 va, vb);
        return false;
    }
    return true;
}

static bool compare_root(const struct procset *set, const struct request *a,
                         const struct request *b, struct difference *d)
{
    if (a->root == b->root)
        return true;
    set_value(d->values[0], "root rank %d", set->ranks[a->root]);
    set_value(d->values[1], "root rank %d", set->ranks[b->root]);
    snprintf(d->text, sizeof d->text,
             "Mismatched BROADCAST root ranks: One rank specified %s, but another rank specified "
             "%s.",
             d->values[0], d->values[1]);
    return false;
}

bool compare_requests(const struct procset *set, const struct request *a, const struct request *b,
                      struct difference *ret)
{
    if (!compare_basics(a, b, ret))
        return false;
    switch (a->kind) {
    case HVD_ALLREDUCE:
    case HVD_REDUCESCATTER: return compare_shape_exact(a, b, ret) && compare_reduction(a, b, ret);
    case HVD_BROADCAST: return compare_shape_exact(a, b, ret) && compare_root(set, a, b, ret);
    case HVD_ALLGATHER:
    case HVD_ALLTOALL: return compare_shape_rows(a, b, ret);
    default: return true;
    }
}

bool compare_payload(const struct request *a, const struct request *b, struct difference *ret)
{
    if (a->payload_bytes == b->payload_bytes &&
        (b->payload_bytes == 0 || memcmp(a->payload, b->payload, b->payload_bytes) == 0))
        return true;
    ret->values[0][0] = ret->values[1][0] = '\0';
    snprintf(ret->text, sizeof ret->text,
             "Attempted to register process set with mismatching %s on different ranks",
             a->payload_bytes != b->payload_bytes ? "size" : "values");
    return false;
}
