/* SPDX-License-Identifier: Apache-2.0 */
/* message.c - see message.h. Everything a peer sends is checked here against limits before it is
 * used. */
#include "engine/message.h"

#include <stdio.h>
#include <string.h>

#define PAYLOAD_MAX (1u << 18)

void message_head_put(struct writer *w, const struct message_head *head)
{
    put_u8(w, head->type);
    put_u8(w, head->flags);
    put_u16(w, head->set);
    put_u32(w, head->incarnation);
    put_u32(w, head->generation);
}

bool message_head_get(struct reader *r, struct message_head *ret)
{
    ret->type = get_u8(r);
    ret->flags = get_u8(r);
    ret->set = get_u16(r);
    ret->incarnation = get_u32(r);
    ret->generation = get_u32(r);
    return !r->bad && ret->type >= MESSAGE_READY && ret->type <= MESSAGE_PACE &&
           ret->set < HVD_PROCESS_SETS_MAX;
}

void message_request_put(struct writer *w, const struct request *request)
{
    put_blob(w, request->name, request->name_bytes);
    put_u8(w, request->kind);
    put_u8(w, request->dtype);
    put_u8(w, request->reduce);
    put_u8(w, request->flags);
    put_u32(w, (uint32_t)request->rank);
    put_u32(w, (uint32_t)request->root);
    put_u32(w, (uint32_t)request->device);
    put_u8(w, request->memory);
    put_u8(w, request->wire);
    put_u32(w, request->group);
    put_u32(w, request->waited_ms);
    put_f64(w, request->prescale);
    put_f64(w, request->postscale);
    put_u8(w, (uint8_t)request->ndim);
    for (int32_t i = 0; i < request->ndim; i++)
        put_i64(w, request->shape[i]);
    put_blob(w, request->payload, request->payload_bytes);
}

bool message_wire_is_sane(uint8_t kind, uint8_t dtype, uint8_t reduce, uint8_t wire)
{
    if (wire == HVD_WIRE_SAME)
        return true;
    return wire < HVD_WIRE_COUNT && kind == HVD_ALLREDUCE && dtype == HVD_FLOAT32 &&
           (reduce == HVD_SUM || reduce == HVD_AVERAGE);
}

/* Fields without a meaning for a kind have one value each: ranks then agree exactly if the senders
 * wrote the same, and a rank can't make others disagree through an unused field. */
static bool is_canonical(const struct request *q)
{
    bool is_reduced = q->kind == HVD_ALLREDUCE || q->kind == HVD_REDUCESCATTER;
    if (q->kind != HVD_BROADCAST && q->root != 0)
        return false;
    if (q->kind != HVD_ALLREDUCE && q->reduce != HVD_SUM)
        return false;
    if (!is_reduced && (q->prescale != 1.0 || q->postscale != 1.0))
        return false;
    if ((q->kind == HVD_BARRIER || q->kind == HVD_JOIN) &&
        (q->ndim != 0 || q->dtype != HVD_INT32 || q->memory != HVD_MEMORY_HOST))
        return false;
    if (!message_wire_is_sane(q->kind, q->dtype, q->reduce, q->wire))
        return false;
    if (q->device < 0 || (q->memory == HVD_MEMORY_HOST && q->device != HVD_DEVICE_CPU))
        return false;
    return q->payload_bytes == 0;
}

static bool set_change_is_sane(const struct request *q)
{
    size_t most = q->kind == KIND_SET_REMOVE ? 4 : q->kind == KIND_SET_CLOSE ? 8 : PAYLOAD_MAX;
    size_t least = q->kind == KIND_SET_CLOSE ? 8 : 4;
    return q->payload_bytes % 4 == 0 && q->payload_bytes >= least && q->payload_bytes <= most &&
           q->dtype == 0 && q->reduce == 0 && q->root == 0 && q->ndim == 0 && q->wire == 0 &&
           q->memory == HVD_MEMORY_HOST && q->device == HVD_DEVICE_CPU && q->prescale == 1.0 &&
           q->postscale == 1.0;
}

static bool request_is_sane(const struct request *q, int32_t set_size)
{
    int64_t count;
    if (q->rank < 0 || q->rank >= set_size || q->name_bytes == 0 ||
        memchr(q->name, '\0', q->name_bytes) != NULL || (q->flags & ~REQUEST_TRANSIENT) != 0)
        return false;
    bool has_join_name =
        q->name_bytes == strlen(JOIN_NAME) && memcmp(q->name, JOIN_NAME, q->name_bytes) == 0;
    if (has_join_name != (q->kind == HVD_JOIN))
        return false;
    if (kind_is_set_change(q->kind))
        return set_change_is_sane(q);
    if (q->kind >= HVD_KIND_COUNT || q->dtype >= HVD_DTYPE_COUNT || q->reduce >= HVD_REDUCE_COUNT)
        return false;
    if (q->kind == HVD_BROADCAST && (q->root < 0 || q->root >= set_size))
        return false;
    return is_canonical(q) && shape_elements(q->ndim, q->shape, &count);
}

bool message_request_get(struct reader *r, int32_t set_size, struct request *ret)
{
    memset(ret, 0, sizeof *ret);
    size_t n = 0;
    ret->name = get_blob(r, HVD_NAME_MAX - 1, &n);
    ret->name_bytes = (uint32_t)n;
    ret->kind = get_u8(r);
    ret->dtype = get_u8(r);
    ret->reduce = get_u8(r);
    ret->flags = get_u8(r);
    ret->rank = (int32_t)get_u32(r);
    ret->root = (int32_t)get_u32(r);
    ret->device = (int32_t)get_u32(r);
    ret->memory = get_u8(r);
    ret->wire = get_u8(r);
    ret->group = get_u32(r);
    ret->waited_ms = get_u32(r);
    ret->prescale = get_f64(r);
    ret->postscale = get_f64(r);
    ret->ndim = get_u8(r);
    if (r->bad || ret->ndim > HVD_DIMS_MAX)
        return false;
    for (int32_t i = 0; i < ret->ndim; i++)
        ret->shape[i] = get_i64(r);
    ret->payload = get_blob(r, PAYLOAD_MAX, &n);
    ret->payload_bytes = (uint32_t)n;
    return !r->bad && request_is_sane(ret, set_size);
}

bool message_rows_bytes(const struct request *request, const int64_t *dim0, int32_t set_size,
                        uint64_t *ret_bytes)
{
    int64_t rows = 0, bytes = (int64_t)hvd_dtype_bytes((hvd_dtype_t)request->dtype);
    for (int32_t i = 0; i < set_size; i++)
        if (dim0[i] < 0 || __builtin_add_overflow(rows, dim0[i], &rows))
            return false;
    for (int32_t i = 1; i < request->ndim; i++)
        if (__builtin_mul_overflow(bytes, request->shape[i], &bytes))
            return false;
    if (__builtin_mul_overflow(bytes, rows, &bytes))
        return false;
    *ret_bytes = (uint64_t)bytes;
    return true;
}
