/* SPDX-License-Identifier: Apache-2.0 */
/* check.c - proves schedules by running all ranks symbolically.
 *
 * Values: every input element is a random 64-bit number; reductions add modulo 2^64, so a result
 * equals the sum of all inputs only if it contains each of them exactly once (except with
 * probability 2^-64). Besides the sum every element carries a hash whose combination neither
 * commutes nor associates: all ranks must have equal hashes at the end, which means that floating
 * point gives the same bits everywhere. A final reduction multiplies, so folding postscale in twice
 * or never is detected.
 *
 * Transfers are rendezvous: a send completes only when its receive is posted. A schedule that
 * passes therefore needs no buffering anywhere. A seeded random choice among the channels that can
 * run gives the interleaving; if nothing can run before the end, it is a deadlock, reported with a
 * step that waits.
 *
 * Races: (1) the steps of an open run, and steps of different channels between two waves, may not
 * write what another reads or writes. (2) Between ranks on a machine, order comes from waves alone:
 * an access before PUBLISH p is ordered before an access after AWAIT p, and no other. Every element
 * remembers its last write and latest reads with the number of the accessing rank's next publish;
 * an access by another rank must come after it has awaited that number.
 *
 * The collective is run several times back to back, and each rank fills in new inputs as soon as it
 * has its result, so that leftovers of one run that disturb the next are detected too.
 *
 * Thread: any.  Owner: the caller's stack.  Start reading at schedule_prove(). */
#include "schedule/check.h"

#include <string.h>

#define NONE      (-1)
#define FINAL_MUL 0x9e3779b97f4a7c15ull
#define SEVERAL   31u /* channel tag: read by more than one channel */

struct value {
    uint64_t sum, hash;
};

struct mark { /* accesses to one element; *_wave is the publish they come before */
    int32_t writer, write_wave;
    int32_t reader, read_wave; /* the latest in waves */
    int32_t other_wave;        /* the latest of another rank than `reader` */
};

struct tag { /* section * 32 + channel of the last accesses; 0: none */
    uint32_t write, read;
};

struct flight { /* a posted transfer */
    const struct step *step;
    int32_t thread;
    int32_t next; /* in its queue */
    bool is_done;
    struct value *held; /* arrived, but a send of the same region has not left yet */
};

struct thread { /* one channel of one rank */
    size_t cursor, end;
    int32_t flight_first, flight_count, pending;
    int32_t flight_capacity;
};

struct runner { /* one rank */
    size_t cursor;
    int32_t busy; /* channels that have not reached the end of the section */
    uint32_t section;
    int32_t published, awaited; /* numbers of waves */
    int32_t wave_base, wave_count;
    int32_t round;
    bool is_waiting, is_finished;
};

struct host {
    int32_t waves;   /* published by all of its ranks */
    int32_t arrived; /* ranks that have published the next one */
};

struct queue {    /* transfers of one (sender, receiver, channel) that wait for their match */
    uint64_t key; /* 0: free */
    int32_t head, tail;
    bool is_send;
};

struct prover {
    const struct os *os;
    const struct proof *proof;
    struct error *error;
    int32_t size, channels;
    uint64_t count, scratch_count, random;
    bool has_waves;
    struct value *work, *scratch; /* [rank][element]; scratch is doubled for alternate rounds */
    struct mark *work_marks, *scratch_marks;
    struct tag *tags;
    struct value *expected; /* [round][element]; hash: what the first rank got */
    bool *has_expected;
    struct value *held;
    uint64_t held_used, held_capacity;
    struct runner *runners;
    struct thread *threads;
    struct flight *flights;
    struct queue *queues;
    uint64_t queue_mask, queue_used;
    int32_t *ready;
    int32_t ready_count;
    struct host *hosts;
    int32_t *host_start, *host_ranks; /* ranks of host h: host_ranks[host_start[h] .. h + 1) */
};

/* ---- numbers ---- */

static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
}

static uint64_t next_random(struct prover *p)
{
    p->random += 0x9e3779b97f4a7c15ull;
    return mix(p->random);
}

static struct value value_input(const struct proof *proof, int32_t round, int32_t rank,
                                uint64_t element)
{
    uint64_t x = mix(proof->seed * 3 + (uint64_t)round);
    x = mix(x + (uint32_t)rank * 0x632be59bd9b4e019ull);
    x = mix(x + element * 0xd6e8feb86659fd93ull);
    return (struct value){x, x};
}

static struct value value_combine(struct value left, struct value right)
{
    uint64_t turned = (left.hash << 23) | (left.hash >> 41);
    return (struct value){left.sum + right.sum,
                          turned * 0xff51afd7ed558ccdull + right.hash * 0xc4ceb9fe1a85ec53ull};
}

static struct value value_final(struct value v, bool is_final)
{
    return is_final ? (struct value){v.sum * FINAL_MUL, v.hash * FINAL_MUL} : v;
}

static void value_reduce(const struct step *step, struct value *own, const struct value *from)
{
    for (uint64_t i = 0; i < step->count; i++) {
        struct value v =
            step->is_left ? value_combine(own[i], from[i]) : value_combine(from[i], own[i]);
        own[i] = value_final(v, step->is_final);
    }
}

