/* SPDX-License-Identifier: Apache-2.0 */
/* sim_rogue.c - see sim_rogue.h.
 *
 * A trial is rounds of collectives on all ranks, in each rank's own order. The rogue rank's engine
 * is an honest one; its transport's message_send() is replaced by one that mutates. */
#include "sim_rogue.h"

#include <stdio.h>
#include <string.h>

#include "engine/coordinator.h"
#include "engine/engine_private.h"
#include "engine/message.h"
#include "sim_world.h"

#define RANKS_MAX   6
#define OPS_MAX     8
#define ROUNDS_MAX  12
#define MESSAGE_MAX (64u << 10)
#define MS          1000000LL
#define WAIT_NS     (30000 * MS) /* far beyond the stall limit */
#define FLOATS      64
#define ALLOC_MAX   (64u << 20)

struct trial {
    struct transport_ops ops; /* of the rogue's transport; first, so that it leads here */
    const struct transport_ops *inner;
    const struct sim_rogue_options *options;
    struct sim_rogue_report *report;
    struct sim_world *world;
    const struct os *os;
    struct os
        limited; /* the same with little memory: absurd sizes must not depend on the machine */
    uint64_t random;
    uint32_t one_in; /* messages from one mutation to the next */
    int32_t ranks, rogue;
    bool has_subtree; /* other ranks' messages pass through the rogue */
    bool is_mutating;
    struct ticket *tickets[RANKS_MAX][OPS_MAX];
    float data[RANKS_MAX][OPS_MAX][FLOATS];
    uint8_t bytes[MESSAGE_MAX + 4096];
};

static uint64_t draw(struct trial *t, uint64_t below)
{
    return sim_splitmix(&t->random) % below;
}

/* ---- mutations ---- */

struct request sim_rogue_request(const char *name, int64_t count)
{
    return (struct request){.name = name,
                            .name_bytes = (uint32_t)strlen(name),
                            .reduce = HVD_SUM,
                            .dtype = HVD_FLOAT32,
                            .device = HVD_DEVICE_CPU,
                            .prescale = 1,
                            .postscale = 1,
                            .ndim = 1,
                            .shape = {count}};
}

/* A number near the right one, at an edge, or anything. */
static uint64_t odd_number(struct trial *t, uint64_t right)
{
    static const uint64_t edges[] = {0,          1,          2,          255,        256,
                                     0x7fffffff, 0x80000000, 0xffffffff, INT64_MAX,  UINT64_MAX,
                                     1u << 24,   1u << 16,   1ull << 40, 1ull << 60, 1000000};
    switch (draw(t, 4)) {
    case 0: return right + 1;
    case 1: return right - 1;
    case 2: return edges[draw(t, sizeof edges / sizeof edges[0])];
    default: return draw(t, UINT64_MAX);
    }
}

static uint32_t u32_at(const uint8_t *bytes)
{
    return bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 | (uint32_t)bytes[3] << 24;
}

static void u32_put(uint8_t *bytes, uint64_t value)
{
    for (int i = 0; i < 4; i++)
        bytes[i] = (uint8_t)(value >> (8 * i));
}

static void mutate_head(struct trial *t, uint8_t *b)
{
    switch (draw(t, 5)) {
    case 0: b[0] = (uint8_t)draw(t, 14); return;
    case 1: b[1] = (uint8_t)draw(t, 256); return;
    case 2: b[2] = (uint8_t)odd_number(t, b[2]); return;
    case 3: u32_put(b + 4, odd_number(t, u32_at(b + 4))); return;
    default: u32_put(b + 8, odd_number(t, u32_at(b + 8))); return;
    }
}

static size_t mutate_ready(struct trial *t, uint8_t *b, size_t n)
{
    uint32_t count = u32_at(b + 12);
    if (n < 20 || count == 0 || 16 + 4ull * count != n)
        return n;
    uint8_t *id = b + 16 + 4 * draw(t, count);
    switch (draw(t, 4)) {
    case 0: /* one twice */
        memcpy(b + n, id, 4);
        u32_put(b + 12, count + 1);
        return n + 4;
    case 1: u32_put(id, odd_number(t, u32_at(id))); return n;
    case 2: u32_put(b + 12, odd_number(t, count)); return n;
    default: /* one that it never submitted */
        u32_put(b + n, 1 + draw(t, 40));
        u32_put(b + 12, count + 1);
        return n + 4;
    }
}

