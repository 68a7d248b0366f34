/* SPDX-License-Identifier: Apache-2.0 */
/* world.h - one life of the library, from hvd_init() to hvd_shutdown(): configuration, transports,
 * backend, engine, driver, in the order in which they are made and the reverse of their end.
 *
 * Thread: made and ended by one thread at a time (instance.c).  Start reading at world_create(). */
#ifndef HVD_API_WORLD_H
#define HVD_API_WORLD_H

#include "api/bootstrap.h"
#include "api/driver.h"
#include "api/handover.h"
#include "api/mpi_world.h"
#include "backend/native/native.h"

struct mpi;
struct shm;
struct store_client;
struct store_server;
struct tcp;

struct world {
    const struct os *os;
    struct config config;
    struct log log;
    struct bootstrap place;
    uint8_t key[32];
    char handover[HANDOVER_PATH_MAX]; /* file by which rank 0 hands over the key; "": none */
    uint64_t epoch;
    bool is_homogeneous;
    int poll_fd;
    struct endpoint *endpoints; /* by world rank */
    int32_t *host;              /* host number by world rank */
    char (*peer_names)[96];
    struct transport **routes;
    struct shm *shm;             /* NULL: switched off or a world of one */
    struct tcp *tcp;             /* NULL: all ranks on this host, or MPI's job */
    struct mpi_process *process; /* what MPI keeps between lives */
    struct mpi_lib *mpi_lib;     /* NULL: MPI is not in use. Else of `process` */
    mpi_handle_t mpi_comm;       /* ours, its ranks are the world's */
    struct mpi *mpi;             /* NULL: nobody is reached by it */
    struct mpi_sets mpi_sets;
    struct store_client *client; /* open while the ranks meet: its end tells that we died */
    struct store_server *server;
    void *server_thread;
    _Atomic bool is_server_stopping;
    struct backend *backend;
    struct engine *engine;
    struct driver driver;
};

/* `key` may be NULL (look for it); `life` counts the inits of this process; `process` is what MPI
 * keeps between them. */
hvd_status_t world_create(const struct os *os, const hvd_config_t *explicit_config,
                          const uint8_t *key, uint64_t life, struct mpi_process *process,
                          struct world **ret, struct error *error);
void world_destroy(struct world *world); /* collective if the others are still there */

#endif