/* ---- reporting ---- */

static const char *kind_name(enum step_kind kind)
{
    switch (kind) {
    case STEP_SEND: return "send";
    case STEP_RECV: return "recv";
    case STEP_RECV_REDUCE: return "recv_reduce";
    case STEP_SEND_TEMP: return "send_temp";
    case STEP_RECV_TEMP: return "recv_temp";
    case STEP_COPY_OUT: return "copy_out";
    case STEP_COPY_IN: return "copy_in";
    case STEP_REDUCE_IN: return "reduce_in";
    case STEP_PUBLISH: return "publish";
    case STEP_AWAIT: return "await";
    case STEP_REDUCE_HOST: return "reduce_host";
    case STEP_SPREAD: return "spread";
    }
    return "unknown";
}

static hvd_status_t refuse(struct prover *p, int32_t rank, const struct step *step, const char *why)
{
    return error_set(p->error, HVD_ERR_INTERNAL,
                     "schedule refused: rank %d of %d, step %ld (%s peer %d channel %d [%llu, "
                     "+%llu)): %s",
                     rank, p->size, (long)(step - p->proof->schedules[rank].steps),
                     kind_name(step->kind), step->peer, step->channel,
                     (unsigned long long)step->offset, (unsigned long long)step->count, why);
}

/* ---- memory and races ---- */

static bool is_wave_step(const struct step *step)
{
    return step->kind >= STEP_PUBLISH;
}

static bool is_sending(const struct step *step)
{
    return step->kind == STEP_SEND || step->kind == STEP_SEND_TEMP;
}

static bool is_transfer(const struct step *step)
{
    return step->kind <= STEP_RECV_TEMP;
}

static bool is_temp(const struct step *step)
{
    return step->kind == STEP_SEND_TEMP || step->kind == STEP_RECV_TEMP;
}

static uint64_t scratch_base(const struct prover *p, int32_t rank)
{
    uint64_t area = (uint64_t)p->runners[rank].round & 1;
    return (uint64_t)rank * 2 * p->scratch_count + area * p->scratch_count;
}

static uint64_t work_base(const struct prover *p, int32_t rank)
{
    return (uint64_t)rank * p->count;
}

static bool is_inside(uint64_t offset, uint64_t count, uint64_t limit)
{
    return offset <= limit && count <= limit - offset;
}

static bool mark_read(struct mark *m, const struct runner *r, int32_t rank)
{
    bool is_ordered = m->writer == NONE || m->writer == rank || m->write_wave < r->awaited;
    if (m->reader == rank || m->reader == NONE) {
        m->reader = rank;
        m->read_wave = r->published;
    } else if (r->published >= m->read_wave) {
        if (m->read_wave > m->other_wave)
            m->other_wave = m->read_wave;
        m->reader = rank;
        m->read_wave = r->published;
    } else if (r->published > m->other_wave) {
        m->other_wave = r->published;
    }
    return is_ordered;
}

static bool mark_write(struct mark *m, const struct runner *r, int32_t rank)
{
    bool is_ordered = m->writer == NONE || m->writer == rank || m->write_wave < r->awaited;
    if (m->reader != NONE && m->reader != rank && m->read_wave >= r->awaited)
        is_ordered = false;
    /* other_wave may be this rank's own read: then `reader` is another rank with a later wave, and
     * the test above has covered the stricter case. */
    if (m->reader == rank && m->other_wave >= r->awaited)
        is_ordered = false;
    *m = (struct mark){rank, r->published, NONE, 0, NONE};
    return is_ordered;
}

/* `rank` touches [first, +count) of a marked memory. */
static bool touch(const struct prover *p, struct mark *marks, uint64_t first, uint64_t count,
                  int32_t rank, bool is_write)
{
    bool is_ordered = true;
    if (!p->has_waves)
        return true;
    for (uint64_t i = first; i < first + count; i++)
        is_ordered &= is_write ? mark_write(&marks[i], &p->runners[rank], rank)
                               : mark_read(&marks[i], &p->runners[rank], rank);
    return is_ordered;
}

/* Two channels of a rank may not meet in WORK between two waves if one of them writes. */
static bool tag_work(struct prover *p, int32_t rank, const struct step *step, bool is_write)
{
    if (p->tags == NULL)
        return true;
    struct tag *tags = p->tags + work_base(p, rank) + step->offset;
    uint32_t section = p->runners[rank].section * 32u, mine = section + step->channel;
    bool is_alone = true;
    for (uint64_t i = 0; i < step->count; i++) {
        bool has_write = tags[i].write / 32u * 32u == section && tags[i].write != 0;
        bool has_read = tags[i].read / 32u * 32u == section && tags[i].read != 0;
        is_alone &= !(has_write && tags[i].write != mine);
        if (is_write) {
            is_alone &= !(has_read && tags[i].read != mine);
            tags[i].write = mine;
        } else {
            tags[i].read = has_read && tags[i].read != mine ? section + SEVERAL : mine;
        }
    }
    return is_alone;
}

/* ---- queues ---- */

