/* SPDX-License-Identifier: Apache-2.0 */
/* allgather.c - every rank's part to all. A ring for large results; for small ones log2(N) rounds
 * in which rank r, having the d parts r .. r + d - 1 (mod N), sends them to rank r - d and receives
 * the next d parts from rank r + d (the scheme of Bruck et al., in place).
 *
 * If machines have several ranks (only with HOROVOD_HIERARCHICAL_ALLGATHER), the first rank of each
 * machine gathers the parts of its machine, passes them around a ring of such ranks, and hands all
 * others to its machine. With ranks 0 1 | 2 3 | 4:
 *
 *     1 -> 0, 3 -> 2        0 -> 2 -> 4 -> 0, two rounds        0 -> 1: 0 2 3 4, 2 -> 3: 0 1 2 4
 *
 * Parts may have any size, including 0. Neighbouring parts that are adjacent in WORK are sent as
 * one transfer; both sides compute the same borders because both know all parts.
 *
 * Thread: any (pure).  Start reading at schedule_allgather(). */
#include "schedule/build.h"

#define SMALL_COUNT (64u << 10) /* elements of the whole result */

struct run { /* a transfer that may still grow */
    enum step_kind kind;
    int32_t peer;
    struct slice slice;
};

static void run_end(struct build *b, const struct run *run)
{
    build_transfer(b, run->kind, run->peer, run->slice, true);
}

static void run_add(struct build *b, struct run *run, struct slice part)
{
    if (part.count == 0)
        return;
    if (run->slice.count > 0 && run->slice.offset + run->slice.count == part.offset) {
        run->slice.count += part.count;
        return;
    }
    run_end(b, run);
    run->slice = part;
}

/* Emits `blocks` parts from `first` on as few transfers as their places in WORK allow, all open. */
static void build_run(struct build *b, enum step_kind kind, int32_t peer, const struct parts *p,
                      uint32_t first, uint32_t blocks)
{
    struct run run = {.kind = kind, .peer = peer};
    for (uint32_t i = 0; i < blocks; i++)
        run_add(b, &run, build_part_at(p, first + i));
    run_end(b, &run);
}

static void build_doubling(struct build *b, const struct parts *p)
{
    uint32_t n = p->n, rank = (uint32_t)b->rank;
    for (uint32_t have = 1; have < n; have *= 2) {
        uint32_t blocks = have < n - have ? have : n - have;
        size_t from = b->s->step_count;
        build_run(b, STEP_SEND, (int32_t)((rank + n - have) % n), p, rank, blocks);
        build_run(b, STEP_RECV, (int32_t)((rank + have) % n), p, rank + have, blocks);
        build_close(b, from);
    }
}

static void build_around(struct build *b, const struct parts *p, uint64_t channel,
                         uint64_t channels)
{
    uint32_t n = p->n, rank = (uint32_t)b->rank;
    int32_t next = (int32_t)((rank + 1) % n), last = (int32_t)((rank + n - 1) % n);
    for (uint32_t round = 0; round < n - 1; round++) {
        struct slice out = build_part_at(p, rank + n - round),
                     in = build_part_at(p, rank + n - round - 1);
        struct slice out_cut = build_part_cut(out, channels, channel, b->element_bytes);
        struct slice in_cut = build_part_cut(in, channels, channel, b->element_bytes);
        build_exchange(b, next, out_cut, last, in_cut);
    }
}

/* ---- machine by machine ---- */

struct machines {
    const struct parts *parts;
    const struct topology *topology;
};

static int32_t leader_of(const struct topology *topology, int32_t host)
{
    int32_t rank = 0;
    while (topology->host[rank] != host)
        rank++;
    return rank;
}

/* The parts of one machine, or of all (-1), without the one of rank `without` (-1: none). */
static void build_chosen(struct build *b, enum step_kind kind, int32_t peer,
                         const struct machines *m, int32_t host, int32_t without)
{
    struct run run = {.kind = kind, .peer = peer};
    for (int32_t i = 0; i < b->size; i++)
        if (i != without && (host < 0 || m->topology->host[i] == host))
            run_add(b, &run, build_part_at(m->parts, (uint32_t)i));
    run_end(b, &run);
}

static void build_leader(struct build *b, const struct machines *m)
{
    const struct topology *t = m->topology;
    int32_t host = t->host[b->rank], hosts = t->host_count;
    int32_t next = leader_of(t, (host + 1) % hosts),
            last = leader_of(t, (host + hosts - 1) % hosts);
    size_t from = b->s->step_count;
    for (int32_t i = b->rank + 1; i < b->size; i++)
        if (t->host[i] == host)
            build_transfer(b, STEP_RECV, i, build_part_at(m->parts, (uint32_t)i), true);
    build_close(b, from);
    for (int32_t round = 0; round < hosts - 1; round++) {
        from = b->s->step_count;
        build_chosen(b, STEP_SEND, next, m, (host + hosts - round) % hosts, -1);
        build_chosen(b, STEP_RECV, last, m, (host + hosts - round - 1) % hosts, -1);
        build_close(b, from);
    }
    from = b->s->step_count;
    for (int32_t i = b->rank + 1; i < b->size; i++)
        if (t->host[i] == host)
            build_chosen(b, STEP_SEND, i, m, -1, i);
    build_close(b, from);
}

static hvd_status_t build_machines(struct build *b, const struct machines *m, struct error *error)
{
    int32_t leader = leader_of(m->topology, m->topology->host[b->rank]);
    build_begin(b, 0, SCHEDULE_TWO_LEVEL);
    if (b->rank == leader) {
        build_leader(b, m);
    } else {
        build_transfer(b, STEP_SEND, leader, build_part_at(m->parts, (uint32_t)b->rank), false);
        size_t from = b->s->step_count;
        build_chosen(b, STEP_RECV, leader, m, -1, b->rank);
        build_close(b, from);
    }
    return build_end(b, error);
}

hvd_status_t schedule_allgather(struct schedule *s, const uint64_t *offsets, const uint64_t *counts,
                                int32_t rank, const struct topology *topology, struct error *error)
{
    int32_t n = topology->size;
    if (rank < 0 || rank >= n)
        return error_set(error, HVD_ERR_INVALID, "allgather schedule: rank %d of %d", rank, n);
    struct build b = {.s = s, .size = n, .rank = rank, .element_bytes = 1};
    struct parts parts = {offsets, counts, (uint32_t)n};
    if (topology->host_count > 1 && topology->host_count < n)
        return build_machines(&b, &(struct machines){&parts, topology}, error);
    return build_parts(&b, &parts, SMALL_COUNT, build_doubling, build_around, topology->channels,
                       error);
}
