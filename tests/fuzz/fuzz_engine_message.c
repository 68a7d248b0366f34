/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_engine_message.c - control messages of a rogue peer that has the key: whatever it sends, the
 * engine neither crashes nor reads out of bounds. The input is split into messages; two engines
 * receive them, a coordinator and an ordinary member, with their own pending ops. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "backend/backend.h"
#include "engine/engine_private.h"

#define RANKS 3

/* A transport that swallows everything and a backend whose collectives end at once. */
static bool reaches(const struct transport *t, int32_t peer)
{
    (void)t;
    (void)peer;
    return true;
}
static hvd_status_t message_send(struct transport *t, int32_t peer, const void *bytes, size_t n)
{
    (void)t;
    (void)peer;
    (void)bytes;
    (void)n;
    return HVD_OK;
}
static bool progress(struct transport *t, int64_t now_ns)
{
    (void)t;
    (void)now_ns;
    return false;
}
static const struct transport_ops null_ops = {.version = TRANSPORT_VERSION,
                                              .name = "null",
                                              .reaches = reaches,
                                              .message_send = message_send,
                                              .progress = progress};

static hvd_status_t group_open(struct backend *b, const struct group *g, struct backend_group **ret,
                               struct error *error)
{
    (void)b;
    (void)g;
    (void)error;
    *ret = NULL;
    return HVD_OK;
}
static void group_close(struct backend *b, struct backend_group *g)
{
    (void)b;
    (void)g;
}
static hvd_status_t start(struct backend *b, struct backend_group *g, const struct coll *coll,
                          struct error *error)
{
    (void)b;
    (void)g;
    (void)error;
    for (int32_t i = 0; i < coll->part_count; i++)
        if (coll->parts[i].in == NULL && coll->parts[i].count > 0)
            abort();
    return HVD_OK;
}
static hvd_status_t step(struct backend *b, struct backend_group *g, bool *ret_moved,
                         struct error *error)
{
    (void)b;
    (void)g;
    (void)error;
    *ret_moved = true;
    return HVD_OK;
}
static void reset(struct backend *b, struct backend_group *g, uint64_t base)
{
    (void)b;
    (void)g;
    (void)base;
}
static const char *activity(const struct backend_group *g, hvd_kind_t kind)
{
    (void)g;
    (void)kind;
    return "NONE";
}
static const struct backend_ops backend_ops = {.version = BACKEND_VERSION,
                                               .name = "null",
                                               .group_open = group_open,
                                               .group_close = group_close,
                                               .start = start,
                                               .progress = step,
                                               .reset = reset,
                                               .activity = activity};

static void submit(struct engine *engine, const char *name, hvd_kind_t kind, float *data)
{
    static const int64_t shape[1] = {3};
    hvd_op_t op = {.struct_size = sizeof op,
                   .kind = kind,
                   .name = name,
                   .reduce = HVD_SUM,
                   .prescale = 1,
                   .postscale = 1};
    struct ticket *ticket;
    struct error error = {0};
    op.input = (hvd_tensor_t){
        .data = data, .shape = shape, .ndim = 1, .dtype = HVD_FLOAT32, .device = HVD_DEVICE_CPU};
    op.output = op.input;
    if (kind == HVD_ALLGATHER || kind == HVD_ALLTOALL || kind == HVD_REDUCESCATTER)
        op.output.data = NULL;
    if (submit_ops(engine, &op, 1, &ticket, &error) != HVD_OK && error.text[0] == '\0')
        abort();
}

static void feed(int32_t rank, const uint8_t *data, size_t size)
{
    static struct config config;
    static const int32_t host[RANKS] = {0, 0, 0};
    struct log log = {.level = LOG_FATAL};
    struct transport transport = {.ops = &null_ops, .os = os_host()};
    struct transport *routes[RANKS] = {&transport, &transport, &transport};
    struct backend backend = {.ops = &backend_ops, .os = os_host()};
    struct error error = {0};
    struct engine *engine = NULL;
    float values[3] = {1, 2, 3};
    config_load(os_host(), &config, NULL, NULL, &error);
    routes[rank] = NULL;
    struct engine_options options = {.os = os_host(),
                                     .config = &config,
                                     .log = &log,
                                     .rank = rank,
                                     .size = RANKS,
                                     .routes = routes,
                                     .transports = {&transport},
                                     .transport_count = 1,
                                     .host = host,
                                     .backend = &backend,
                                     .is_host_sight = true};
    if (engine_create(&options, &engine, &error) != HVD_OK)
        abort();
    if (sets_open(engine, NULL, NULL, 0, &error) != HVD_OK)
        abort();
    struct transport_events events = control_events(engine);
    int64_t now_ns = 1;
    size_t at = 0;
    for (int turn = 0; at + 3 <= size && turn < 64; turn++) {
        static const hvd_kind_t kinds[] = {HVD_ALLREDUCE, HVD_ALLGATHER,     HVD_BROADCAST,
                                           HVD_ALLTOALL,  HVD_REDUCESCATTER, HVD_BARRIER,
                                           HVD_JOIN};
        char name[4] = {(char)('a' + turn % 7), '\0'};
        if (turn < 14)
            submit(engine, name, kinds[turn % 7], values);
        engine_progress(engine, now_ns += 2000000);
        size_t n = data[at] | (size_t)data[at + 1] << 8;
        int32_t from = data[at + 2] % RANKS;
        at += 3;
        n = n < size - at ? n : size - at;
        uint8_t *copy = malloc(n + 1); /* exactly sized: over-reads are seen */
        memcpy(copy, data + at, n);
        /* Most inputs would fail at the head; give them one that passes. */
        if (n >= 12 && (data[at] & 0x80) == 0) {
            static const uint8_t head[] = {0, 0, 0, 0, 1, 0, 0, 0};
            memcpy(copy + 1, head + 1, 7);
            copy[8] = (uint8_t)engine->sets[0]->generation;
            copy[9] = copy[10] = copy[11] = 0;
        }
        if (from != rank)
            events.message(events.ctx, from, copy, n);
        free(copy);
        at += n;
        engine_progress(engine, now_ns += 2000000);
    }
    engine_stop(engine, HVD_ERR_SHUTDOWN, "end", false);
    engine_destroy(engine);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    feed(0, data, size);
    feed(1, data, size);
    return 0;
}
