/* SPDX-License-Identifier: Apache-2.0 */
/* mpi_world.h - a world out of an MPI communicator: who is in it, where, and the first words.
 *
 * Under mpirun or srun the ranks are connected already: rank and size are those of a communicator
 * (MPI_COMM_WORLD, the caller's, or a list of ranks of MPI_COMM_WORLD), places come from splitting
 * it, the job key is made by rank 0 and broadcast, introductions are gathered. No rendezvous.
 *
 * MPI lives as long as the process: it is initialised once, by us if nobody has, and finalized at
 * exit, so that hvd_init() may follow hvd_shutdown(). struct mpi_process is what outlives a world.
 *
 * Thread: the one inside hvd_init() or exit().  Blocks: until the other ranks come, and says so
 * now and then.  Start reading at mpi_world_wish(), then mpi_world_join(). */
#ifndef HVD_API_MPI_WORLD_H
#define HVD_API_MPI_WORLD_H

#include "api/bootstrap.h"
#include "base/log.h"
#include "transport/mpi/mpi_lib.h"

struct mpi_process {
    struct mpi_lib *lib; /* NULL: MPI is not in use */
    int32_t pid;         /* of the process that initialised it, not of a forked child */
    bool has_lost;       /* a peer died: MPI_Finalize would wait for it */
};

enum mpi_wish {
    MPI_WISH_NO,
    MPI_WISH_IF_THERE, /* an MPI launcher started us: if there is a library */
    MPI_WISH_MUST      /* HOROVOD_CONTROLLER=mpi, a library is named, or a communicator is given */
};

enum mpi_wish mpi_world_wish(const struct os *os, const struct config *config,
                             const hvd_config_t *e);

/* Finds, starts and joins. Fills `ret_place`; `ret_comm` is a communicator of ours with the world's
 * ranks. HVD_AGAIN: MPI_WISH_IF_THERE and there is no library (`error` says where it was looked
 * for). */
hvd_status_t mpi_world_join(const struct os *os, const struct config *config, const struct log *log,
                            const hvd_config_t *e, enum mpi_wish wish, struct mpi_process *process,
                            struct bootstrap *ret_place, mpi_handle_t *ret_comm,
                            struct error *error);

/* The same 32 bytes on all ranks: rank 0's. */
hvd_status_t mpi_world_share_key(const struct mpi_lib *lib, mpi_handle_t comm, uint8_t key[32],
                                 struct error *error);
/* As store_client_exchange(): all ranks' bytes, offsets[size] is their end. */
hvd_status_t mpi_world_exchange(const struct os *os, const struct mpi_lib *lib, mpi_handle_t comm,
                                const struct bootstrap *place, const uint8_t *mine, size_t n,
                                int64_t deadline_ns, uint8_t **ret_blobs, size_t *ret_offsets,
                                struct error *error);

/* Process sets: those that communicators define (e->mpi_comms behind the first), then those of the
 * rank lists. Communicators may differ between ranks: every distinct list of ranks that any rank
 * gives is a set, in lexicographic order. */
struct mpi_sets {
    const int32_t **lists;
    int32_t *sizes;
    int32_t count;
    int32_t **memory; /* what the lists of communicators lie in */
    int32_t memory_count;
};

hvd_status_t mpi_world_sets(const struct os *os, const struct mpi_lib *lib, mpi_handle_t comm,
                            const struct bootstrap *place, const hvd_config_t *e,
                            struct mpi_sets *ret, struct error *error);
void mpi_sets_destroy(const struct os *os, struct mpi_sets *sets);
/* World ranks of the members of a communicator, ascending; ret_ranks holds place->size. */
hvd_status_t mpi_world_ranks(const struct mpi_lib *lib, mpi_handle_t comm, mpi_handle_t part,
                             int32_t *ret_ranks, int32_t *ret_count, struct error *error);

/* Finalizes MPI if we initialised it in this very process and all peers went properly. At exit. */
void mpi_process_end(const struct os *os, struct mpi_process *process);

#endif