static void mutate_field(struct trial *t, struct request *q)
{
    switch (draw(t, 16)) {
    case 0: q->rank = (int32_t)odd_number(t, (uint64_t)q->rank); return;
    case 1: q->kind = (uint8_t)draw(t, 20); return;
    case 2: q->dtype = (uint8_t)draw(t, 14); return;
    case 3: q->reduce = (uint8_t)draw(t, 8); return;
    case 4: q->root = (int32_t)odd_number(t, (uint64_t)q->root); return;
    case 5:
        q->device = (int32_t)draw(t, 3) - 1;
        q->memory = (uint8_t)draw(t, 3);
        return;
    case 6: q->group = (uint32_t)draw(t, 4); return;
    case 7: q->flags = (uint8_t)draw(t, 4); return;
    case 8: q->prescale = (double)draw(t, 3); return;
    case 9: q->ndim = (int32_t)draw(t, HVD_DIMS_MAX + 1); return;
    case 10:
    case 11: q->shape[draw(t, 2)] = (int64_t)odd_number(t, (uint64_t)q->shape[0]); return;
    case 12: q->name_bytes -= q->name_bytes > 1; return;
    case 13:
        q->payload = (const uint8_t *)q->name;
        q->payload_bytes = (uint32_t)draw(t, q->name_bytes + 1);
        return;
    case 14: q->wire = (uint8_t)draw(t, HVD_WIRE_COUNT + 1); return;
    default: q->postscale = (double)draw(t, 3); return;
    }
}

/* Requests are read and written again with one of them changed, doubled or left out. */
static size_t mutate_request(struct trial *t, uint8_t *b, size_t n)
{
    static uint8_t copy[MESSAGE_MAX + 4096];
    struct reader r;
    struct writer w;
    uint32_t count = n >= 16 ? u32_at(b + 12) : 0;
    if (count == 0)
        return n;
    memcpy(copy, b, n);
    reader_init(&r, copy + 16, n - 16);
    writer_init(&w, b + 16, MESSAGE_MAX - 16);
    uint64_t chosen = draw(t, count), what = draw(t, 5);
    for (uint32_t i = 0; i < count; i++) {
        struct request q;
        if (!message_request_get(&r, t->ranks, &q))
            return n;
        if (i == chosen && what == 0)
            continue;
        if (i == chosen && what == 1)
            message_request_put(&w, &q);
        if (i == chosen && what > 1)
            mutate_field(t, &q);
        message_request_put(&w, &q);
    }
    if (what < 2 && draw(t, 3) != 0)
        u32_put(b + 12, what == 0 ? count - 1 : count + 1);
    return w.bad ? n : 16 + w.used;
}

static void item_invent(struct trial *t, struct writer *w)
{
    uint64_t kind = 1 + draw(t, 11);
    put_u8(w, (uint8_t)kind);
    switch (kind) {
    case ITEM_BATCH:
    case ITEM_PLAN: {
        uint32_t count = 1 + (uint32_t)draw(t, 4);
        put_u32(w, count + (kind == ITEM_PLAN));
        for (uint32_t i = 0; i < count; i++)
            put_u32(w, (uint32_t)draw(t, 40));
        if (kind == ITEM_PLAN)
            put_u32(w, 0);
        return;
    }
    case ITEM_ERROR:
        put_text(w, "t0");
        put_u32(w, (uint32_t)(0 - draw(t, 45)));
        put_text(w, "made up");
        return;
    case ITEM_SET_ADD:
        put_u32(w, (uint32_t)odd_number(t, 1));
        put_u32(w, (uint32_t)odd_number(t, 2));
        put_u32(w, 1);
        put_u32(w, (uint32_t)draw(t, 4));
        return;
    case ITEM_DEFINE: {
        struct request q = sim_rogue_request("t1", FLOATS);
        put_u32(w, (uint32_t)draw(t, 60));
        message_request_put(w, &q);
        put_u8(w, 0);
        return;
    }
    case ITEM_TUNE:
        put_u8(w, (uint8_t)(1 + draw(t, 8) / 7));
        put_u64(w, draw(t, 3));
        put_i64(w, (int64_t)odd_number(t, 64));
        put_i64(w, (int64_t)odd_number(t, 1000));
        put_i64(w, (int64_t)odd_number(t, 0));
        put_u32(w, (uint32_t)odd_number(t, 4));
        put_u32(w, (uint32_t)odd_number(t, 100));
        return;
    case ITEM_RESET: return;
    default: put_u32(w, (uint32_t)draw(t, 40)); return;
    }
}