static struct queue *queue_slot(struct queue *queues, uint64_t mask, uint64_t key)
{
    uint64_t at = mix(key) & mask;
    while (queues[at].key != 0 && queues[at].key != key)
        at = (at + 1) & mask;
    return &queues[at];
}

static bool queue_grow(struct prover *p)
{
    uint64_t mask = p->queue_mask * 2 + 1;
    struct queue *queues = os_alloc(p->os, (mask + 1) * sizeof *queues);
    if (queues == NULL)
        return false;
    for (uint64_t i = 0; p->queues != NULL && i <= p->queue_mask; i++)
        if (p->queues[i].key != 0)
            *queue_slot(queues, mask, p->queues[i].key) = p->queues[i];
    os_free(p->os, p->queues);
    p->queues = queues;
    p->queue_mask = mask;
    return true;
}

static struct queue *queue_find(struct prover *p, int32_t from, int32_t to, int32_t channel)
{
    uint64_t key = (((uint64_t)from << 32 | (uint64_t)to << 8 | (uint64_t)channel) << 1) + 1;
    if (p->queue_used * 2 > p->queue_mask && !queue_grow(p))
        return NULL;
    struct queue *q = queue_slot(p->queues, p->queue_mask, key);
    if (q->key == 0) {
        *q = (struct queue){key, NONE, NONE, false};
        p->queue_used++;
    }
    return q;
}

static void queue_append(struct prover *p, struct queue *q, int32_t flight, bool is_send)
{
    p->flights[flight].next = NONE;
    if (q->head == NONE)
        q->head = flight;
    else
        p->flights[q->tail].next = flight;
    q->tail = flight;
    q->is_send = is_send;
}

static int32_t queue_pop(struct prover *p, struct queue *q)
{
    int32_t flight = q->head;
    q->head = p->flights[flight].next;
    return flight;
}

/* ---- transfers ---- */

static int32_t rank_of(const struct prover *p, int32_t thread)
{
    return thread / (p->channels + 1);
}

static void make_ready(struct prover *p, int32_t thread)
{
    p->ready[p->ready_count++] = thread;
}

static void flight_done(struct prover *p, struct flight *f)
{
    f->is_done = true;
    if (--p->threads[f->thread].pending == 0)
        make_ready(p, f->thread);
}

static bool is_same_region(const struct step *a, const struct step *b)
{
    return a->offset == b->offset && a->count == b->count;
}

/* Is a send of the region that `f` reduces into still in progress in the same run? */
static bool is_blocked(const struct prover *p, const struct flight *f)
{
    const struct thread *t = &p->threads[f->thread];
    for (int32_t i = t->flight_first; i < t->flight_first + t->flight_count; i++) {
        const struct flight *other = &p->flights[i];
        if (other->step->kind == STEP_SEND && !other->is_done &&
            is_same_region(other->step, f->step))
            return true;
    }
    return false;
}

static void reduce_into(struct prover *p, const struct flight *f, const struct value *from)
{
    const struct step *step = f->step;
    value_reduce(step, p->work + work_base(p, rank_of(p, f->thread)) + step->offset, from);
}

static struct value *hold(struct prover *p, const struct value *from, uint64_t count)
{
    if (p->held_used + count > p->held_capacity)
        return NULL;
    struct value *held = p->held + p->held_used;
    p->held_used += count;
    memcpy(held, from, count * sizeof *from);
    return held;
}

static const struct value *flight_source(const struct prover *p, const struct flight *f)
{
    int32_t rank = rank_of(p, f->thread);
    if (f->step->kind == STEP_SEND)
        return p->work + work_base(p, rank) + f->step->offset;
    return p->scratch + scratch_base(p, rank) + f->step->offset;
}

static hvd_status_t arrive(struct prover *p, struct flight *f, const struct value *from)
{
    int32_t rank = rank_of(p, f->thread);
    const struct step *step = f->step;
    if (step->kind == STEP_RECV_REDUCE && is_blocked(p, f)) {
        f->held = hold(p, from, step->count);
        return f->held != NULL ? HVD_OK : refuse(p, rank, step, "held data out of bounds");
    }
    if (step->kind == STEP_RECV_REDUCE)
        reduce_into(p, f, from);
    else if (step->kind == STEP_RECV)
        memcpy(p->work + work_base(p, rank) + step->offset, from, step->count * sizeof *from);
    else
        memcpy(p->scratch + scratch_base(p, rank) + step->offset, from, step->count * sizeof *from);
    flight_done(p, f);
    return HVD_OK;
}

/* A send has completed: what was held back for it may be reduced now. */
static void release_held(struct prover *p, const struct flight *sent)
{
    const struct thread *t = &p->threads[sent->thread];
    for (int32_t i = t->flight_first; i < t->flight_first + t->flight_count; i++) {
        struct flight *f = &p->flights[i];
        if (f->held == NULL || !is_same_region(f->step, sent->step) || is_blocked(p, f))
            continue;
        reduce_into(p, f, f->held);
        f->held = NULL;
        flight_done(p, f);
    }
}

static hvd_status_t match(struct prover *p, struct flight *send, struct flight *recv)
{
    if (send->step->count != recv->step->count)
        return refuse(p, rank_of(p, recv->thread), recv->step,
                      "the matching send has another length");
    hvd_status_t status = arrive(p, recv, flight_source(p, send));
    if (status != HVD_OK)
        return status;
    flight_done(p, send);
    if (send->step->kind == STEP_SEND)
        release_held(p, send);
    return HVD_OK;
}

