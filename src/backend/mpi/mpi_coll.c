/* SPDX-License-Identifier: Apache-2.0 */
/* mpi_coll.c - one collective of one group, split into windows.
 *
 *       window 0:  pack - MPI_I... - unpack
 *       window 1:         pack - MPI_I... - unpack      (in the other slot)
 *       window 2:                pack - ...
 *
 * A window is at most WINDOW_BYTES of all blocks together, so counts fit MPI's int whatever the
 * tensors' size, memory is bounded, and packing overlaps with the transfer of the window before.
 * Every rank posts the same windows in the same order: their number depends on counts that all
 * know, except for an alltoall, whose ranks first agree on the largest block of any.
 *
 * An average of float16 is sent as float32: MPI's partial sums could overflow although the average
 * does not.
 *
 * Thread: token holder.  Owner: struct backend_group.  Blocks: never. Start reading at
 * mpi_coll_start(). */
#include "backend/mpi/mpi_backend.h"
#include "reduce/reduce.h"

#define WINDOW_BYTES (4u << 20)
#define PATIENCE_NS                                                                                \
    1000000LL /* MPI does not signal progress: for this long it is polled continuously */

/* ---- create and destroy ---- */

hvd_status_t mpi_coll_create(const struct os *os, struct mpi_ops *ops, mpi_handle_t comm,
                             int32_t size, int32_t self, struct mpi_coll **ret, struct error *error)
{
    size_t n = (size_t)size;
    struct mpi_coll *c = os_alloc(os, sizeof *c);
    if (c == NULL)
        return error_set(error, HVD_ERR_NO_MEMORY, "Out of memory.");
    c->os = os;
    c->ops = ops;
    c->lib = ops->lib;
    c->comm = comm;
    c->size = size;
    c->self = self;
    c->blocks = os_alloc(os, 2 * n * sizeof *c->blocks);
    int *counts = os_alloc(os, 4 * MPI_SLOTS * n * sizeof *counts);
    c->slots[0].counts = counts;
    if (c->blocks == NULL || counts == NULL) {
        mpi_coll_destroy(c);
        return error_set(error, HVD_ERR_NO_MEMORY, "Out of memory for a group of %d.", size);
    }
    c->in_blocks = c->blocks + n;
    for (int i = 0; i < MPI_SLOTS; i++) {
        int *own = counts + 4 * n * (size_t)i;
        c->slots[i] = (struct mpi_slot){.request = c->lib->request_null,
                                        .counts = own,
                                        .at = own + n,
                                        .in_counts = own + 2 * n,
                                        .in_at = own + 3 * n};
    }
    *ret = c;
    return HVD_OK;
}

void mpi_coll_destroy(struct mpi_coll *c)
{
    if (c == NULL || c->is_stuck)
        return;
    os_free(c->os, c->memory);
    os_free(c->os, c->slots[0].counts);
    os_free(c->os, c->blocks);
    os_free(c->os, c);
}

void mpi_coll_give_up(struct mpi_coll *c)
{
    for (int i = 0; i < MPI_SLOTS; i++)
        c->is_stuck = c->is_stuck || c->slots[i].is_busy;
    c->is_stuck = c->is_stuck || c->is_agreeing;
    c->coll = NULL;
}

/* ---- laying out ---- */

/* Four parts of equal size: each slot's `in` and `out`. Kept, and grown only for a collective that
 * is larger than any before it. */
static hvd_status_t reserve(struct mpi_coll *c, size_t bytes, struct error *error)
{
    bytes = (bytes + 63) & ~(size_t)63;
    if (c->memory_bytes < bytes) {
        os_free(c->os, c->memory);
        c->memory_bytes = 0;
        c->memory = os_alloc(c->os, 2 * MPI_SLOTS * bytes);
        if (c->memory == NULL)
            return error_set(error, HVD_ERR_NO_MEMORY, "Out of memory for a collective.");
        c->memory_bytes = bytes;
    }
    for (int i = 0; i < MPI_SLOTS; i++) {
        c->slots[i].in = c->memory + 2 * (size_t)i * c->memory_bytes;
        c->slots[i].out = c->slots[i].in + c->memory_bytes;
    }
    return HVD_OK;
}

static bool is_blocked(const struct coll *coll)
{
    return coll->kind != HVD_ALLREDUCE && coll->kind != HVD_BROADCAST;
}

static uint64_t largest(const uint64_t *blocks, int32_t count)
{
    uint64_t most = 0;
    for (int32_t i = 0; i < count; i++)
        most = blocks[i] > most ? blocks[i] : most;
    return most;
}

