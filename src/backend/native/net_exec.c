/* SPDX-License-Identifier: Apache-2.0 */
/* net_exec.c - runs one rank's schedule over transports.
 *
 * Steps between two wave steps form a section; each channel works through its steps of the section
 * independently. A channel posts an open run of steps at once as flights and continues when all of
 * them are done. A flight splits its transfer into segments, alike on both sides, with NET_WINDOW
 * of them in transit: a segment that has arrived is reduced while the next ones are in transit. It
 * is reduced into WORK only after the same segment was sent in a send of the same region (recursive
 * doubling swaps whole regions).
 *
 * Rounding: half types are rounded once per reduction step, that is per hop; a float16 average
 * whose partial sums overflow is run again in float32 (net.c) and rounded once.
 *
 * Thread: token holder.  Owner: struct net_coll.  Invariant: requests do not move while the
 * transport has them, so flights are only moved when none is in transit. Start reading at
 * net_exec_progress(). */
#include <string.h>

#include "backend/native/net.h"

static bool is_wave_step(const struct step *step)
{
    return step->kind >= STEP_PUBLISH;
}

static bool is_transfer(const struct step *step)
{
    return step->kind <= STEP_RECV_TEMP;
}

/* ---- preparing ---- */

/* How many flights and staging places each channel needs at most. */
static void measure(struct net_exec *x, size_t *ret_step_bytes_max)
{
    const struct schedule *s = x->schedule;
    int32_t run = 0, reducers = 0;
    *ret_step_bytes_max = 0;
    for (size_t i = 0; i < s->step_count; i++) {
        const struct step *step = &s->steps[i];
        struct net_channel *c = &x->channels[step->channel];
        size_t bytes = (size_t)step->count * x->element_bytes;
        run++;
        if (step->kind == STEP_RECV_REDUCE) {
            reducers++;
            if (bytes > *ret_step_bytes_max)
                *ret_step_bytes_max = bytes;
        }
        if (run > c->flight_capacity)
            c->flight_capacity = run;
        if (reducers > c->stage_capacity)
            c->stage_capacity = reducers;
        if (!step->is_open)
            run = reducers = 0;
    }
}

static hvd_status_t flights_reserve(struct net_coll *n, int32_t count, struct error *error)
{
    struct net_exec *x = &n->exec;
    if (count <= x->flight_capacity)
        return HVD_OK;
    os_free(n->os, x->flights);
    x->flight_capacity = 0;
    x->flights = os_alloc(n->os, (size_t)count * sizeof *x->flights);
    if (x->flights == NULL)
        return error_set(error, HVD_ERR_NO_MEMORY, "no memory for %d transfers", count);
    x->flight_capacity = count;
    return HVD_OK;
}

static hvd_status_t memory_assign(struct net_coll *n, struct error *error)
{
    struct net_exec *x = &n->exec;
    int32_t flights = 0, stages = 0;
    size_t step_bytes;
    measure(x, &step_bytes);
    for (int32_t c = 0; c < NET_CHANNELS; c++) {
        x->channels[c].flight_first = flights;
        x->channels[c].stage_first = stages;
        flights += x->channels[c].flight_capacity;
        stages += x->channels[c].stage_capacity;
    }
    size_t segments = (step_bytes + NET_SEGMENT_BYTES - 1) / NET_SEGMENT_BYTES;
    size_t window = segments < NET_WINDOW ? segments : NET_WINDOW;
    size_t segment = step_bytes < NET_SEGMENT_BYTES ? step_bytes : NET_SEGMENT_BYTES;
    segment = (segment + 63) / 64 * 64;
    x->stage_segment = window * segment;
    hvd_status_t status = flights_reserve(n, flights, error);
    if (status != HVD_OK)
        return status;
    return net_reserve(n->os, &x->stage, &x->stage_bytes, (size_t)stages * x->stage_segment, error);
}

