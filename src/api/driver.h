/* SPDX-License-Identifier: Apache-2.0 */
/* driver.h - which thread drives the engine: a token, one background thread, and callers that help.
 *
 * Only the thread that holds the token may run engine_progress(). A thread inside hvd_wait() takes
 * it and does the work itself, which saves two thread switches; if it must wait long it releases
 * the token and sleeps until its ticket is complete. The background thread works only when no
 * caller waits: it sleeps on the poller, woken by peers' bells, sockets, its own bell, or a
 * deadline.
 *
 * A transport may have nothing to sleep on (poll_ns in its table): then every sleep is short. And
 * one may have to be called by one thread only (is_background_only): then callers do not help.
 *
 * The wait ladder: spin (as long as there are cores for all ranks on the machine), then yield, then
 * sleep. Thread: as noted.  Start reading at driver_wait() and background(). */
#ifndef HVD_API_DRIVER_H
#define HVD_API_DRIVER_H

#include <pthread.h>
#include <stdatomic.h>

#include "api/patience.h"
#include "engine/engine.h"

struct driver {
    struct engine *engine;
    const struct os *os;
    struct transport *const *transports; /* the engine's */
    int32_t transport_count;
    int poll_fd, bell_fd;
    void *thread;
    pthread_mutex_t token;
    struct patience_limits limits; /* before sleeping */
    int64_t spin_default_ns;       /* of this machine */
    uint64_t tuned;                /* version of the tunables that `limits` follows */
    int64_t idle_ns;               /* the longest sleep: peers expect signs of life */
    int32_t core;                  /* for the background thread; -1: any */
    _Atomic bool is_stopping;
    _Atomic bool is_idle;      /* the background thread sleeps and expects nothing */
    _Atomic uint32_t turn;     /* increases with every completion and token release: futex */
    _Atomic int32_t sleepers;  /* threads asleep on `turn` */
    _Atomic bool is_grace;     /* the background thread sleeps briefly, unarmed: a caller works */
    _Atomic int64_t helped_ns; /* when a caller last released the token */
    bool is_armed;             /* token: peers ring when they send something */
    bool is_background_only;   /* set before driver_start(): callers never take the token */
    struct backend *backend;   /* likewise: polled if it does not ring */
    uint64_t completions_told;
    _Atomic uint64_t sleeps, wakeups; /* of waiters; of the background thread */
    _Atomic bool is_look_wanted;      /* a reader (driver_look_begin) waits for the token */
    _Atomic int64_t turned_ns;        /* when the last turn began */
};

/* `local_rank` of the `local_size` ranks that share this machine's cores. */
hvd_status_t driver_create(struct driver *driver, struct engine *engine,
                           const struct config *config, int poll_fd, int32_t local_rank,
                           int32_t local_size, struct error *error);
hvd_status_t driver_start(struct driver *driver, struct error *error); /* the background thread */
void driver_destroy(struct driver *driver);                            /* stops and joins it */

/* Called after a submit; wakes the background thread if the caller will not wait. */
void driver_submitted(struct driver *driver, bool is_waited);
/* HVD_OK: the ticket is complete. HVD_ERR_TIMEOUT. timeout_ms < 0: no limit; 0: never sleeps. */
hvd_status_t driver_wait(struct driver *driver, struct ticket *ticket, int64_t timeout_ms);
void driver_help(struct driver *driver); /* one turn if the token is free: hvd_poll() */
/* Takes the token only to read, without driving the engine; false: its holder does not release it
 * within timeout_ns. A holder that keeps driving releases it after its turn. */
bool driver_look_begin(struct driver *driver, int64_t timeout_ns);
void driver_look_end(struct driver *driver);       /* after true */
int64_t driver_turn_age_ns(struct driver *driver); /* since the last turn began */
/* Requests shutdown and drives the engine until all have agreed, at most timeout_ms. */
void driver_shutdown(struct driver *driver, int64_t timeout_ms);

#endif