static hvd_status_t flight_post(struct prover *p, int32_t index)
{
    struct flight *f = &p->flights[index];
    int32_t rank = rank_of(p, f->thread);
    bool is_send = is_sending(f->step);
    struct queue *q = queue_find(p, is_send ? rank : f->step->peer, is_send ? f->step->peer : rank,
                                 f->step->channel);
    if (q == NULL)
        return error_set(p->error, HVD_ERR_NO_MEMORY, "no memory to prove a schedule");
    if (q->head == NONE || q->is_send == is_send) {
        queue_append(p, q, index, is_send);
        return HVD_OK;
    }
    struct flight *other = &p->flights[queue_pop(p, q)];
    return is_send ? match(p, f, other) : match(p, other, f);
}

static bool is_meeting(const struct step *a, const struct step *b)
{
    if (is_temp(a) != is_temp(b))
        return false;
    if (a->offset >= b->offset + b->count || b->offset >= a->offset + a->count)
        return false;
    bool is_swap = (a->kind == STEP_RECV_REDUCE && b->kind == STEP_SEND) ||
                   (b->kind == STEP_RECV_REDUCE && a->kind == STEP_SEND);
    return !(is_swap && is_same_region(a, b));
}

/* The steps of an open run may not disturb each other. */
static hvd_status_t check_run(struct prover *p, int32_t rank, const struct thread *t)
{
    const struct flight *run = p->flights + t->flight_first;
    for (int32_t i = 0; i < t->flight_count; i++) {
        if (is_sending(run[i].step))
            continue;
        for (int32_t j = 0; j < t->flight_count; j++)
            if (i != j && is_meeting(run[i].step, run[j].step))
                return refuse(p, rank, run[i].step, "meets another step of its open run");
    }
    return HVD_OK;
}

static hvd_status_t check_transfer(struct prover *p, int32_t rank, const struct step *step)
{
    if (step->peer < 0 || step->peer >= p->size || step->peer == rank)
        return refuse(p, rank, step, "no such peer");
    if (step->count == 0)
        return refuse(p, rank, step, "a transfer of nothing");
    if (!is_inside(step->offset, step->count, is_temp(step) ? p->scratch_count : p->count))
        return refuse(p, rank, step, "outside of the buffer");
    bool is_write = !is_sending(step);
    if (!is_temp(step) && !tag_work(p, rank, step, is_write))
        return refuse(p, rank, step, "two channels meet in one place");
    uint64_t base = is_temp(step) ? scratch_base(p, rank) : work_base(p, rank);
    if (!touch(p, is_temp(step) ? p->scratch_marks : p->work_marks, base + step->offset,
               step->count, rank, is_write))
        return refuse(p, rank, step, "not ordered after another rank's access");
    return HVD_OK;
}

/* ---- local steps ---- */

static bool is_local(const struct step *step)
{
    return step->kind >= STEP_COPY_OUT && step->kind <= STEP_REDUCE_IN;
}

static hvd_status_t run_local(struct prover *p, int32_t rank, const struct step *step)
{
    bool is_in = step->kind == STEP_COPY_IN;
    uint64_t work_at = is_in ? step->source : step->offset;
    uint64_t temp_at = is_in ? step->offset : step->source;
    if (!is_inside(work_at, step->count, p->count) ||
        !is_inside(temp_at, step->count, p->scratch_count))
        return refuse(p, rank, step, "outside of the buffer");
    work_at += work_base(p, rank);
    temp_at += scratch_base(p, rank);
    bool is_ordered = touch(p, p->work_marks, work_at, step->count, rank, !is_in);
    is_ordered &= touch(p, p->scratch_marks, temp_at, step->count, rank, is_in);
    if (!is_ordered)
        return refuse(p, rank, step, "not ordered after another rank's access");
    if (step->kind == STEP_REDUCE_IN) {
        value_reduce(step, p->work + work_at, p->scratch + temp_at);
        return HVD_OK;
    }
    memcpy(is_in ? p->scratch + temp_at : p->work + work_at,
           is_in ? p->work + work_at : p->scratch + temp_at, step->count * sizeof *p->work);
    return HVD_OK;
}

/* Posts the next step with the open steps before it. */
static hvd_status_t run_group(struct prover *p, int32_t rank, int32_t thread)
{
    struct thread *t = &p->threads[thread];
    const struct step *steps = p->proof->schedules[rank].steps;
    hvd_status_t status = HVD_OK;
    t->flight_count = 0;
    for (bool is_open = true; is_open && t->cursor < t->end; t->cursor++) {
        const struct step *step = &steps[t->cursor];
        is_open = step->is_open;
        if (!is_transfer(step))
            return is_open || t->flight_count > 0 ? refuse(p, rank, step, "a copy in an open run")
                                                  : refuse(p, rank, step, "not a transfer");
        status = check_transfer(p, rank, step);
        if (status != HVD_OK)
            return status;
        p->flights[t->flight_first + t->flight_count++] =
            (struct flight){step, thread, NONE, false, NULL};
    }
    status = check_run(p, rank, t);
    t->pending = t->flight_count;
    for (int32_t i = 0; i < t->flight_count && status == HVD_OK; i++)
        status = flight_post(p, t->flight_first + i);
    return status;
}