static void blocks_count(struct mpi_coll *c)
{
    const struct coll *coll = c->coll;
    for (int32_t i = 0; i < c->size; i++)
        c->blocks[i] = c->in_blocks[i] = 0;
    if (coll->kind == HVD_ALLTOALL) {
        for (int32_t i = 0; i < c->size; i++) {
            c->in_blocks[i] = coll->counts[i];
            c->blocks[i] = coll->recv_counts[i];
        }
        return;
    }
    for (int32_t p = 0; p < coll->part_count; p++) {
        if (!is_blocked(coll))
            c->blocks[0] += coll->parts[p].count;
        for (int32_t i = 0; is_blocked(coll) && i < c->size; i++)
            c->blocks[i] += coll->counts[(size_t)p * (size_t)c->size + (size_t)i];
    }
}

static hvd_status_t windows_lay_out(struct mpi_coll *c, uint64_t most, struct error *error)
{
    uint64_t block_count = is_blocked(c->coll) ? (uint64_t)c->size : 1;
    uint64_t window = WINDOW_BYTES / c->element_bytes / block_count;
    c->window = window > 0 ? window : 1;
    c->window_count = most / c->window + (most % c->window != 0 ? 1 : 0);
    uint64_t used = most < c->window ? most : c->window;
    return reserve(c, (size_t)(used * block_count) * c->element_bytes, error);
}

/* Elements of block `i` that are in window `w`. */
static uint64_t share(const uint64_t *blocks, int32_t i, uint64_t w, uint64_t window)
{
    uint64_t from = w * window;
    if (blocks[i] <= from)
        return 0;
    return blocks[i] - from < window ? blocks[i] - from : window;
}

/* ---- one window ---- */

/* `unit`: what MPI counts, elements (1) or bytes. */
static void counts_fill(const struct mpi_coll *c, const uint64_t *blocks, uint64_t w, size_t unit,
                        int *ret_counts, int *ret_at)
{
    uint64_t at = 0;
    for (int32_t i = 0; i < c->size; i++) {
        uint64_t n = share(blocks, i, w, c->window) * unit;
        ret_counts[i] = (int)n;
        ret_at[i] = (int)at;
        at += n;
    }
}

static hvd_status_t post_allreduce(struct mpi_coll *c, struct mpi_slot *s, uint64_t w,
                                   struct error *error)
{
    uint64_t n = share(c->blocks, 0, w, c->window);
    mpi_move_in(c, 0, w * c->window, n, s->out);
    int code = c->lib->abi->iallreduce(c->lib, c->lib->in_place, s->out, (int)n, c->type, c->op,
                                       c->comm, &s->request);
    return mpi_lib_error(c->lib, "MPI_Iallreduce", code, error);
}

static hvd_status_t post_broadcast(struct mpi_coll *c, struct mpi_slot *s, uint64_t w,
                                   struct error *error)
{
    uint64_t n = share(c->blocks, 0, w, c->window);
    if (c->self == c->coll->root)
        mpi_move_in(c, 0, w * c->window, n, s->out);
    int code =
        c->lib->abi->ibcast(c->lib, s->out, (int)(n * c->element_bytes),
                            c->lib->types[MPI_TYPE_BYTE], c->coll->root, c->comm, &s->request);
    return mpi_lib_error(c->lib, "MPI_Ibcast", code, error);
}

static hvd_status_t post_allgather(struct mpi_coll *c, struct mpi_slot *s, uint64_t w,
                                   struct error *error)
{
    mpi_handle_t byte = c->lib->types[MPI_TYPE_BYTE];
    counts_fill(c, c->blocks, w, c->element_bytes, s->counts, s->at);
    mpi_move_in(c, c->self, w * c->window, share(c->blocks, c->self, w, c->window),
                s->out + s->at[c->self]);
    int code = c->lib->abi->iallgatherv(c->lib, c->lib->in_place, 0, byte, s->out, s->counts, s->at,
                                        byte, c->comm, &s->request);
    return mpi_lib_error(c->lib, "MPI_Iallgatherv", code, error);
}