hvd_status_t net_exec_start(struct net_coll *n, const struct schedule *schedule, void *work,
                            void *scratch, size_t element_bytes, hvd_dtype_t dtype,
                            hvd_reduce_t reduce, double postscale, struct error *error)
{
    struct net_exec *x = &n->exec;
    x->schedule = schedule;
    x->work = work;
    x->scratch = scratch;
    x->element_bytes = element_bytes;
    x->dtype = dtype;
    x->reduce = reduce;
    x->postscale = postscale;
    x->cursor = 0;
    x->in_section = false;
    x->wave_done = 0;
    memset(x->channels, 0, sizeof x->channels);
    hvd_status_t status = memory_assign(n, error);
    x->is_running = status == HVD_OK;
    return status;
}

/* ---- what each link carries ---- */

static struct native_way *way_of(struct net_coll *n, const struct net_flight *f)
{
    struct native_link *link = n->routes.links != NULL ? &n->routes.links[f->peer] : NULL;
    return link == NULL ? NULL : f->is_send ? &link->sent : &link->received;
}

/* The clock is read only when a link becomes busy, and when it becomes idle. */
static void way_begin(struct net_coll *n, struct native_way *way)
{
    if (way != NULL && way->active++ == 0)
        way->since_ns = os_now_ns(n->os);
}

static void way_end(struct net_coll *n, struct native_way *way)
{
    if (way != NULL && --way->active == 0)
        way->load.ns += os_now_ns(n->os) - way->since_ns;
}

/* ---- flights ---- */

static size_t segment_bytes(const struct net_flight *f, uint64_t index)
{
    size_t at = (size_t)index * NET_SEGMENT_BYTES;
    return f->bytes - at < NET_SEGMENT_BYTES ? f->bytes - at : NET_SEGMENT_BYTES;
}

static uint8_t *segment_place(const struct net_flight *f, uint64_t index)
{
    if (f->is_reduce)
        return f->memory + (size_t)(index % NET_WINDOW) * NET_SEGMENT_BYTES;
    return f->memory + (size_t)index * NET_SEGMENT_BYTES;
}

static hvd_status_t transfer_failed(const struct net_flight *f, hvd_status_t status,
                                    struct error *error)
{
    return error_set(error, status, "%s rank %d failed: %s",
                     f->is_send ? "sending to" : "receiving from", f->peer,
                     hvd_status_name(status));
}

static hvd_status_t flight_post(struct net_coll *n, struct net_flight *f, bool *ret_moved,
                                struct error *error)
{
    while (f->posted < f->segment_count && f->posted - f->done < NET_WINDOW) {
        struct transport *t = f->transport;
        struct transport_req *req = &f->reqs[f->posted % NET_WINDOW];
        size_t bytes = segment_bytes(f, f->posted);
        uint8_t *place = segment_place(f, f->posted);
        memset(req, 0, sizeof *req);
        req->status = HVD_IN_PROGRESS;
        hvd_status_t status = f->is_send
                                  ? t->ops->bulk_send(t, f->peer, f->stream, place, bytes, req)
                                  : t->ops->bulk_recv(t, f->peer, f->stream, place, bytes, req);
        if (status < 0)
            return transfer_failed(f, status, error);
        if (f->posted++ == 0)
            way_begin(n, way_of(n, f));
        *ret_moved = true;
    }
    return HVD_OK;
}

static void step_reduce(const struct net_exec *x, const struct step *step, void *own,
                        const void *other, size_t count)
{
    reduce_two(x->dtype, x->reduce, step->is_left ? own : other, step->is_left ? other : own, own,
               count, step->is_final ? x->postscale : 1.0);
}

static void segment_reduce(const struct net_exec *x, const struct net_flight *f)
{
    const struct step *step = f->step;
    uint8_t *own =
        x->work + (size_t)step->offset * x->element_bytes + (size_t)f->done * NET_SEGMENT_BYTES;
    step_reduce(x, step, own, segment_place(f, f->done),
                segment_bytes(f, f->done) / x->element_bytes);
}

