/* SPDX-License-Identifier: Apache-2.0 */
/* kind.c - see kind.h. */
#include "engine/kind.h"

#include "horovod/hvd.h"

#define NEGOTIATE "NEGOTIATE_"

struct kind_row {
    const char *title, *prefix;
    const char *negotiate; /* NEGOTIATE and the name */
};

static const struct kind_row rows[HVD_KIND_COUNT] = {
    [HVD_ALLREDUCE] = {"Allreduce", "allreduce", NEGOTIATE "ALLREDUCE"},
    [HVD_ALLGATHER] = {"Allgather", "allgather", NEGOTIATE "ALLGATHER"},
    [HVD_BROADCAST] = {"Broadcast", "broadcast", NEGOTIATE "BROADCAST"},
    [HVD_JOIN] = {"Join", "join", NEGOTIATE "JOIN"},
    [HVD_ALLTOALL] = {"Alltoall", "alltoall", NEGOTIATE "ALLTOALL"},
    [HVD_BARRIER] = {"Barrier", "barrier", NEGOTIATE "BARRIER"},
    [HVD_REDUCESCATTER] = {"Reducescatter", "reducescatter", NEGOTIATE "REDUCESCATTER"}};
static const struct kind_row adasum = {"Allreduce", "allreduce", NEGOTIATE "ADASUM"};
static const struct kind_row set_change = {"Process set", "process_set", NEGOTIATE "PROCESS_SET"};
static const struct kind_row sending = {"Send", "send", NEGOTIATE "SEND"};
static const struct kind_row receiving = {"Receive", "recv", NEGOTIATE "RECV"};
static const struct kind_row unknown = {"Unknown", "unknown", NEGOTIATE "UNKNOWN"};

bool kind_is_set_change(uint8_t kind)
{
    return kind == KIND_SET_ADD || kind == KIND_SET_REMOVE || kind == KIND_SET_OPEN ||
           kind == KIND_SET_CLOSE;
}

static const struct kind_row *row_of(uint8_t kind, uint8_t reduce)
{
    if (kind == HVD_ALLREDUCE && reduce == HVD_ADASUM)
        return &adasum;
    if (kind_is_set_change(kind))
        return &set_change;
    if (kind == KIND_SEND || kind == KIND_RECV)
        return kind == KIND_SEND ? &sending : &receiving;
    return kind < HVD_KIND_COUNT ? &rows[kind] : &unknown;
}

const char *kind_title(uint8_t kind)
{
    return row_of(kind, HVD_SUM)->title;
}

const char *kind_prefix(uint8_t kind)
{
    return row_of(kind, HVD_SUM)->prefix;
}

const char *kind_name(uint8_t kind, uint8_t reduce)
{
    return row_of(kind, reduce)->negotiate + sizeof NEGOTIATE - 1;
}

const char *kind_negotiate_name(uint8_t kind, uint8_t reduce)
{
    return row_of(kind, reduce)->negotiate;
}