static hvd_status_t run_channel(struct prover *p, int32_t thread)
{
    struct thread *t = &p->threads[thread];
    int32_t rank = rank_of(p, thread);
    const struct step *steps = p->proof->schedules[rank].steps;
    while (t->cursor < t->end) {
        const struct step *step = &steps[t->cursor];
        if (step->is_open || !is_local(step))
            return run_group(p, rank, thread);
        hvd_status_t status = run_local(p, rank, step);
        if (status != HVD_OK)
            return status;
        t->cursor++;
    }
    if (--p->runners[rank].busy == 0)
        make_ready(p, rank * (p->channels + 1) + p->channels);
    return HVD_OK;
}

/* ---- waves ---- */

/* The wave that machine `h` was waiting for is complete: ranks that wait for it continue. */
static void wave_complete(struct prover *p, int32_t h)
{
    struct host *host = &p->hosts[h];
    host->waves++;
    host->arrived = 0;
    for (int32_t i = p->host_start[h]; i < p->host_start[h + 1]; i++) {
        struct runner *r = &p->runners[p->host_ranks[i]];
        if (r->published > host->waves)
            host->arrived++;
        if (!r->is_waiting)
            continue;
        r->is_waiting = false;
        make_ready(p, p->host_ranks[i] * (p->channels + 1) + p->channels);
    }
}

static hvd_status_t run_publish(struct prover *p, int32_t rank, const struct step *step)
{
    struct runner *r = &p->runners[rank];
    int32_t h = p->proof->topology->host[rank];
    if (r->wave_base + step->wave != r->published)
        return refuse(p, rank, step, "waves must be published one after the other");
    if (r->published++ == p->hosts[h].waves)
        p->hosts[h].arrived++;
    while (p->hosts[h].arrived == p->host_start[h + 1] - p->host_start[h])
        wave_complete(p, h);
    return HVD_OK;
}

/* HVD_IN_PROGRESS: not yet. */
static hvd_status_t run_await(struct prover *p, int32_t rank, const struct step *step)
{
    struct runner *r = &p->runners[rank];
    int32_t wave = r->wave_base + step->wave;
    if (wave >= r->published)
        return refuse(p, rank, step, "awaits a wave before publishing it");
    if (wave >= p->hosts[p->proof->topology->host[rank]].waves) {
        r->is_waiting = true;
        return HVD_IN_PROGRESS;
    }
    if (wave + 1 > r->awaited)
        r->awaited = wave + 1;
    return HVD_OK;
}

/* Where a step's elements are in the WORK of `rank`. */
static uint64_t work_at(const struct prover *p, const struct step *step, int32_t rank)
{
    return (uint64_t)rank * p->count + step->offset;
}

/* The ranks that a step reads from or writes to: all of the host, or one of them. */
struct crew {
    const int32_t *ranks;
    int32_t count;
};

static bool touch_crew(const struct prover *p, const struct step *step, struct crew crew,
                       int32_t rank, bool is_write)
{
    bool is_ordered = true;
    for (int32_t i = 0; i < crew.count; i++)
        is_ordered &=
            touch(p, p->work_marks, work_at(p, step, crew.ranks[i]), step->count, rank, is_write);
    return is_ordered;
}

static void reduce_crew(const struct prover *p, const struct step *step, struct crew readers,
                        struct crew writers)
{
    for (uint64_t e = 0; e < step->count; e++) {
        struct value v = p->work[work_at(p, step, readers.ranks[0]) + e];
        for (int32_t i = 1; i < readers.count; i++)
            v = value_combine(v, p->work[work_at(p, step, readers.ranks[i]) + e]);
        v = value_final(v, step->is_final);
        for (int32_t i = 0; i < writers.count; i++)
            p->work[work_at(p, step, writers.ranks[i]) + e] = v;
    }
}

static hvd_status_t run_host(struct prover *p, int32_t rank, const struct step *step)
{
    int32_t host = p->proof->topology->host[rank], first = p->host_start[host];
    struct crew all = {p->host_ranks + first, p->host_start[host + 1] - first}, self = {&rank, 1};
    bool is_spread = step->kind == STEP_SPREAD;
    struct crew readers = is_spread ? self : all, writers = is_spread ? all : self;
    if (!is_inside(step->offset, step->count, p->count))
        return refuse(p, rank, step, "outside of the buffer");
    bool is_ordered = touch_crew(p, step, readers, rank, false);
    is_ordered &= touch_crew(p, step, writers, rank, true);
    if (!is_ordered)
        return refuse(p, rank, step, "not ordered after another rank's access");
    reduce_crew(p, step, readers, writers);
    return HVD_OK;
}

static hvd_status_t run_wave_step(struct prover *p, int32_t rank, const struct step *step)
{
    if (step->kind == STEP_PUBLISH)
        return run_publish(p, rank, step);
    if (step->kind == STEP_AWAIT)
        return run_await(p, rank, step);
    if (step->kind == STEP_REDUCE_HOST || step->kind == STEP_SPREAD)
        return run_host(p, rank, step);
    return refuse(p, rank, step, "unknown step");
}

