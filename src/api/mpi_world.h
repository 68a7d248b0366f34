/* SPDX-License-Identifier: Apache-2.0 */
/* mpi_world.h - a world from an MPI communicator: its ranks, their placement, and the first
 * exchange.
 *
 * Under mpirun or srun the ranks are already connected: rank and size are those of a communicator
 * (MPI_COMM_WORLD, the caller's, or a list of ranks of MPI_COMM_WORLD), the placement comes from
 * splitting it, rank 0 generates and broadcasts the job key, introductions are gathered. There is
 * no rendezvous.
 *
 * MPI lives as long as the process: it is initialised once, by us if it is not initialised yet, and
 * finalized at exit, so that hvd_init() may follow hvd_shutdown(). struct mpi_process outlives a
 * world.
 *
 * Thread: the one inside hvd_init() or exit().  Blocks: until the other ranks arrive, and logs that
 * from time to time.  Start reading at mpi_world_wish(), then mpi_world_join(). */
#ifndef HVD_API_MPI_WORLD_H
#define HVD_API_MPI_WORLD_H

#include "api/bootstrap.h"
#include "base/log.h"
#include "transport/mpi/mpi_lib.h"

struct mpi_process {
    struct mpi_lib *lib; /* NULL: MPI is not in use */
    int32_t pid;         /* of the process that initialised it, not of a forked child */
    bool has_lost;       /* a peer died: MPI_Finalize would wait for it */
    bool has_broken;     /* a world failed with all ranks alive: they may not reach the end */
};

enum mpi_wish {
    MPI_WISH_NO,
    MPI_WISH_IF_THERE, /* an MPI launcher started the process: use it if there is a library */
    MPI_WISH_MUST      /* HOROVOD_CONTROLLER=mpi, a library is named, or a communicator is given */
};

enum mpi_wish mpi_world_wish(const struct os *os, const struct config *config,
                             const hvd_config_t *e);

/* Finds a library, initialises it and joins. Fills `ret_place`; `ret_comm` is an internal
 * communicator with the world's ranks. HVD_AGAIN: MPI_WISH_IF_THERE and there is no library
 * (`error` lists where it was searched). */
hvd_status_t mpi_world_join(const struct os *os, const struct config *config, const struct log *log,
                            const hvd_config_t *e, enum mpi_wish wish, struct mpi_process *process,
                            struct bootstrap *ret_place, mpi_handle_t *ret_comm,
                            struct error *error);

/* The same 32 bytes on all ranks: rank 0's. */
hvd_status_t mpi_world_share_key(const struct mpi_lib *lib, mpi_handle_t comm, uint8_t key[32],
                                 struct error *error);
/* Like store_client_exchange(): all ranks' bytes, offsets[size] is their end. */
hvd_status_t mpi_world_exchange(const struct os *os, const struct mpi_lib *lib, mpi_handle_t comm,
                                const struct bootstrap *place, const uint8_t *mine, size_t n,
                                int64_t deadline_ns, uint8_t **ret_blobs, size_t *ret_offsets,
                                struct error *error);

/* Process sets: those that communicators define (e->mpi_comms after the first), then those of the
 * rank lists. Communicators may differ between ranks: every distinct list of ranks that any rank
 * passes is a set, in lexicographic order. */
struct mpi_sets {
    const int32_t **lists;
    int32_t *sizes;
    int32_t count;
    int32_t **memory; /* storage of the communicators' lists */
    int32_t memory_count;
};

hvd_status_t mpi_world_sets(const struct os *os, const struct mpi_lib *lib, mpi_handle_t comm,
                            const struct bootstrap *place, const hvd_config_t *e,
                            struct mpi_sets *ret, struct error *error);
void mpi_sets_destroy(const struct os *os, struct mpi_sets *sets);
/* World ranks of the members of a communicator, ascending; ret_ranks has room for place->size. */
hvd_status_t mpi_world_ranks(const struct mpi_lib *lib, mpi_handle_t comm, mpi_handle_t part,
                             int32_t *ret_ranks, int32_t *ret_count, struct error *error);

/* Finalizes MPI if we initialised it in this process and all peers left properly. At exit. */
void mpi_process_end(const struct os *os, struct mpi_process *process);

#endif
