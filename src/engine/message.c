/* SPDX-License-Identifier: Apache-2.0 */
/* message.c - see message.h. Everything a peer sends is checked here against limits before it is
 * used. */
#include "engine/message.h"

#include <stdio.h>
#include <string.h>

#define PAYLOAD_MAX (1u << 18)

void head_put(struct writer *w, const struct message_head *head)
{
    put_u8(w, head->type);
    put_u8(w, head->flags);
    put_u16(w, head->set);
    put_u32(w, head->incarnation);
    put_u32(w, head->generation);
}

bool head_get(struct reader *r, struct message_head *ret)
{
    ret->type = get_u8(r);
    ret->flags = get_u8(r);
    ret->set = get_u16(r);
    ret->incarnation = get_u32(r);
    ret->generation = get_u32(r);
    return !r->bad && ret->type >= MESSAGE_READY && ret->type <= MESSAGE_LEAVE &&
           ret->set < HVD_PROCESS_SETS_MAX;
}

void request_put(struct writer *w, const struct request *request)
{
    put_blob(w, request->name, request->name_bytes);
    put_u8(w, request->kind);
    put_u8(w, request->dtype);
    put_u8(w, request->reduce);
    put_u8(w, request->flags);
    put_u32(w, (uint32_t)request->rank);
    put_u32(w, (uint32_t)request->root);
    put_u32(w, (uint32_t)request->device);
    put_u32(w, request->group);
    put_f64(w, request->prescale);
    put_f64(w, request->postscale);
    put_u8(w, (uint8_t)request->ndim);
    for (int32_t i = 0; i < request->ndim; i++)
        put_i64(w, request->shape[i]);
    put_blob(w, request->payload, request->payload_bytes);
}

static bool request_is_sane(const struct request *q, int32_t set_size)
{
    int64_t count;
    if (q->rank < 0 || q->rank >= set_size || q->name_bytes == 0)
        return false;
    if (q->kind == KIND_SET_ADD || q->kind == KIND_SET_REMOVE)
        return q->payload_bytes % 4 == 0;
    if (q->kind >= HVD_KIND_COUNT || q->dtype >= HVD_DTYPE_COUNT || q->reduce >= HVD_REDUCE_COUNT)
        return false;
    if (q->kind == HVD_BROADCAST && (q->root < 0 || q->root >= set_size))
        return false;
    return shape_elements(q->ndim, q->shape, &count);
}

bool request_get(struct reader *r, int32_t set_size, struct request *ret)
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
    ret->group = get_u32(r);
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

bool shape_elements(int32_t ndim, const int64_t *shape, int64_t *ret_count)
{
    if (ndim < 0 || ndim > HVD_DIMS_MAX)
        return false;
    int64_t count = 1;
    for (int32_t i = 0; i < ndim; i++)
        if (shape[i] < 0 || __builtin_mul_overflow(count, shape[i], &count))
            return false;
    if (count > INT64_MAX / 8)
        return false;
    *ret_count = count;
    return true;
}

void shape_format(int32_t ndim, const int64_t *shape, char *ret_text, size_t bytes)
{
    size_t at = 0;
    if (bytes == 0)
        return;
    ret_text[0] = '\0';
    for (int32_t i = 0; i <= ndim && at < bytes; i++) {
        int n;
        if (i == ndim)
            n = snprintf(ret_text + at, bytes - at, ndim == 0 ? "[]" : "]");
        else
            n = snprintf(ret_text + at, bytes - at, "%s%lld", i == 0 ? "[" : ", ",
                         (long long)shape[i]);
        at += n > 0 ? (size_t)n : 0;
    }
}

const char *kind_name(uint8_t kind, uint8_t reduce)
{
    static const char *const names[HVD_KIND_COUNT] = {
        [HVD_ALLREDUCE] = "ALLREDUCE",        [HVD_ALLGATHER] = "ALLGATHER",
        [HVD_BROADCAST] = "BROADCAST",        [HVD_JOIN] = "JOIN",
        [HVD_ALLTOALL] = "ALLTOALL",          [HVD_BARRIER] = "BARRIER",
        [HVD_REDUCESCATTER] = "REDUCESCATTER"};
    if (kind == HVD_ALLREDUCE && reduce == HVD_ADASUM)
        return "ADASUM";
    if (kind == KIND_SET_ADD || kind == KIND_SET_REMOVE)
        return "PROCESS_SET";
    return kind < HVD_KIND_COUNT ? names[kind] : "UNKNOWN";
}

const char *kind_negotiate_name(uint8_t kind, uint8_t reduce)
{
    static const char *const names[HVD_KIND_COUNT] = {
        [HVD_ALLREDUCE] = "NEGOTIATE_ALLREDUCE",        [HVD_ALLGATHER] = "NEGOTIATE_ALLGATHER",
        [HVD_BROADCAST] = "NEGOTIATE_BROADCAST",        [HVD_JOIN] = "NEGOTIATE_JOIN",
        [HVD_ALLTOALL] = "NEGOTIATE_ALLTOALL",          [HVD_BARRIER] = "NEGOTIATE_BARRIER",
        [HVD_REDUCESCATTER] = "NEGOTIATE_REDUCESCATTER"};
    if (kind == HVD_ALLREDUCE && reduce == HVD_ADASUM)
        return "NEGOTIATE_ADASUM";
    return kind < HVD_KIND_COUNT ? names[kind] : "NEGOTIATE_PROCESS_SET";
}