/* ---- a rank from start to end ---- */

static struct value goal_input(const struct prover *p, int32_t rank, int32_t round, uint64_t e)
{
    return value_input(p->proof, round, rank, e);
}

static hvd_status_t fill(struct prover *p, int32_t rank)
{
    struct runner *r = &p->runners[rank];
    uint64_t base = work_base(p, rank);
    bool is_ordered = touch(p, p->work_marks, base, p->count, rank, true);
    for (uint64_t e = 0; e < p->count; e++)
        p->work[base + e] = goal_input(p, rank, r->round, e);
    if (!is_ordered)
        return error_set(p->error, HVD_ERR_INTERNAL,
                         "schedule refused: rank %d of %d may be disturbed by another rank after "
                         "the end",
                         rank, p->size);
    return HVD_OK;
}

/* The part of WORK that must contain a result at the end on `rank`. */
static void goal_region(const struct proof *proof, int32_t rank, uint64_t *ret_first,
                        uint64_t *ret_count)
{
    bool is_part = proof->goal == PROOF_REDUCESCATTER;
    *ret_first = is_part ? proof->offsets[rank] : 0;
    *ret_count = is_part ? proof->counts[rank] : proof->count;
}

static hvd_status_t verify(struct prover *p, int32_t rank)
{
    struct runner *r = &p->runners[rank];
    uint64_t first, count, base = work_base(p, rank);
    goal_region(p->proof, rank, &first, &count);
    if (!touch(p, p->work_marks, base, p->count, rank, false))
        return error_set(p->error, HVD_ERR_INTERNAL,
                         "schedule refused: rank %d of %d ends before its result is in place", rank,
                         p->size);
    for (uint64_t e = first; e < first + count; e++) {
        uint64_t at = (uint64_t)r->round * p->count + e;
        struct value got = p->work[base + e];
        if (!p->has_expected[at]) {
            p->expected[at].hash = got.hash;
            p->has_expected[at] = true;
        }
        if (got.sum != p->expected[at].sum)
            return error_set(p->error, HVD_ERR_INTERNAL,
                             "schedule refused: rank %d of %d ends with a wrong element %llu", rank,
                             p->size, (unsigned long long)e);
        if (got.hash != p->expected[at].hash)
            return error_set(p->error, HVD_ERR_INTERNAL,
                             "schedule refused: rank %d of %d added element %llu in another order",
                             rank, p->size, (unsigned long long)e);
    }
    return HVD_OK;
}

static hvd_status_t round_end(struct prover *p, int32_t rank)
{
    struct runner *r = &p->runners[rank];
    hvd_status_t status = verify(p, rank);
    if (status != HVD_OK)
        return status;
    r->round++;
    r->cursor = 0;
    r->wave_base += r->wave_count;
    if (r->round == p->proof->rounds) {
        r->is_finished = true;
        return HVD_OK;
    }
    make_ready(p, rank * (p->channels + 1) + p->channels);
    return fill(p, rank);
}

/* Hands the steps up to the next wave step to their channels. */
static hvd_status_t section_start(struct prover *p, int32_t rank)
{
    struct runner *r = &p->runners[rank];
    const struct schedule *s = &p->proof->schedules[rank];
    uint32_t seen = 0;
    r->section++;
    while (r->cursor < s->step_count && !is_wave_step(&s->steps[r->cursor])) {
        const struct step *step = &s->steps[r->cursor];
        if (step->channel >= p->channels)
            return refuse(p, rank, step, "no such channel");
        if ((seen >> step->channel & 1) != 0)
            return refuse(p, rank, step, "the steps of a channel do not stand together");
        seen |= 1u << step->channel;
        int32_t thread = rank * (p->channels + 1) + step->channel;
        p->threads[thread].cursor = r->cursor;
        while (r->cursor < s->step_count && !is_wave_step(&s->steps[r->cursor]) &&
               s->steps[r->cursor].channel == step->channel)
            r->cursor++;
        p->threads[thread].end = r->cursor;
        r->busy++;
        make_ready(p, thread);
    }
    return HVD_OK;
}

static hvd_status_t run_rank(struct prover *p, int32_t rank)
{
    struct runner *r = &p->runners[rank];
    const struct schedule *s = &p->proof->schedules[rank];
    while (r->cursor < s->step_count) {
        const struct step *step = &s->steps[r->cursor];
        if (!is_wave_step(step))
            return section_start(p, rank);
        hvd_status_t status = run_wave_step(p, rank, step);
        if (status == HVD_IN_PROGRESS)
            return HVD_OK;
        if (status != HVD_OK)
            return status;
        r->cursor++;
    }
    return round_end(p, rank);
}

/* ---- the whole ---- */