/* Where the next item begins; 0: it can't be read. */
static size_t item_end(const struct trial *t, const uint8_t *b, size_t at, size_t n)
{
    struct reader r;
    struct request q;
    char text[HVD_ERROR_MAX];
    reader_init(&r, b, n);
    r.at = at;
    uint8_t kind = get_u8(&r);
    uint32_t count;
    switch (kind) {
    case ITEM_DEFINE:
        get_u32(&r);
        if (!message_request_get(&r, t->ranks, &q))
            return 0;
        if (get_u8(&r) != 0)
            for (int32_t i = 0; i < t->ranks; i++)
                get_i64(&r);
        break;
    case ITEM_BATCH:
    case ITEM_PLAN:
        count = get_u32(&r);
        for (uint32_t i = 0; i < count && !r.bad; i++)
            get_u32(&r);
        break;
    case ITEM_ERROR:
        get_text(&r, text, sizeof text);
        get_u32(&r);
        get_text(&r, text, sizeof text);
        break;
    case ITEM_TUNE: r.at += 1 + 4 * 8 + 2 * 4; break;
    case ITEM_RESET: break;
    default: get_u32(&r); break;
    }
    return r.bad || r.at > n ? 0 : r.at;
}

static size_t mutate_response(struct trial *t, uint8_t *b, size_t n)
{
    static uint8_t copy[MESSAGE_MAX + 4096];
    size_t begin = MESSAGE_HEAD_BYTES, end = 0, at = MESSAGE_HEAD_BYTES;
    uint64_t seen = 0;
    memcpy(copy, b, n);
    while (at < n) { /* one of the items, each with equal chance */
        size_t next = item_end(t, copy, at, n);
        if (next == 0)
            return n;
        if (draw(t, ++seen) == 0) {
            begin = at;
            end = next;
        }
        at = next;
    }
    struct writer w;
    writer_init(&w, b, MESSAGE_MAX);
    put_bytes(&w, copy, begin);
    switch (draw(t, 4)) {
    case 0: put_bytes(&w, copy + end, n - end); break; /* left out */
    case 1:                                            /* twice */
        put_bytes(&w, copy + begin, end - begin);
        put_bytes(&w, copy + begin, n - begin);
        break;
    case 2: /* another in front of it */
        item_invent(t, &w);
        put_bytes(&w, copy + begin, n - begin);
        break;
    default: /* four bytes of it changed */
        put_bytes(&w, copy + begin, n - begin);
        if (end - begin > 5)
            u32_put(b + begin + 1 + draw(t, end - begin - 4),
                    odd_number(t, u32_at(copy + begin + 1)));
        break;
    }
    return w.bad ? n : w.used;
}

static size_t mutate_bytes(struct trial *t, uint8_t *b, size_t n)
{
    switch (draw(t, 4)) {
    case 0: return draw(t, n);
    case 1: b[draw(t, n)] ^= (uint8_t)(1u << draw(t, 8)); return n;
    case 2:
        for (size_t i = 0; i < 8; i++)
            b[n + i] = (uint8_t)draw(t, 256);
        return n + 1 + draw(t, 8);
    default:
        for (int i = 0; i < 3; i++)
            b[draw(t, n)] = (uint8_t)draw(t, 256);
        return n;
    }
}

/* An unsolicited message. */
static size_t message_invent(struct trial *t, uint8_t *b)
{
    struct writer w;
    struct message_head head = {.type = (uint8_t)(1 + draw(t, 11)),
                                .flags = (uint8_t)draw(t, 2),
                                .incarnation = 1 + (uint32_t)draw(t, 2),
                                .generation = 1 + (uint32_t)draw(t, 3)};
    writer_init(&w, b, 256);
    message_head_put(&w, &head);
    if (head.type == MESSAGE_RESPONSE) {
        item_invent(t, &w);
        return w.used;
    }
    for (uint64_t i = draw(t, 6); i > 0; i--)
        put_u32(&w, (uint32_t)draw(t, 5));
    return w.used;
}

