/* SPDX-License-Identifier: Apache-2.0 */
/* sim_backend.c - see sim_backend.h.
 *
 * A meeting is a group as its members share it; a wave is one collective of it. Members publish
 * their struct coll in the wave of their own number; the last one to publish runs it. A wave exists
 * until all members that published have collected it or withdrawn. */
#include "sim_backend.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "reduce/reduce.h"

struct sim_wave {
    struct sim_wave *next;
    uint64_t number;
    int32_t published, attached; /* members in it now; of those, not yet collected */
    bool has_happened;
    const struct coll **colls; /* by member */
};

struct sim_meeting {
    struct sim_meeting *next;
    int32_t set_id, size;
    int32_t *ranks;
    bool *is_open; /* by member: each opens a meeting once */
    struct sim_wave *waves;
};

struct sim_board {
    const struct os *os;
    struct sim_board_events events;
    struct sim_meeting *meetings;
    char violation[512];
};

struct sim_backend {
    struct backend base;
    struct sim_board *board;
    int32_t rank;
};

struct backend_group {
    struct sim_board *board;
    struct sim_meeting *meeting;
    int32_t self;
    uint64_t next; /* number of the next wave */
    struct sim_wave *wave;
    hvd_kind_t kind;
};

static void violate(struct sim_board *board, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static void violate(struct sim_board *board, const char *format, ...)
{
    va_list args;
    if (board->violation[0] != '\0')
        return;
    va_start(args, format);
    vsnprintf(board->violation, sizeof board->violation, format, args);
    va_end(args);
}

/* ---- meetings and waves ---- */

static struct sim_meeting *meeting_make(struct sim_board *board, const struct group *group)
{
    const struct os *os = board->os;
    size_t size = (size_t)group->size;
    struct sim_meeting *m = os_alloc(os, sizeof *m + size * (sizeof *m->ranks + sizeof(bool)));
    if (m == NULL)
        return NULL;
    m->set_id = group->set_id;
    m->size = group->size;
    m->ranks = (int32_t *)(m + 1);
    m->is_open = (bool *)(m->ranks + size);
    memcpy(m->ranks, group->ranks, size * sizeof *m->ranks);
    struct sim_meeting **at = &board->meetings;
    while (*at != NULL)
        at = &(*at)->next;
    *at = m;
    return m;
}

/* Sets with the same number and ranks may follow each other: every member takes the first meeting
 * that it has not been in. */
static struct sim_meeting *meeting_find(struct sim_board *board, const struct group *group)
{
    for (struct sim_meeting *m = board->meetings; m != NULL; m = m->next)
        if (m->set_id == group->set_id && m->size == group->size && !m->is_open[group->self] &&
            memcmp(m->ranks, group->ranks, (size_t)m->size * sizeof *m->ranks) == 0)
            return m;
    return meeting_make(board, group);
}

static struct sim_wave *wave_find(struct sim_board *board, struct sim_meeting *m, uint64_t number)
{
    for (struct sim_wave *w = m->waves; w != NULL; w = w->next)
        if (w->number == number)
            return w;
    struct sim_wave *w = os_alloc(board->os, sizeof *w + (size_t)m->size * sizeof(struct coll *));
    if (w == NULL)
        return NULL;
    w->number = number;
    w->colls = (const struct coll **)(w + 1);
    w->next = m->waves;
    m->waves = w;
    return w;
}

static void wave_leave(struct backend_group *g)
{
    struct sim_wave *w = g->wave;
    g->wave = NULL;
    if (!w->has_happened) {
        w->colls[g->self] = NULL;
        w->published--;
    }
    if (--w->attached > 0)
        return;
    struct sim_wave **at = &g->meeting->waves;
    while (*at != w)
        at = &(*at)->next;
    *at = w->next;
    os_free(g->board->os, w);
}

/* ---- running a collective once all have published ---- */

static uint64_t elements(const struct coll *c, int32_t part, int32_t size)
{
    uint64_t sum = 0;
    if (c->kind != HVD_ALLGATHER && c->kind != HVD_REDUCESCATTER)
        return c->parts[part].count;
    for (int32_t i = 0; i < size; i++)
        sum += c->counts[(size_t)part * (size_t)size + (size_t)i];
    return sum;
}

static bool is_same(const struct coll *a, const struct coll *b, int32_t size)
{
    if (a->kind != b->kind || a->dtype != b->dtype || a->reduce != b->reduce ||
        a->prescale != b->prescale || a->postscale != b->postscale || a->root != b->root ||
        a->wire != b->wire || a->part_count != b->part_count || a->channels != b->channels ||
        a->threshold_percent != b->threshold_percent)
        return false;
    if (a->kind == HVD_ALLTOALL)
        return true;
    for (int32_t p = 0; p < a->part_count; p++)
        if (elements(a, p, size) != elements(b, p, size))
            return false;
    return true;
}

static void run_reduce(const struct coll *c, const void *const *sources, void *const *targets,
                       int32_t source_count, int32_t target_count, uint64_t count)
{
    struct reduce_job job = {.dtype = c->dtype,
                             .op = c->reduce,
                             .prescale = c->prescale,
                             .postscale = c->postscale,
                             .sources = sources,
                             .source_count = source_count,
                             .targets = targets,
                             .target_count = target_count,
                             .count = (size_t)count};
    if (count > 0)
        reduce_run(&job);
}

static void do_allreduce(const struct sim_wave *w, int32_t size)
{
    const void *sources[REDUCE_SOURCES_MAX];
    void *targets[REDUCE_TARGETS_MAX];
    const struct coll *c = w->colls[0];
    for (int32_t p = 0; p < c->part_count; p++) {
        for (int32_t i = 0; i < size; i++) {
            sources[i] = w->colls[i]->parts[p].in;
            targets[i] = w->colls[i]->parts[p].out;
        }
        run_reduce(c, sources, targets, size, size, c->parts[p].count);
    }
}

static void do_reducescatter(const struct sim_wave *w, int32_t size)
{
    const void *sources[REDUCE_SOURCES_MAX];
    const struct coll *c = w->colls[0];
    size_t element = hvd_dtype_bytes(c->dtype);
    for (int32_t p = 0; p < c->part_count; p++) {
        uint64_t at = 0;
        for (int32_t to = 0; to < size; to++) {
            uint64_t count = c->counts[(size_t)p * (size_t)size + (size_t)to];
            void *target = w->colls[to]->parts[p].out;
            for (int32_t i = 0; i < size && count > 0; i++)
                sources[i] = (const uint8_t *)w->colls[i]->parts[p].in + at * element;
            run_reduce(c, sources, &target, size, 1, count);
            at += count;
        }
    }
}

static void do_allgather(const struct sim_wave *w, int32_t size)
{
    const struct coll *c = w->colls[0];
    size_t element = hvd_dtype_bytes(c->dtype);
    for (int32_t p = 0; p < c->part_count; p++)
        for (int32_t to = 0; to < size; to++) {
            uint8_t *out = w->colls[to]->parts[p].out;
            for (int32_t i = 0; i < size; i++) {
                size_t bytes = c->counts[(size_t)p * (size_t)size + (size_t)i] * element;
                if (bytes > 0)
                    memmove(out, w->colls[i]->parts[p].in, bytes);
                out = bytes > 0 ? out + bytes : out;
            }
        }
}

static void do_broadcast(const struct sim_wave *w, int32_t size)
{
    const struct coll *c = w->colls[0];
    size_t bytes = c->parts[0].count * hvd_dtype_bytes(c->dtype);
    for (int32_t to = 0; to < size && bytes > 0; to++)
        memmove(w->colls[to]->parts[0].out, w->colls[c->root]->parts[0].in, bytes);
}

static bool do_alltoall(const struct sim_wave *w, int32_t size)
{
    size_t element = hvd_dtype_bytes(w->colls[0]->dtype);
    for (int32_t to = 0; to < size; to++) {
        uint8_t *out = w->colls[to]->parts[0].out;
        for (int32_t from = 0; from < size; from++) {
            const struct coll *c = w->colls[from];
            size_t before = 0, bytes = c->counts[to] * element;
            if (c->counts[to] != w->colls[to]->recv_counts[from])
                return false;
            for (int32_t i = 0; i < to; i++)
                before += c->counts[i] * element;
            if (bytes > 0)
                memcpy(out, (const uint8_t *)c->parts[0].in + before, bytes);
            out = bytes > 0 ? out + bytes : out;
        }
    }
    return true;
}

static void happen(struct sim_board *board, struct sim_meeting *m, struct sim_wave *w)
{
    w->has_happened = true;
    for (int32_t i = 0; i < m->size; i++) {
        board->events.wake(board->events.ctx, m->ranks[i]);
        if (is_same(w->colls[0], w->colls[i], m->size))
            continue;
        violate(board, "set %d: ranks %d and %d met with different collectives (kinds %d and %d)",
                m->set_id, m->ranks[0], m->ranks[i], (int)w->colls[0]->kind,
                (int)w->colls[i]->kind);
        return;
    }
    switch (w->colls[0]->kind) {
    case HVD_ALLREDUCE: do_allreduce(w, m->size); return;
    case HVD_REDUCESCATTER: do_reducescatter(w, m->size); return;
    case HVD_ALLGATHER: do_allgather(w, m->size); return;
    case HVD_BROADCAST: do_broadcast(w, m->size); return;
    case HVD_ALLTOALL:
        if (!do_alltoall(w, m->size))
            violate(board, "set %d: an alltoall whose splits do not fit", m->set_id);
        return;
    case HVD_BARRIER:
    case HVD_JOIN:
    case HVD_KIND_COUNT: return;
    }
}

/* ---- the table ---- */

static hvd_status_t sim_group_open(struct backend *b, const struct group *group,
                                   struct backend_group **ret, struct error *error)
{
    struct sim_backend *s = (struct sim_backend *)b;
    struct backend_group *g = os_alloc(b->os, sizeof *g);
    struct sim_meeting *m = g != NULL ? meeting_find(s->board, group) : NULL;
    if (m == NULL || group->size > REDUCE_SOURCES_MAX) {
        os_free(b->os, g);
        return error_set(error, HVD_ERR_NO_MEMORY, "Out of memory for a group of %d.", group->size);
    }
    m->is_open[group->self] = true;
    g->board = s->board;
    g->meeting = m;
    g->self = group->self;
    g->next = 1;
    *ret = g;
    return HVD_OK;
}

static void sim_group_close(struct backend *b, struct backend_group *g)
{
    if (g == NULL)
        return;
    if (g->wave != NULL)
        wave_leave(g);
    os_free(b->os, g);
}

static hvd_status_t sim_start(struct backend *b, struct backend_group *g, const struct coll *coll,
                              struct error *error)
{
    (void)b;
    struct sim_wave *w = g->wave == NULL ? wave_find(g->board, g->meeting, g->next) : NULL;
    if (w == NULL)
        return error_set(error, HVD_ERR_INTERNAL, "This group runs a collective already.");
    if (coll->reduce == HVD_ADASUM && coll->kind == HVD_ALLREDUCE)
        return error_set(error, HVD_ERR_UNSUPPORTED, "The simulated backend has no Adasum.");
    if (w->has_happened || w->colls[g->self] != NULL) {
        violate(g->board, "set %d: rank %d starts collective %llu again", g->meeting->set_id,
                g->meeting->ranks[g->self], (unsigned long long)g->next);
        return error_set(error, HVD_ERR_INTERNAL, "A collective was started twice.");
    }
    g->wave = w;
    g->kind = coll->kind;
    w->colls[g->self] = coll;
    w->published++;
    w->attached++;
    if (w->published == g->meeting->size)
        happen(g->board, g->meeting, w);
    return HVD_OK;
}

static hvd_status_t sim_progress(struct backend *b, struct backend_group *g, bool *ret_moved,
                                 struct error *error)
{
    (void)b;
    *ret_moved = false;
    if (g->wave == NULL)
        return error_set(error, HVD_ERR_INTERNAL, "No collective is running.");
    if (!g->wave->has_happened)
        return HVD_IN_PROGRESS;
    *ret_moved = true;
    wave_leave(g);
    g->next++;
    return HVD_OK;
}

static void sim_reset(struct backend *b, struct backend_group *g, uint64_t base)
{
    (void)b;
    bool is_for_ever = base >> 32 == UINT32_MAX; /* the set is broken */
    if (g->wave != NULL && g->wave->has_happened && !is_for_ever)
        violate(g->board, "set %d: rank %d cancels collective %llu, which took place",
                g->meeting->set_id, g->meeting->ranks[g->self], (unsigned long long)g->next);
    if (base < g->next)
        violate(g->board, "set %d: rank %d goes back from %llu to %llu", g->meeting->set_id,
                g->meeting->ranks[g->self], (unsigned long long)g->next, (unsigned long long)base);
    if (g->wave != NULL)
        wave_leave(g);
    g->next = base + 1;
}

static const char *sim_activity(const struct backend_group *g, hvd_kind_t kind)
{
    (void)g;
    return kind == HVD_ALLREDUCE ? "SIM_ALLREDUCE" : "SIM_COLLECTIVE";
}

static void sim_destroy(struct backend *b)
{
    if (b != NULL)
        os_free(b->os, b);
}

static const struct backend_ops sim_ops = {.version = BACKEND_VERSION,
                                           .name = "sim",
                                           .group_open = sim_group_open,
                                           .group_close = sim_group_close,
                                           .start = sim_start,
                                           .progress = sim_progress,
                                           .reset = sim_reset,
                                           .activity = sim_activity,
                                           .destroy = sim_destroy};

/* ---- create and destroy ---- */

hvd_status_t sim_backend_create(const struct os *os, struct sim_board *board, int32_t rank,
                                struct backend **ret, struct error *error)
{
    struct sim_backend *s = os_alloc(os, sizeof *s);
    if (s == NULL)
        return error_set(error, HVD_ERR_NO_MEMORY, "Out of memory.");
    s->base = (struct backend){.ops = &sim_ops, .os = os};
    s->board = board;
    s->rank = rank;
    *ret = &s->base;
    return HVD_OK;
}

struct sim_board *sim_board_create(const struct os *os, const struct sim_board_events *events)
{
    struct sim_board *board = os_alloc(os, sizeof *board);
    if (board == NULL)
        return NULL;
    board->os = os;
    board->events = *events;
    return board;
}

void sim_board_destroy(struct sim_board *board)
{
    if (board == NULL)
        return;
    while (board->meetings != NULL) {
        struct sim_meeting *m = board->meetings;
        board->meetings = m->next;
        while (m->waves != NULL) {
            struct sim_wave *w = m->waves;
            m->waves = w->next;
            os_free(board->os, w);
        }
        os_free(board->os, m);
    }
    os_free(board->os, board);
}

const char *sim_board_violation(const struct sim_board *board)
{
    return board->violation[0] != '\0' ? board->violation : NULL;
}