static hvd_status_t report_stuck(struct prover *p)
{
    for (int32_t rank = 0; rank < p->size; rank++) {
        const struct runner *r = &p->runners[rank];
        if (r->is_finished)
            continue;
        if (r->is_waiting)
            return refuse(p, rank, &p->proof->schedules[rank].steps[r->cursor], "waits for ever");
        for (int32_t c = 0; c < p->channels; c++) {
            const struct thread *t = &p->threads[rank * (p->channels + 1) + c];
            if (t->pending > 0)
                return refuse(p, rank, &p->proof->schedules[rank].steps[t->cursor - 1],
                              "waits for ever");
        }
    }
    return HVD_OK;
}

static hvd_status_t run_all(struct prover *p)
{
    for (int32_t rank = 0; rank < p->size; rank++) {
        hvd_status_t status = fill(p, rank);
        if (status != HVD_OK)
            return status;
        make_ready(p, rank * (p->channels + 1) + p->channels);
    }
    while (p->ready_count > 0) {
        int32_t at = (int32_t)(next_random(p) % (uint64_t)p->ready_count);
        int32_t thread = p->ready[at];
        p->ready[at] = p->ready[--p->ready_count];
        bool is_rank = thread % (p->channels + 1) == p->channels;
        hvd_status_t status = is_rank ? run_rank(p, rank_of(p, thread)) : run_channel(p, thread);
        if (status != HVD_OK)
            return status;
    }
    return report_stuck(p);
}

static uint64_t expected_sum(const struct proof *proof, int32_t round, uint64_t e)
{
    int32_t n = proof->topology->size;
    uint64_t sum = 0;
    switch (proof->goal) {
    case PROOF_ALLREDUCE:
    case PROOF_REDUCESCATTER:
        for (int32_t rank = 0; rank < n; rank++)
            sum += value_input(proof, round, rank, e).sum;
        return n == 1 ? sum : sum * FINAL_MUL;
    case PROOF_BROADCAST: return value_input(proof, round, proof->root, e).sum;
    case PROOF_ALLGATHER:
        for (int32_t rank = 0; rank < n; rank++)
            if (e - proof->offsets[rank] < proof->counts[rank])
                return value_input(proof, round, rank, e).sum;
        return 0;
    }
    return 0;
}

static void measure(struct prover *p)
{
    for (int32_t rank = 0; rank < p->size; rank++) {
        const struct schedule *s = &p->proof->schedules[rank];
        if (s->channels > p->channels)
            p->channels = s->channels;
        if (s->scratch_count > p->scratch_count)
            p->scratch_count = s->scratch_count;
        for (size_t i = 0; i < s->step_count; i++) {
            const struct step *step = &s->steps[i];
            if (is_wave_step(step))
                p->has_waves = true;
            if (step->kind == STEP_RECV_REDUCE)
                p->held_capacity += step->count;
        }
    }
    p->held_capacity *= (uint64_t)p->proof->rounds;
}

/* Longest open run of every channel: so many flights it needs. */
static int64_t flights_assign(struct prover *p)
{
    int64_t total = 0;
    for (int32_t rank = 0; rank < p->size; rank++) {
        const struct schedule *s = &p->proof->schedules[rank];
        struct thread *threads = p->threads + (int64_t)rank * (p->channels + 1);
        int32_t run = 0;
        for (size_t i = 0; i < s->step_count; i++) {
            struct thread *t =
                &threads[s->steps[i].channel < p->channels ? s->steps[i].channel : 0];
            run++;
            if (run > t->flight_capacity)
                t->flight_capacity = run;
            if (!s->steps[i].is_open)
                run = 0;
            if (s->steps[i].kind == STEP_PUBLISH && s->steps[i].wave >= p->runners[rank].wave_count)
                p->runners[rank].wave_count = s->steps[i].wave + 1;
        }
        for (int32_t c = 0; c < p->channels; c++) {
            threads[c].flight_first = (int32_t)total;
            total += threads[c].flight_capacity;
        }
    }
    return total;
}

static void hosts_list(struct prover *p)
{
    const struct topology *topology = p->proof->topology;
    for (int32_t i = 0; i < p->size; i++)
        p->host_start[topology->host[i] + 1]++;
    for (int32_t h = 0; h < topology->host_count; h++)
        p->host_start[h + 1] += p->host_start[h];
    int32_t *fill_at = p->host_ranks + p->size;
    memcpy(fill_at, p->host_start, (size_t)topology->host_count * sizeof *fill_at);
    for (int32_t i = 0; i < p->size; i++)
        p->host_ranks[fill_at[topology->host[i]]++] = i;
}

static struct mark *marks_make(const struct os *os, uint64_t count)
{
    struct mark *marks = os_alloc(os, (count + 1) * sizeof *marks);
    for (uint64_t i = 0; marks != NULL && i < count; i++)
        marks[i] = (struct mark){NONE, 0, NONE, 0, NONE};
    return marks;
}