static void segment_done(struct net_coll *n, struct net_flight *f)
{
    struct native_way *way = way_of(n, f);
    if (way != NULL)
        way->load.bytes += segment_bytes(f, f->done);
    if (++f->done == f->segment_count)
        way_end(n, way);
}

/* Handles completed transfers, in order. */
static hvd_status_t flight_collect(struct net_coll *n, struct net_flight *f, bool *ret_moved,
                                   struct error *error)
{
    while (f->done < f->posted) {
        const struct transport_req *req = &f->reqs[f->done % NET_WINDOW];
        /* ABORTED: the peer has cancelled the collective, because the set is broken or was removed.
         * Its message will reach us; to fail here would only hide the cause. */
        if (req->status == HVD_IN_PROGRESS || req->status == HVD_ERR_ABORTED)
            return HVD_OK;
        if (req->status != HVD_OK)
            return transfer_failed(f, req->status, error);
        if (f->is_reduce) {
            if (f->twin != NULL && f->twin->done <= f->done)
                return HVD_OK;
            segment_reduce(&n->exec, f);
        }
        segment_done(n, f);
        *ret_moved = true;
    }
    return HVD_OK;
}

static uint8_t *stage_take(struct net_exec *x, struct net_channel *c)
{
    return x->stage + (size_t)(c->stage_first + c->stage_count++) * x->stage_segment;
}

static void flight_make(struct net_coll *n, struct net_channel *c, const struct step *step)
{
    struct net_exec *x = &n->exec;
    struct net_flight *f = &x->flights[c->flight_first + c->flight_count++];
    bool is_temp = step->kind == STEP_SEND_TEMP || step->kind == STEP_RECV_TEMP;
    uint8_t *base = is_temp ? x->scratch : x->work;
    memset(f, 0, offsetof(struct net_flight, reqs));
    f->step = step;
    f->peer = n->ranks[step->peer];
    f->transport = n->routes.routes[f->peer];
    f->stream = stream_number(n->stream_base, n->sequence, step->channel);
    f->is_send = step->kind == STEP_SEND || step->kind == STEP_SEND_TEMP;
    f->is_reduce = step->kind == STEP_RECV_REDUCE;
    f->bytes = (size_t)step->count * x->element_bytes;
    f->segment_count = (f->bytes + NET_SEGMENT_BYTES - 1) / NET_SEGMENT_BYTES;
    f->memory = f->is_reduce ? stage_take(x, c) : base + (size_t)step->offset * x->element_bytes;
}

/* ---- channels ---- */

static void twins_find(struct net_exec *x, const struct net_channel *c)
{
    struct net_flight *run = x->flights + c->flight_first;
    for (int32_t i = 0; i < c->flight_count; i++) {
        if (!run[i].is_reduce)
            continue;
        for (int32_t j = 0; j < c->flight_count; j++)
            if (run[j].step->kind == STEP_SEND && run[j].step->offset == run[i].step->offset &&
                run[j].step->count == run[i].step->count)
                run[i].twin = &run[j];
    }
}

static void step_local(const struct net_exec *x, const struct step *step)
{
    size_t es = x->element_bytes, bytes = (size_t)step->count * es;
    bool is_in = step->kind == STEP_COPY_IN;
    uint8_t *to = (is_in ? x->scratch : x->work) + (size_t)step->offset * es;
    const uint8_t *from = (is_in ? x->work : x->scratch) + (size_t)step->source * es;
    if (step->kind != STEP_REDUCE_IN) {
        memcpy(to, from, bytes);
        return;
    }
    step_reduce(x, step, to, from, (size_t)step->count);
}

/* Makes flights of the next open run, or does local steps. */
static void channel_next(struct net_coll *n, struct net_channel *c)
{
    struct net_exec *x = &n->exec;
    bool is_open = true;
    c->flight_count = 0;
    c->stage_count = 0;
    while (is_open && c->cursor < c->end) {
        const struct step *step = &x->schedule->steps[c->cursor++];
        is_open = step->is_open;
        if (is_transfer(step))
            flight_make(n, c, step);
        else
            step_local(x, step);
    }
    twins_find(x, c);
}