static size_t mutate(struct trial *t, uint8_t *b, size_t n)
{
    uint8_t type = b[0];
    uint64_t how = draw(t, 10);
    if (how == 0)
        return mutate_bytes(t, b, n);
    if (how <= 2) {
        mutate_head(t, b);
        return n;
    }
    if (how == 3)
        return message_invent(t, b);
    if (type == MESSAGE_READY)
        return mutate_ready(t, b, n);
    if (type == MESSAGE_REQUEST)
        return mutate_request(t, b, n);
    if (type == MESSAGE_RESPONSE)
        return mutate_response(t, b, n);
    return mutate_bytes(t, b, n);
}

static hvd_status_t rogue_send(struct transport *transport, int32_t peer, const void *bytes,
                               size_t n)
{
    struct trial *t = (struct trial *)(uintptr_t)transport->ops;
    uint8_t type = ((const uint8_t *)bytes)[0];
    if (!t->is_mutating || n > MESSAGE_MAX || n < MESSAGE_HEAD_BYTES || type == MESSAGE_ABORT ||
        draw(t, t->one_in) != 0)
        return t->inner->message_send(transport, peer, bytes, n);
    t->report->mutated++;
    uint64_t how = draw(t, 8);
    memcpy(t->bytes, bytes, n);
    size_t changed = how == 0 ? n : mutate(t, t->bytes, n);
    sim_trace(t->options->trace,
              "rogue rank %d to %d: message %d of %zu bytes, %s as type %d, %zu bytes", t->rogue,
              peer, type, n, how <= 1 ? "sent, and" : "sent", t->bytes[0], changed);
    if (how <= 1) { /* the right one too: before the other, or twice */
        hvd_status_t status = t->inner->message_send(transport, peer, bytes, n);
        if (status != HVD_OK)
            return status;
    }
    hvd_status_t status = t->inner->message_send(transport, peer, t->bytes, changed);
    return how <= 1 ? HVD_OK : status;
}

/* ---- the job ---- */

static void *limited_alloc(void *ctx, size_t bytes)
{
    const struct trial *t = ctx;
    return bytes > ALLOC_MAX ? NULL : t->os->alloc(t->os->ctx, bytes);
}

static void *limited_resize(void *ctx, void *ptr, size_t bytes)
{
    const struct trial *t = ctx;
    return bytes > ALLOC_MAX ? NULL : t->os->resize(t->os->ctx, ptr, bytes);
}

static void limited_free(void *ctx, void *ptr)
{
    const struct trial *t = ctx;
    t->os->free(t->os->ctx, ptr);
}

static bool submit(struct trial *t, int32_t rank, int32_t number, hvd_kind_t kind, bool is_named)
{
    char name[16];
    struct error error = {0};
    int64_t shape[1] = {FLOATS / 2};
    if (kind == HVD_ALLTOALL || kind == HVD_REDUCESCATTER)
        shape[0] = t->ranks * 4;
    if (kind == HVD_ALLGATHER)
        shape[0] = 1 + rank;
    snprintf(name, sizeof name, "t%d", number);
    hvd_op_t op = {.struct_size = sizeof op,
                   .kind = kind,
                   .name = is_named ? name : NULL,
                   .reduce = HVD_SUM,
                   .prescale = 1,
                   .postscale = 1,
                   .input = {t->data[rank][number], shape, 1, HVD_FLOAT32, HVD_DEVICE_CPU}};
    op.output = op.input;
    if (kind != HVD_ALLREDUCE && kind != HVD_BROADCAST)
        op.output.data = NULL;
    struct engine *engine = sim_world_engine(t->world, rank);
    hvd_status_t status = submit_ops(engine, &op, 1, &t->tickets[rank][number], &error);
    sim_world_wake(t->world, rank, 0);
    return status == HVD_OK;
}

static void set_change(struct trial *t, int32_t rank, int32_t number, bool is_add)
{
    struct error error = {0};
    const int32_t ranks[2] = {0, t->ranks - 1};
    submit_set_change(sim_world_engine(t->world, rank), is_add ? ranks : NULL, 2, 1,
                      &t->tickets[rank][number], &error);
    sim_world_wake(t->world, rank, 0);
}

static hvd_kind_t kind_of(struct trial *t)
{
    static const hvd_kind_t kinds[] = {HVD_ALLREDUCE,     HVD_ALLREDUCE, HVD_ALLREDUCE,
                                       HVD_ALLGATHER,     HVD_BROADCAST, HVD_ALLTOALL,
                                       HVD_REDUCESCATTER, HVD_BARRIER};
    return kinds[draw(t, sizeof kinds / sizeof kinds[0])];
}