static bool prover_alloc(struct prover *p)
{
    const struct os *os = p->os;
    uint64_t n = (uint64_t)p->size, rounds = (uint64_t)p->proof->rounds;
    uint64_t cells = n * p->count, temps = 2 * n * p->scratch_count;
    uint64_t tasks = n * ((uint64_t)p->channels + 1);
    p->work = os_alloc(os, (cells + 1) * sizeof *p->work);
    p->scratch = os_alloc(os, (temps + 1) * sizeof *p->scratch);
    p->expected = os_alloc(os, (rounds * p->count + 1) * sizeof *p->expected);
    p->has_expected = os_alloc(os, rounds * p->count + 1);
    p->held = os_alloc(os, (p->held_capacity + 1) * sizeof *p->held);
    p->runners = os_alloc(os, n * sizeof *p->runners);
    p->threads = os_alloc(os, tasks * sizeof *p->threads);
    p->ready = os_alloc(os, tasks * sizeof *p->ready);
    p->hosts = os_alloc(os, n * sizeof *p->hosts);
    p->host_start = os_alloc(os, (n + 2) * sizeof *p->host_start);
    p->host_ranks = os_alloc(os, 2 * n * sizeof *p->host_ranks);
    if (p->has_waves) {
        p->work_marks = marks_make(os, cells);
        p->scratch_marks = marks_make(os, temps);
    }
    if (p->channels > 1)
        p->tags = os_alloc(os, (cells + 1) * sizeof *p->tags);
    if (p->work == NULL || p->scratch == NULL || p->expected == NULL || p->has_expected == NULL ||
        p->held == NULL || p->runners == NULL || p->threads == NULL || p->ready == NULL ||
        p->host_start == NULL || p->hosts == NULL || p->host_ranks == NULL ||
        (p->has_waves && (p->work_marks == NULL || p->scratch_marks == NULL)) ||
        (p->channels > 1 && p->tags == NULL))
        return false;
    p->flights = os_alloc(os, ((uint64_t)flights_assign(p) + 1) * sizeof *p->flights);
    return p->flights != NULL;
}

static void prover_free(struct prover *p)
{
    void *const blocks[] = {p->work,         p->scratch,    p->work_marks, p->scratch_marks,
                            p->tags,         p->runners,    p->threads,    p->expected,
                            p->has_expected, p->held,       p->flights,    p->queues,
                            p->ready,        p->host_start, p->host_ranks, p->hosts};
    for (size_t i = 0; i < sizeof blocks / sizeof blocks[0]; i++)
        os_free(p->os, blocks[i]);
}

hvd_status_t schedule_prove(const struct os *os, const struct proof *proof, struct error *error)
{
    struct prover p = {.os = os,
                       .proof = proof,
                       .error = error,
                       .size = proof->topology->size,
                       .channels = 1,
                       .count = proof->count,
                       .random = proof->seed,
                       .queue_mask = 127};
    hvd_status_t status;
    if (proof->rounds < 1 || proof->rounds > PROOF_ROUNDS_MAX)
        return error_set(error, HVD_ERR_INVALID, "a proof takes 1 to %d rounds", PROOF_ROUNDS_MAX);
    measure(&p);
    if (!prover_alloc(&p) || !queue_grow(&p)) {
        status = error_set(error, HVD_ERR_NO_MEMORY, "no memory to prove a schedule");
        goto free_prover;
    }
    hosts_list(&p);
    for (int32_t round = 0; round < proof->rounds; round++)
        for (uint64_t e = 0; e < p.count; e++)
            p.expected[(uint64_t)round * p.count + e].sum = expected_sum(proof, round, e);
    status = run_all(&p);
free_prover:
    prover_free(&p);
    return status;
}

hvd_status_t schedule_check_sized(const struct os *os, enum schedule_algorithm algorithm,
                                  uint64_t count, size_t element_bytes, int32_t seeds,
                                  const struct topology *topology, struct error *error)
{
    int32_t n = topology->size;
    hvd_status_t status = HVD_OK;
    struct schedule *all = os_alloc(os, (size_t)n * sizeof *all);
    if (all == NULL)
        return error_set(error, HVD_ERR_NO_MEMORY, "no memory to prove a schedule");
    for (int32_t rank = 0; rank < n; rank++)
        schedule_init(&all[rank], os);
    for (int32_t rank = 0; rank < n && status == HVD_OK; rank++)
        status =
            schedule_allreduce(&all[rank], algorithm, count, element_bytes, rank, topology, error);
    for (int32_t seed = 0; seed < seeds && status == HVD_OK; seed++) {
        struct proof proof = {.goal = PROOF_ALLREDUCE,
                              .topology = topology,
                              .schedules = all,
                              .count = count,
                              .seed = mix((uint64_t)seed * 1024 + (uint64_t)n),
                              .rounds = seed == 0 && n <= 64 ? PROOF_ROUNDS_MAX : 1};
        status = schedule_prove(os, &proof, error);
    }
    for (int32_t rank = 0; rank < n; rank++)
        schedule_destroy(&all[rank]);
    os_free(os, all);
    return status;
}

hvd_status_t schedule_check(enum schedule_algorithm algorithm, uint64_t count,
                            const struct topology *topology, struct error *error)
{
    /* Small elements take the short paths of the algorithms, huge ones the long ones: several
     * channels, chunks and lanes. */
    static const size_t element_bytes[] = {4, 1u << 20};
    for (size_t i = 0; i < sizeof element_bytes / sizeof element_bytes[0]; i++) {
        hvd_status_t status =
            schedule_check_sized(os_host(), algorithm, count, element_bytes[i], 3, topology, error);
        if (status != HVD_OK)
            return status;
    }
    return HVD_OK;
}
