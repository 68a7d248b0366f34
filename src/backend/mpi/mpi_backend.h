/* SPDX-License-Identifier: Apache-2.0 */
/* mpi_backend.h - collectives by an MPI library's own non-blocking ones, one communicator per
 * group.
 *
 *   mpi_backend.c  the table, groups and their communicators; start reading there
 *   mpi_coll.c     one collective at a time, split into windows
 *   mpi_move.c     copying windows between the tensors and our memory, with scaling
 *   mpi_ops.c      selects MPI's types and operations, or one of our own operations
 *
 * Ops that MPI has no collective for (Adasum), and groups of one, it declines by its score; another
 * backend runs them.
 *
 * MPI can't cancel a collective. So it never works on a tensor, only on our own memory, which a
 * group that had to give up never frees; and plans, which start a collective before all ranks are
 * known to take part, must be off if this backend is used (backend.is_final).
 *
 * Thread: token holder; MPI's level must allow that.  Owner: struct world. */
#ifndef HVD_BACKEND_MPI_BACKEND_H
#define HVD_BACKEND_MPI_BACKEND_H

#include "backend/backends.h"
#include "transport/mpi/mpi_lib.h"

extern const struct backend_row mpi_backend_row;

hvd_status_t mpi_backend_create(const struct os *os, const struct mpi_job *job,
                                struct backend **ret, struct error *error);

/* ---- internal ---- */

/* Operations that MPI lacks, created when first needed. */
struct mpi_ops {
    const struct mpi_lib *lib;
    mpi_handle_t made[HVD_DTYPE_COUNT][HVD_REDUCE_COUNT];
    bool is_made[HVD_DTYPE_COUNT][HVD_REDUCE_COUNT];
};

mpi_handle_t mpi_ops_type(const struct mpi_lib *lib, hvd_dtype_t dtype);
hvd_status_t mpi_ops_find(struct mpi_ops *ops, hvd_dtype_t dtype, hvd_reduce_t reduce,
                          mpi_handle_t *ret, struct error *error);
void mpi_ops_destroy(struct mpi_ops *ops);

#define MPI_SLOTS 2 /* one window is packed while another is in progress */

struct mpi_slot {
    mpi_handle_t request;
    bool is_busy;
    uint8_t *in, *out;      /* may be the same */
    int *counts, *at;       /* for each rank, of `out`; MPI reads them until the end */
    int *in_counts, *in_at; /* alltoall: of `in` */
};

struct mpi_coll {
    const struct os *os;
    struct mpi_ops *ops;
    const struct mpi_lib *lib;
    mpi_handle_t comm;
    int32_t size, self;
    const struct coll *coll; /* NULL: idle */
    size_t element_bytes;    /* in our memory */
    size_t tensor_bytes;     /* in the tensors */
    bool is_wide;            /* float16, sent as float32 */
    mpi_handle_t type, op;
    /* Blocks: the elements that belong to each rank, or one for all (allreduce, broadcast). A
     * window is `window` elements of every block. */
    uint64_t *blocks, *in_blocks;
    uint64_t window, window_count, posted, done;
    int64_t moved_ns;
    struct mpi_slot slots[MPI_SLOTS];
    uint8_t *memory;
    size_t memory_bytes; /* of one of the four parts */
    bool is_agreeing;    /* alltoall: how many windows? */
    int64_t most, most_of_all;
    mpi_handle_t agreement;
    bool is_stuck; /* MPI still works on something that will never complete */
};

hvd_status_t mpi_coll_create(const struct os *os, struct mpi_ops *ops, mpi_handle_t comm,
                             int32_t size, int32_t self, struct mpi_coll **ret,
                             struct error *error);
/* Does not free memory that MPI still uses. */
void mpi_coll_destroy(struct mpi_coll *c);
hvd_status_t mpi_coll_start(struct mpi_coll *c, const struct coll *coll, struct error *error);
hvd_status_t mpi_coll_progress(struct mpi_coll *c, bool *ret_moved, struct error *error);
void mpi_coll_give_up(struct mpi_coll *c);

/* Elements [from, from + count) of the block of rank `block`. */
void mpi_move_in(const struct mpi_coll *c, int32_t block, uint64_t from, uint64_t count,
                 uint8_t *to);
void mpi_move_out(const struct mpi_coll *c, int32_t block, uint64_t from, uint64_t count,
                  uint8_t *work);

#endif