static hvd_status_t post_reducescatter(struct mpi_coll *c, struct mpi_slot *s, uint64_t w,
                                       struct error *error)
{
    counts_fill(c, c->blocks, w, 1, s->counts, s->at);
    for (int32_t i = 0; i < c->size; i++)
        mpi_move_in(c, i, w * c->window, (uint64_t)s->counts[i],
                    s->in + (size_t)s->at[i] * c->element_bytes);
    int code = c->lib->abi->ireduce_scatter(c->lib, s->in, s->out, s->counts, c->type, c->op,
                                            c->comm, &s->request);
    return mpi_lib_error(c->lib, "MPI_Ireduce_scatter", code, error);
}

static hvd_status_t post_alltoall(struct mpi_coll *c, struct mpi_slot *s, uint64_t w,
                                  struct error *error)
{
    mpi_handle_t byte = c->lib->types[MPI_TYPE_BYTE];
    counts_fill(c, c->in_blocks, w, c->element_bytes, s->in_counts, s->in_at);
    counts_fill(c, c->blocks, w, c->element_bytes, s->counts, s->at);
    for (int32_t i = 0; i < c->size; i++)
        mpi_move_in(c, i, w * c->window, share(c->in_blocks, i, w, c->window), s->in + s->in_at[i]);
    int code = c->lib->abi->ialltoallv(c->lib, s->in, s->in_counts, s->in_at, byte, s->out,
                                       s->counts, s->at, byte, c->comm, &s->request);
    return mpi_lib_error(c->lib, "MPI_Ialltoallv", code, error);
}

static hvd_status_t post(struct mpi_coll *c, struct mpi_slot *s, uint64_t w, struct error *error)
{
    switch (c->coll->kind) {
    case HVD_ALLREDUCE: return post_allreduce(c, s, w, error);
    case HVD_BROADCAST: return post_broadcast(c, s, w, error);
    case HVD_ALLGATHER: return post_allgather(c, s, w, error);
    case HVD_REDUCESCATTER: return post_reducescatter(c, s, w, error);
    case HVD_ALLTOALL: return post_alltoall(c, s, w, error);
    case HVD_BARRIER:
    case HVD_JOIN:
    case HVD_KIND_COUNT: break;
    }
    return error_set(error, HVD_ERR_INTERNAL, "kind %d is not a collective", (int)c->coll->kind);
}

static void unpack(const struct mpi_coll *c, const struct mpi_slot *s, uint64_t w)
{
    uint64_t from = w * c->window;
    switch (c->coll->kind) {
    case HVD_ALLREDUCE:
    case HVD_BROADCAST: mpi_move_out(c, 0, from, share(c->blocks, 0, w, c->window), s->out); return;
    case HVD_ALLGATHER:
    case HVD_ALLTOALL:
        for (int32_t i = 0; i < c->size; i++)
            mpi_move_out(c, i, from, share(c->blocks, i, w, c->window), s->out + s->at[i]);
        return;
    case HVD_REDUCESCATTER:
        mpi_move_out(c, c->self, from, share(c->blocks, c->self, w, c->window), s->out);
        return;
    case HVD_BARRIER:
    case HVD_JOIN:
    case HVD_KIND_COUNT: return;
    }
}

/* ---- running ---- */

static hvd_status_t check(const struct mpi_coll *c, struct error *error)
{
    const struct coll *coll = c->coll;
    if (coll->part_count < 1 || coll->part_count > COLL_PARTS_MAX)
        return error_set(error, HVD_ERR_INVALID, "a collective of %d parts", coll->part_count);
    if (coll->kind == HVD_BROADCAST && (coll->root < 0 || coll->root >= c->size))
        return error_set(error, HVD_ERR_INVALID, "broadcast: root %d of %d", coll->root, c->size);
    if (coll->kind != HVD_ALLREDUCE && coll->kind != HVD_REDUCESCATTER)
        return HVD_OK;
    hvd_status_t status = reduce_check(coll->dtype, coll->reduce, coll->prescale, coll->postscale);
    if (status != HVD_OK)
        return error_set(error, status, "Reduction %d with these factors does not exist for %s.",
                         (int)coll->reduce, hvd_dtype_name(coll->dtype));
    return HVD_OK;
}

static hvd_status_t agree_start(struct mpi_coll *c, struct error *error)
{
    uint64_t in = largest(c->in_blocks, c->size), out = largest(c->blocks, c->size);
    c->most = (int64_t)(in > out ? in : out);
    int code =
        c->lib->abi->iallreduce(c->lib, &c->most, &c->most_of_all, 1, c->lib->types[MPI_TYPE_INT64],
                                c->lib->ops[MPI_OPERATION_MAX], c->comm, &c->agreement);
    c->is_agreeing = code == 0;
    return mpi_lib_error(c->lib, "MPI_Iallreduce", code, error);
}