/* HVD_OK: the channel has finished its section. */
static hvd_status_t channel_progress(struct net_coll *n, struct net_channel *c, bool *ret_moved,
                                     struct error *error)
{
    struct net_exec *x = &n->exec;
    for (;;) {
        bool is_pending = false;
        for (int32_t i = 0; i < c->flight_count; i++) {
            struct net_flight *f = &x->flights[c->flight_first + i];
            hvd_status_t status = flight_collect(n, f, ret_moved, error);
            if (status == HVD_OK)
                status = flight_post(n, f, ret_moved, error);
            if (status != HVD_OK)
                return status;
            is_pending |= f->done < f->segment_count;
        }
        if (is_pending)
            return HVD_IN_PROGRESS;
        c->flight_count = 0;
        if (c->cursor == c->end)
            return HVD_OK;
        channel_next(n, c);
        *ret_moved = true;
    }
}

/* ---- sections ---- */

static void section_begin(struct net_exec *x)
{
    const struct schedule *s = x->schedule;
    for (int32_t c = 0; c < NET_CHANNELS; c++)
        x->channels[c].cursor = x->channels[c].end = 0;
    while (x->cursor < s->step_count && !is_wave_step(&s->steps[x->cursor])) {
        struct net_channel *c = &x->channels[s->steps[x->cursor].channel];
        if (c->end == 0)
            c->cursor = x->cursor;
        c->end = ++x->cursor;
    }
    x->in_section = true;
}

static hvd_status_t section_progress(struct net_coll *n, bool *ret_moved, struct error *error)
{
    hvd_status_t result = HVD_OK;
    for (int32_t c = 0; c < n->exec.schedule->channels; c++) {
        hvd_status_t status = channel_progress(n, &n->exec.channels[c], ret_moved, error);
        if (status < 0)
            return status;
        if (status == HVD_IN_PROGRESS)
            result = HVD_IN_PROGRESS;
    }
    return result;
}

hvd_status_t net_exec_progress(struct net_coll *n, bool *ret_moved, struct error *error)
{
    struct net_exec *x = &n->exec;
    while (x->in_section || x->cursor < x->schedule->step_count) {
        hvd_status_t status;
        if (!x->in_section && is_wave_step(&x->schedule->steps[x->cursor])) {
            status = net_wave_step(n, &x->schedule->steps[x->cursor], ret_moved, error);
            if (status != HVD_OK)
                return status;
            x->wave_done = 0;
            x->cursor++;
            continue;
        }
        if (!x->in_section)
            section_begin(x);
        status = section_progress(n, ret_moved, error);
        if (status != HVD_OK)
            return status;
        x->in_section = false;
    }
    x->is_running = false;
    return HVD_OK;
}

void net_exec_cancel(struct net_coll *n)
{
    struct net_exec *x = &n->exec;
    if (!x->is_running)
        return;
    for (int32_t c = 0; c < NET_CHANNELS; c++) {
        for (int32_t i = 0; i < x->channels[c].flight_count; i++) {
            struct net_flight *f = &x->flights[x->channels[c].flight_first + i];
            if (f->posted > 0 && f->done < f->segment_count)
                way_end(n, way_of(n, f));
            for (uint64_t k = f->done; k < f->posted; k++)
                if (f->reqs[k % NET_WINDOW].status == HVD_IN_PROGRESS)
                    f->transport->ops->bulk_cancel(f->transport, &f->reqs[k % NET_WINDOW]);
        }
        x->channels[c].flight_count = 0;
    }
    x->is_running = false;
}

void net_exec_destroy(struct net_coll *n)
{
    net_exec_cancel(n);
    os_free(n->os, n->exec.flights);
    os_free(n->os, n->exec.stage);
}
