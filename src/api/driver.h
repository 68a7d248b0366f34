/* SPDX-License-Identifier: Apache-2.0 */
/* driver.h - who turns the engine: a token, one background thread, and callers that lend a hand.
 *
 * Whoever holds the token may run engine_progress(). A thread inside hvd_wait() takes it and does
 * the work itself, which saves two thread switches; if it must wait long it gives the token back
 * and sleeps until its ticket is complete. The background thread works only when nobody waits: it
 * sleeps on the poller, woken by peers' bells, sockets, its own bell, or a deadline.
 *
 * A transport may have nothing to sleep on (poll_ns in its table): then every sleep is short. And
 * one may have to be called by one thread only (is_background_only): then nobody lends a hand.
 *
 * The wait ladder: spin (as long as there are cores for all ranks of the host), then yield, then
 * sleep. Thread: as said.  Start reading at driver_wait() and background(). */
#ifndef HVD_API_DRIVER_H
#define HVD_API_DRIVER_H

#include <pthread.h>
#include <stdatomic.h>

#include "engine/engine.h"

struct driver {
    struct engine *engine;
    const struct os *os;
    const struct config *config;
    struct transport *transports[ENGINE_TRANSPORTS_MAX];
    int32_t transport_count;
    int poll_fd, bell_fd;
    void *thread;
    pthread_mutex_t token;
    int64_t spin_ns;     /* how long to spin before sleeping */
    int32_t yield_count; /* how often to yield in between */
    int32_t core;        /* for the background thread; -1: any */
    _Atomic bool is_stopping;
    _Atomic bool is_idle;      /* the background thread sleeps and expects nothing */
    _Atomic uint32_t turn;     /* grows with every completion and release of the token: futex */
    _Atomic int32_t sleepers;  /* threads asleep on `turn` */
    _Atomic bool is_grace;     /* the background thread sleeps briefly, unarmed: a caller works */
    _Atomic int64_t helped_ns; /* when a caller last gave the token back */
    bool is_armed;             /* token: peers ring when something comes */
    bool is_background_only;   /* set before driver_start(): callers never take the token */
    uint64_t completions_told;
    _Atomic uint64_t sleeps, wakeups; /* of waiters; of the background thread */
};

/* `local_rank` of the `local_size` ranks that share this host's cores. */
hvd_status_t driver_create(struct driver *driver, struct engine *engine,
                           const struct config *config, int poll_fd,
                           struct transport *const *transports, int32_t transport_count,
                           int32_t local_rank, int32_t local_size, struct error *error);
hvd_status_t driver_start(struct driver *driver, struct error *error); /* the background thread */
void driver_destroy(struct driver *driver);                            /* stops and joins it */

/* Called after a submit; wakes the background thread if the caller will not wait. */
void driver_submitted(struct driver *driver, bool is_waited);
/* HVD_OK: the ticket is complete. HVD_ERR_TIMEOUT. timeout_ms < 0: no limit. */
hvd_status_t driver_wait(struct driver *driver, struct ticket *ticket, int64_t timeout_ms);
void driver_help(struct driver *driver); /* one turn if the token is free: hvd_poll() */
/* Asks for shutdown and turns the engine until all have agreed, at most timeout_ms. */
void driver_shutdown(struct driver *driver, int64_t timeout_ms);

#endif