static hvd_status_t begin(struct mpi_coll *c, struct error *error)
{
    const struct coll *coll = c->coll;
    hvd_status_t status = check(c, error);
    bool is_reducing = coll->kind == HVD_ALLREDUCE || coll->kind == HVD_REDUCESCATTER;
    c->is_wide = is_reducing && reduce_needs_width(coll->dtype, coll->reduce, coll->postscale);
    hvd_dtype_t dtype = c->is_wide ? HVD_FLOAT32 : coll->dtype;
    if (status == HVD_OK && is_reducing)
        status = mpi_ops_find(c->ops, dtype, coll->reduce, &c->op, error);
    if (status != HVD_OK)
        return status;
    c->tensor_bytes = hvd_dtype_bytes(coll->dtype);
    c->element_bytes = hvd_dtype_bytes(dtype);
    c->type = mpi_ops_type(c->lib, dtype);
    c->posted = c->done = c->window_count = 0;
    blocks_count(c);
    if (coll->kind == HVD_ALLTOALL)
        return agree_start(c, error);
    return windows_lay_out(c, largest(c->blocks, c->size), error);
}

hvd_status_t mpi_coll_start(struct mpi_coll *c, const struct coll *coll, struct error *error)
{
    if (c->coll != NULL)
        return error_set(error, HVD_ERR_INTERNAL, "this group runs a collective already");
    if (c->is_stuck)
        return error_set(error, HVD_ERR_LINK,
                         "An earlier collective of this group was given up, which MPI can't do; "
                         "its communicator is of no more use.");
    c->coll = coll;
    c->moved_ns = os_now_ns(c->os);
    hvd_status_t status = begin(c, error);
    if (status != HVD_OK)
        c->coll = NULL;
    return status;
}

/* HVD_IN_PROGRESS: not yet. */
static hvd_status_t test(struct mpi_coll *c, mpi_handle_t *request, struct error *error)
{
    bool is_done = false;
    int code = c->lib->abi->test(c->lib, request, 0, &is_done, NULL);
    if (code != 0)
        return mpi_lib_error(c->lib, "MPI_Test", code, error);
    return is_done ? HVD_OK : HVD_IN_PROGRESS;
}

static hvd_status_t agree_progress(struct mpi_coll *c, struct error *error)
{
    hvd_status_t status = test(c, &c->agreement, error);
    if (status != HVD_OK)
        return status;
    c->is_agreeing = false;
    return windows_lay_out(c, (uint64_t)c->most_of_all, error);
}

static hvd_status_t windows_progress(struct mpi_coll *c, bool *ret_moved, struct error *error)
{
    while (c->done < c->window_count) {
        struct mpi_slot *next = &c->slots[c->posted % MPI_SLOTS];
        if (c->posted < c->window_count && !next->is_busy) {
            hvd_status_t status = post(c, next, c->posted, error);
            if (status != HVD_OK)
                return status;
            next->is_busy = true;
            c->posted++;
            *ret_moved = true;
        }
        struct mpi_slot *oldest = &c->slots[c->done % MPI_SLOTS];
        hvd_status_t status = test(c, &oldest->request, error);
        if (status != HVD_OK)
            return status;
        oldest->is_busy = false;
        unpack(c, oldest, c->done++);
        *ret_moved = true;
    }
    return HVD_OK;
}

/* There was no progress. A thread that goes to sleep polls again much later than most collectives
 * take, so for a while this counts as progress; other processes may have the core meanwhile. */
static bool is_patient(struct mpi_coll *c, bool has_moved)
{
    int64_t now_ns = os_now_ns(c->os);
    if (has_moved)
        c->moved_ns = now_ns;
    else
        c->os->yield(c->os->ctx);
    return now_ns - c->moved_ns < PATIENCE_NS;
}

hvd_status_t mpi_coll_progress(struct mpi_coll *c, bool *ret_moved, struct error *error)
{
    *ret_moved = false;
    if (c->coll == NULL)
        return error_set(error, HVD_ERR_INTERNAL, "no collective is running");
    hvd_status_t status = c->is_agreeing ? agree_progress(c, error) : HVD_OK;
    if (status == HVD_OK)
        status = windows_progress(c, ret_moved, error);
    if (status == HVD_OK)
        c->coll = NULL;
    else if (status == HVD_IN_PROGRESS)
        *ret_moved = is_patient(c, *ret_moved);
    else
        mpi_coll_give_up(c);
    return status;
}
