/* SPDX-License-Identifier: Apache-2.0 */
/* raw.c - see raw.h. */
#include "raw.h"

#include <stdio.h>
#include <string.h>

#include "backend/native/native.h"
#include "transport/shm/shm.h"

#define LOOKS_PER_PROGRESS 1024u /* messages do not matter here, deaths do */

static void ignore_message(void *ctx, int32_t peer, const void *bytes, size_t n)
{
    (void)ctx, (void)peer, (void)bytes, (void)n;
}

static void ignore_down(void *ctx, int32_t peer, hvd_status_t status, const char *why)
{
    (void)ctx, (void)peer, (void)status, (void)why;
}

static void exchange_endpoints(struct meet *meet, const struct endpoint *mine, struct endpoint *all)
{
    uint8_t pieces[MEET_RANKS_MAX][MEET_BLOB_BYTES];
    for (size_t at = 0; at < sizeof *mine; at += MEET_BLOB_BYTES) {
        size_t n = sizeof *mine - at < MEET_BLOB_BYTES ? sizeof *mine - at : MEET_BLOB_BYTES;
        meet_exchange(meet, (const uint8_t *)mine + at, n, pieces);
        for (int i = 0; i < meet->size; i++)
            memcpy((uint8_t *)&all[i] + at, (const uint8_t *)pieces + (size_t)i * n, n);
    }
}

static hvd_status_t connect_all(struct raw *raw, struct meet *meet, struct error *error)
{
    static const uint8_t key[32] = {'b', 'e', 'n', 'c', 'h'};
    const struct os *os = os_host();
    struct endpoint self, all[MEET_RANKS_MAX];
    int32_t ranks[MEET_RANKS_MAX];
    memset(&self, 0, sizeof self);
    self.rank = meet->rank;
    self.pid = os->pid(os->ctx);
    hvd_status_t status = config_load(os, &raw->config, NULL, NULL, error);
    if (status == HVD_OK)
        status = shm_create(os, &raw->config, meet->rank, &self, &raw->shm, error);
    if (status != HVD_OK)
        return status;
    exchange_endpoints(meet, &self, all);
    struct transport_events events = {.message = ignore_message, .peer_down = ignore_down};
    raw->poll_fd = os->poll_create(os->ctx);
    status = shm_connect(raw->shm, all, meet->size, NULL, key, 1, raw->poll_fd, &events, error);
    if (status != HVD_OK)
        return status;
    for (int32_t i = 0; i < meet->size; i++)
        ranks[i] = i;
    struct group group = {
        .size = meet->size, .self = meet->rank, .ranks = ranks, .is_one_host = true};
    return host_coll_create(os, &raw->config, raw->shm, &group, &raw->host, error);
}

bool raw_open(struct raw *raw, struct meet *meet)
{
    struct error error = {0};
    memset(raw, 0, sizeof *raw);
    raw->poll_fd = -1;
    raw->self = meet->rank;
    raw->size = meet->size;
    raw->is_crowded = meet->is_crowded;
    if (connect_all(raw, meet, &error) == HVD_OK)
        return true;
    fprintf(stderr, "bench: rank %d: %s\n", meet->rank, error.text);
    raw_close(raw);
    return false;
}

void raw_close(struct raw *raw)
{
    const struct os *os = os_host();
    host_coll_destroy(raw->host);
    if (raw->shm != NULL)
        shm_transport(raw->shm)->ops->destroy(shm_transport(raw->shm));
    if (raw->poll_fd >= 0)
        os->close(os->ctx, raw->poll_fd);
    raw->host = NULL;
    raw->shm = NULL;
    raw->poll_fd = -1;
}

void *raw_alloc(struct raw *raw, size_t bytes)
{
    return shm_heap_alloc(raw->shm, bytes);
}

float *raw_peer(struct raw *raw, int32_t peer, const void *mine)
{
    struct transport *t = shm_transport(raw->shm);
    uint64_t bytes;
    const uint8_t *own = t->ops->arena(t, raw->self, &bytes);
    uint8_t *other = t->ops->arena(t, peer, &bytes);
    return (float *)(other + ((const uint8_t *)mine - own));
}

bool raw_allreduce_parts(struct raw *raw, const struct coll_part *parts, int32_t count)
{
    struct transport *t = shm_transport(raw->shm);
    struct error error = {0};
    struct coll coll = {.kind = HVD_ALLREDUCE,
                        .dtype = HVD_FLOAT32,
                        .reduce = HVD_SUM,
                        .prescale = 1.0,
                        .postscale = 1.0,
                        .parts = parts,
                        .part_count = count};
    hvd_status_t status = host_coll_start(raw->host, &coll, &error);
    for (unsigned turn = 0; status == HVD_OK || status == HVD_IN_PROGRESS;) {
        bool has_moved;
        status = host_coll_progress(raw->host, &has_moved, &error);
        if (status == HVD_OK)
            return true;
        turn = has_moved ? 0 : turn + 1;
        if (turn > 0)
            meet_idle(raw->is_crowded, turn);
        if (turn % LOOKS_PER_PROGRESS == LOOKS_PER_PROGRESS - 1)
            t->ops->progress(t, os_now_ns(t->os));
    }
    fprintf(stderr, "bench: rank %d: %s\n", raw->self, error.text);
    return false;
}

bool raw_allreduce(struct raw *raw, float *data, uint64_t count)
{
    struct coll_part part = {.in = data, .out = data, .count = count};
    return raw_allreduce_parts(raw, &part, 1);
}