static void round_submit(struct trial *t, const hvd_kind_t *kinds, int32_t ops, uint64_t special)
{
    for (int32_t rank = 0; rank < t->ranks; rank++) {
        uint64_t first = draw(t, (uint64_t)ops);
        for (int32_t i = 0; i < ops; i++) {
            int32_t number = (int32_t)(((uint64_t)i + first) % (uint64_t)ops);
            submit(t, rank, number, kinds[number], number % 4 != 3);
        }
        if (special == 1 || special == 2)
            set_change(t, rank, OPS_MAX - 1, special == 1);
        if (special == 3)
            submit(t, rank, OPS_MAX - 1, HVD_JOIN, false);
        atomic_store(&sim_world_engine(t->world, rank)->waiters, (int32_t)draw(t, 2));
    }
}

static bool is_waiting(const struct trial *t, int32_t *ret_rank, int32_t *ret_number)
{
    for (int32_t rank = 0; rank < t->ranks; rank++)
        for (int32_t i = 0; i < OPS_MAX; i++)
            if (rank != t->rogue && t->tickets[rank][i] != NULL &&
                atomic_load(&t->tickets[rank][i]->state) == HVD_IN_PROGRESS) {
                *ret_rank = rank;
                *ret_number = i;
                return true;
            }
    return false;
}

static bool names_rank(const struct trial *t, const char *text)
{
    char name[24];
    for (int32_t rank = 0; rank < t->ranks; rank++) {
        snprintf(name, sizeof name, "rank %d", rank);
        if ((t->has_subtree || rank == t->rogue) && strstr(text, name) != NULL)
            return true;
    }
    return false;
}

static void ticket_check(struct trial *t, int32_t rank, struct ticket *ticket)
{
    hvd_status_t status = ticket_status(ticket);
    const char *text = ticket_error(ticket);
    t->report->ops++;
    if (status == HVD_OK)
        return;
    t->report->errors++;
    if (status != HVD_ERR_CORRUPT)
        return;
    t->report->refused++;
    if (!names_rank(t, text))
        sim_violate(&t->report->verdict, "rank %d: the error does not name rank %d: %s", rank,
                    t->rogue, text);
}

/* Ranks wait for a coordinator that does not respond (or requests shutdown from some ranks only), a
 * relay that does not forward, a rank that does not join or does not report its position in a plan:
 * there is no message to reject, so the time limits on silent ranks apply. Once anything has been
 * rejected, all ranks must know. */
static bool is_silence(const struct trial *t, int32_t number)
{
    bool is_halting = false;
    for (int32_t rank = 0; rank < t->ranks; rank++) {
        const struct engine *engine = sim_world_engine(t->world, rank);
        const struct coordinator *c = engine->sets[0] != NULL ? engine->sets[0]->coordinator : NULL;
        is_halting = is_halting || (c != NULL && c->is_halting);
        for (int32_t i = 0; i < engine->member_count; i++)
            if (engine->members[i]->broken != HVD_OK &&
                engine->members[i]->broken != HVD_ERR_SHUTDOWN)
                return false;
    }
    return t->has_subtree || is_halting || number == OPS_MAX - 1;
}

/* false: a rank waits forever. */
static bool round_end(struct trial *t)
{
    int32_t rank = 0, number = 0;
    int64_t limit_ns = sim_world_now_ns(t->world) + WAIT_NS;
    while (is_waiting(t, &rank, &number) && sim_world_now_ns(t->world) < limit_ns)
        sim_world_step(t->world, limit_ns);
    for (int64_t end_ns = sim_world_now_ns(t->world) + 20 * MS; sim_world_step(t->world, end_ns);) {
    }
    if (is_waiting(t, &rank, &number)) {
        if (is_silence(t, number)) {
            t->report->silent++;
            return false;
        }
        sim_violate(&t->report->verdict, "rank %d waits for ever for op %d (set broken: %d)", rank,
                    number, (int)engine_broken(sim_world_engine(t->world, rank)));
        return false;
    }
    for (rank = 0; rank < t->ranks; rank++)
        for (number = 0; number < OPS_MAX; number++) {
            struct ticket *ticket = t->tickets[rank][number];
            if (ticket == NULL || ticket_status(ticket) == HVD_IN_PROGRESS)
                continue; /* the rogue's own */
            if (rank != t->rogue)
                ticket_check(t, rank, ticket);
            if (t->options->trace != NULL && ticket_status(ticket) != HVD_OK)
                sim_trace(t->options->trace, "rank %d op %d: %d %s", rank, number,
                          (int)ticket_status(ticket), ticket_error(ticket));
            ticket_release(sim_world_engine(t->world, rank), ticket);
            t->tickets[rank][number] = NULL;
        }
    return true;
}

