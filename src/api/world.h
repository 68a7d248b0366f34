/* SPDX-License-Identifier: Apache-2.0 */
/* world.h - the library from hvd_init() to hvd_shutdown(): configuration, transports, backend,
 * engine, driver, created in this order and destroyed in reverse.
 *
 * Thread: created and destroyed by one thread at a time (instance.c).  Start reading at
 * world_create(). */
#ifndef HVD_API_WORLD_H
#define HVD_API_WORLD_H

#include "api/bootstrap.h"
#include "api/driver.h"
#include "api/handover.h"
#include "api/heap.h"
#include "api/links.h"
#include "api/mpi_world.h"
#include "api/tuned.h"
#include "backend/backends.h"
#include "member/meeting.h"
#include "memory/memory.h"
#include "transport/endpoint.h"

struct store_server;
struct watch;

struct world {
    const struct os *os;
    const struct config config; /* written by config.h only, and sealed before the engine runs */
    struct log log;
    struct bootstrap place;
    uint8_t job_key[32];
    uint8_t key[32];                  /* of this generation, for links */
    char handover[HANDOVER_PATH_MAX]; /* file with which rank 0 passes on the key; "": none */
    bool was_found;                   /* the handover file */
    uint64_t epoch;                   /* the generation */
    uint64_t notice;                  /* changes of membership that it accounts for */
    char worker[STORE_WORKER_MAX + 1];
    /* while the ranks meet: if its connection closes, this process has died */
    struct meeting meeting;
    struct meeting_ops meeting_ops;
    const hvd_config_t *explicit_config;
    struct endpoint self;
    bool is_open;  /* the transports */
    uint8_t *blob; /* this rank's introduction to the others */
    size_t blob_bytes;
    bool is_homogeneous;
    int poll_fd;
    int cause_fd;               /* reports to horovodrun why this rank broke; -1: none */
    struct endpoint *endpoints; /* by world rank */
    struct links links;
    struct heap heap;
    struct mpi_process *process; /* MPI state that outlives a world */
    struct mpi_lib *mpi_lib;     /* NULL: MPI is not in use. Else of `process` */
    mpi_handle_t mpi_comm;       /* internal, its ranks are the world's */
    struct mpi_job mpi_job;      /* the same two, for transport and backend */
    struct mpi_sets mpi_sets;
    struct store_server *server;
    void *server_thread;
    _Atomic bool is_server_stopping;
    struct backend *backend;
    struct memory_kind *memories[MEMORY_KINDS_MAX]; /* besides the host's */
    int32_t memory_count;
    struct tuned tuned;
    struct engine *engine;
    struct driver driver;
    struct watch *watch;    /* NULL: nothing is to be watched for */
    _Atomic unsigned dumps; /* snapshots that were taken for files */
};

/* What a process keeps from one generation to the next. */
struct tenure {
    bool is_again;  /* not the first world of this process */
    uint64_t epoch; /* of its last generation; 0: none */
    bool has_key;   /* a job key can be read only once */
    uint8_t key[32];
};

/* `process`: MPI state that outlives a world. */
hvd_status_t world_create(const struct os *os, const hvd_config_t *explicit_config,
                          struct tenure *tenure, struct mpi_process *process, struct world **ret,
                          struct error *error);
/* snapshot.c. hvd_snapshot() of this world, with the reason for it. is_token: the caller has it. */
size_t snapshot_text(struct world *world, const char *reason, bool is_token, char *ret_text,
                     size_t bytes);
/* Why this process is about to end: for the other ranks and horovodrun. Any thread. */
void world_last_words(struct world *world, const char *text);
/* What bounded the steps of this job, for horovodrun. Any thread. */
void world_summary(struct world *world, const char *text);
void world_destroy(struct world *world); /* collective if the others are still running */

#endif