static bool has_broken(const struct trial *t)
{
    for (int32_t rank = 0; rank < t->ranks; rank++) {
        if (engine_broken(sim_world_engine(t->world, rank)) != HVD_OK)
            return true;
    }
    return false;
}

static void rounds_run(struct trial *t)
{
    hvd_kind_t kinds[OPS_MAX];
    int32_t ops = 1 + (int32_t)draw(t, OPS_MAX - 2);
    uint64_t rounds = 3 + draw(t, ROUNDS_MAX - 3), begin = draw(t, rounds);
    bool has_set = false;
    for (int32_t i = 0; i < OPS_MAX; i++)
        kinds[i] = kind_of(t);
    for (uint64_t i = 0; i < rounds && !has_broken(t); i++) {
        uint64_t special = draw(t, 8);
        t->is_mutating = i >= begin;
        if (special == 1 || special == 2) {
            special = has_set ? 2 : 1;
            has_set = !has_set;
        }
        round_submit(t, kinds, ops, special);
        if (!round_end(t))
            return;
    }
}

static bool trial_open(struct trial *t, const struct sim_rogue_options *options)
{
    struct config config;
    struct error error = {0};
    if (sim_world_config(t->os, &config, &error) != HVD_OK)
        return false;
    config.plan_warmup_steps = 2;
    config.stall_check_time_s = 1;
    config.stall_shutdown_time_s = 2;
    config.hung_warn_s = 1;
    config.cache_capacity = draw(t, 4) == 0 ? 2 : 1024;
    t->ranks = 2 + (int32_t)draw(t, RANKS_MAX - 1);
    t->rogue = (int32_t)draw(t, (uint64_t)t->ranks);
    struct sim_world_options world = {.seed = options->seed,
                                      .ranks = t->ranks,
                                      .hosts = 1 + (int32_t)draw(t, (uint64_t)t->ranks),
                                      .is_in_sight = draw(t, 2) == 0,
                                      .delay_min_ns = 1000,
                                      .delay_max_ns = 1000 + (int64_t)draw(t, 100000),
                                      .turn_max_ns = draw(t, 2) == 0 ? 0 : 20000,
                                      .config = &config};
    t->limited = *t->os;
    t->limited.ctx = t;
    t->limited.alloc = limited_alloc;
    t->limited.resize = limited_resize;
    t->limited.free = limited_free;
    t->world = sim_world_create(&t->limited, &world, &error);
    if (t->world == NULL)
        return false;
    struct engine *engine = sim_world_engine(t->world, t->rogue);
    struct transport *transport = engine->options.transports[0];
    t->has_subtree = engine->sets[0]->child_count > 0;
    t->inner = transport->ops;
    t->ops = *transport->ops;
    t->ops.message_send = rogue_send;
    transport->ops = &t->ops;
    t->one_in = 1u << draw(t, 6);
    return true;
}

void sim_rogue_add(struct sim_rogue_report *sum, const struct sim_rogue_report *report)
{
    sum->messages += report->messages;
    sum->mutated += report->mutated;
    sum->ops += report->ops;
    sum->errors += report->errors;
    sum->refused += report->refused;
    sum->silent += report->silent;
}

bool sim_rogue_run(const struct os *os, const struct sim_rogue_options *options,
                   struct sim_rogue_report *ret)
{
    memset(ret, 0, sizeof *ret);
    ret->verdict.is_ok = true;
    struct trial *t = os_alloc(os, sizeof *t);
    if (t == NULL)
        return false;
    t->os = os;
    t->options = options;
    t->report = ret;
    t->random = options->seed * 0x2545f4914f6cdd1du + 77;
    if (trial_open(t, options))
        rounds_run(t);
    else
        sim_violate(&t->report->verdict, "the world could not be made");
    ret->ranks = t->ranks;
    ret->rogue = t->rogue;
    if (t->world != NULL) {
        const char *violation = sim_world_violation(t->world);
        if (violation != NULL && !t->has_subtree)
            sim_violate(&t->report->verdict, "%s", violation);
        ret->messages = sim_net_messages(sim_world_net(t->world));
        sim_world_destroy(t->world);
    }
    os_free(os, t);
    return ret->verdict.is_ok;
}
