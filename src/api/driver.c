/* SPDX-License-Identifier: Apache-2.0 */
/* driver.c - see driver.h. */
#include "api/driver.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "api/affinity.h"
#include "backend/backend.h"
#include "base/config.h"
#include "base/log.h"

#define SPIN_NS        60000 /* about twice the cost of waking a sleeping core */
#define SPIN_SHORT_NS  1000  /* more ranks than cores: yield the core */
#define YIELD_COUNT    50
#define IDLE_NS        1000000000LL
#define TURN_NS        1000000LL
#define BUSY_MIN_NS    200000LL
#define EVENTS_AT_ONCE 16
#define GRACE_NS       2000000LL
#define LOOK_TRY_NS    10000LL  /* between attempts of a reader */
#define LOOK_WAIT_NS   50000LL  /* how long the token is released for it */
#define POLL_WAITED_NS 100000LL /* between polls of a transport that does not ring, ops pending */

/* ---- sleeping and waking ---- */

/* Token. After this a peer that has something for us rings; false: there already is something. */
static bool arm(struct driver *d)
{
    bool is_quiet = true;
    assert(!d->is_armed); /* the thread that took the token has disarmed */
    for (int32_t i = 0; i < d->transport_count; i++)
        is_quiet &= d->transports[i]->ops->sleep_begin(d->transports[i]);
    d->is_armed = true;
    return is_quiet && !engine_has_queued(d->engine);
}

static void disarm(struct driver *d)
{
    if (!d->is_armed)
        return;
    for (int32_t i = 0; i < d->transport_count; i++)
        d->transports[i]->ops->sleep_end(d->transports[i]);
    d->is_armed = false;
}

static void ring(struct driver *d)
{
    d->os->bell_ring(d->os->ctx, d->bell_fd);
}

static void turn_wake(struct driver *d)
{
    atomic_fetch_add(&d->turn, 1);
    if (atomic_load(&d->sleepers) > 0)
        d->os->futex_wake(d->os->ctx, (const uint32_t *)&d->turn, INT32_MAX);
}

static void turn_sleep(struct driver *d, uint32_t seen, int64_t timeout_ns)
{
    atomic_fetch_add(&d->sleepers, 1);
    d->os->futex_wait(d->os->ctx, (const uint32_t *)&d->turn, seen, timeout_ns);
    int32_t sleepers = atomic_fetch_sub(&d->sleepers, 1);
    assert(sleepers > 0);
    atomic_fetch_add_explicit(&d->sleeps, 1, memory_order_relaxed);
}

/* ---- one turn ---- */

/* Token held, and again on return; a reader may take it meanwhile. Once per request: a reader that
 * does not come costs no more than that. */
static void let_look(struct driver *d)
{
    atomic_store(&d->is_look_wanted, false);
    pthread_mutex_unlock(&d->token);
    d->os->sleep_ns(d->os->ctx, LOOK_WAIT_NS);
    pthread_mutex_lock(&d->token);
    disarm(d);
}

/* Token held. Callbacks run without it; it is held again on return. */
static bool turn(struct driver *d)
{
    int64_t now_ns = os_now_ns(d->os);
    atomic_store_explicit(&d->turned_ns, now_ns, memory_order_relaxed);
    bool has_moved = engine_progress(d->engine, now_ns);
    if (engine_completions(d->engine) != d->completions_told) {
        d->completions_told = engine_completions(d->engine);
        turn_wake(d);
    }
    struct ticket *done = complete_take(d->engine);
    if (done != NULL) {
        pthread_mutex_unlock(&d->token);
        complete_callbacks(d->engine, done);
        pthread_mutex_lock(&d->token);
        disarm(d);
    }
    if (atomic_load_explicit(&d->is_look_wanted, memory_order_relaxed))
        let_look(d);
    return has_moved;
}

/* Token held; released here. The background thread takes over the remaining work. */
static void give_back(struct driver *d)
{
    atomic_store_explicit(&d->helped_ns, engine_now_ns(d->engine), memory_order_relaxed);
    if (atomic_load(&d->is_grace) && !engine_has_in_flight(d->engine)) {
        /* The background thread polls again soon: peers need not ring for every op. */
        pthread_mutex_unlock(&d->token);
        if (atomic_load(&d->sleepers) > 0)
            turn_wake(d);
        return;
    }
    bool is_quiet = arm(d);
    bool has_waiters = atomic_load(&d->sleepers) > 0;
    pthread_mutex_unlock(&d->token);
    if (!is_quiet || engine_has_in_flight(d->engine))
        if (!is_quiet || atomic_exchange(&d->is_idle, false))
            ring(d);
    if (has_waiters)
        turn_wake(d);
}

/* ---- looking ---- */

bool driver_look_begin(struct driver *d, int64_t timeout_ns)
{
    int64_t deadline_ns = os_now_ns(d->os) + timeout_ns;
    while (pthread_mutex_trylock(&d->token) != 0) {
        if (os_now_ns(d->os) >= deadline_ns)
            return false;
        atomic_store(&d->is_look_wanted, true);
        d->os->sleep_ns(d->os->ctx, LOOK_TRY_NS);
    }
    atomic_store(&d->is_look_wanted, false);
    return true;
}

/* A thread that found the token taken meanwhile sleeps until `turn` changes. */
void driver_look_end(struct driver *d)
{
    pthread_mutex_unlock(&d->token);
    turn_wake(d);
}

int64_t driver_turn_age_ns(struct driver *d)
{
    return os_now_ns(d->os) - atomic_load_explicit(&d->turned_ns, memory_order_relaxed);
}

/* ---- waiting ---- */

static bool is_done(const struct ticket *ticket)
{
    return ticket_status(ticket) != HVD_IN_PROGRESS;
}

static void limits_set(struct driver *d)
{
    const struct tunables *t = engine_tunables(d->engine);
    d->limits.spin_ns = t->spin_ns >= 0 ? t->spin_ns : d->spin_default_ns;
    d->tuned = t->version;
}

/* Token held: the ranks may have agreed on another spin time. */
static void limits_follow(struct driver *d)
{
    if (engine_tunables(d->engine)->version != d->tuned)
        limits_set(d);
}

/* Token held: works until the ticket is complete, or patience or the time limit runs out. */
static void drive(struct driver *d, const struct ticket *ticket, int64_t deadline_ns)
{
    struct patience patience = {0};
    disarm(d);
    limits_follow(d);
    while (!is_done(ticket)) {
        if (turn(d)) {
            patience = (struct patience){0};
            continue;
        }
        if (!patience_wait(&patience, &d->limits, d->os) || os_now_ns(d->os) > deadline_ns)
            return;
    }
}

hvd_status_t driver_wait(struct driver *d, struct ticket *ticket, int64_t timeout_ms)
{
    int64_t deadline_ns = timeout_ms <= 0 ? INT64_MAX : os_now_ns(d->os) + timeout_ms * 1000000;
    hvd_status_t status = HVD_OK;
    if (is_done(ticket))
        return HVD_OK;
    engine_wait_begin(d->engine);
    while (!is_done(ticket)) {
        if (os_now_ns(d->os) > deadline_ns) {
            status = HVD_ERR_TIMEOUT;
            break;
        }
        uint32_t seen = atomic_load(&d->turn);
        if (!d->is_background_only && pthread_mutex_trylock(&d->token) == 0) {
            drive(d, ticket, deadline_ns);
            seen = atomic_load(&d->turn);
            give_back(d);
        }
        if (is_done(ticket))
            break;
        if (timeout_ms == 0) {
            status = HVD_ERR_TIMEOUT;
            break;
        }
        turn_sleep(d, seen, deadline_ns == INT64_MAX ? IDLE_NS : TURN_NS);
    }
    bool is_last = engine_wait_end(d->engine);
    /* The background thread may have gone to sleep because there was a waiter. */
    if (is_last && engine_has_queued(d->engine) && atomic_exchange(&d->is_idle, false))
        ring(d);
    return status;
}

void driver_help(struct driver *d)
{
    if (d->is_background_only || pthread_mutex_trylock(&d->token) != 0)
        return;
    disarm(d);
    turn(d);
    give_back(d);
}

void driver_submitted(struct driver *d, bool is_waited)
{
    atomic_thread_fence(memory_order_seq_cst);
    if ((!is_waited || d->is_background_only) &&
        atomic_load_explicit(&d->is_idle, memory_order_relaxed) &&
        atomic_exchange(&d->is_idle, false))
        ring(d);
}

/* ---- the background thread ---- */

/* Is there a caller that does the work itself? */
static bool is_helped(struct driver *d)
{
    return !d->is_background_only && engine_has_waiters(d->engine);
}

/* How soon to poll transports and a backend that do not ring; idle_ns: there are none. */
static int64_t poll_limit(struct driver *d)
{
    int64_t limit = d->idle_ns;
    for (int32_t i = 0; i < d->transport_count; i++) {
        const struct transport_ops *ops = d->transports[i]->ops;
        if (ops->poll_ns == NULL)
            continue;
        int64_t poll_ns = ops->poll_ns(d->transports[i]);
        if (engine_has_in_flight(d->engine) && poll_ns > POLL_WAITED_NS)
            poll_ns = POLL_WAITED_NS;
        limit = poll_ns < limit ? poll_ns : limit;
    }
    struct backend *backend = d->backend;
    if (backend != NULL && backend->ops->poll_ns != NULL && engine_has_in_flight(d->engine)) {
        int64_t poll_ns = backend->ops->poll_ns(backend);
        limit = poll_ns < limit ? poll_ns : limit;
    }
    return limit;
}

static int64_t sleep_limit(struct driver *d, bool is_busy, int64_t now_ns)
{
    int64_t limit = poll_limit(d);
    int64_t deadline = engine_deadline_ns(d->engine);
    if (deadline != INT64_MAX)
        limit = deadline - now_ns < limit ? deadline - now_ns : limit;
    if (is_busy) {
        int64_t cycle = engine_tunables(d->engine)->cycle_time_ns;
        cycle = cycle > BUSY_MIN_NS ? cycle : BUSY_MIN_NS;
        limit = cycle < limit ? cycle : limit;
    }
    return limit > 0 ? limit : 0;
}

/* Token held: does all that can be done now, with some patience while a collective is running. */
static void work(struct driver *d)
{
    struct patience patience = {0};
    disarm(d);
    limits_follow(d);
    for (;;) {
        if (turn(d)) {
            patience = (struct patience){0};
            continue;
        }
        if (!engine_is_running(d->engine) || is_helped(d))
            return;
        if (!patience_wait(&patience, &d->limits, d->os))
            return;
    }
}

static void pin(struct driver *d)
{
    int rc = d->core >= 0 ? d->os->thread_pin(d->os->ctx, d->core) : 0;
    if (rc < 0)
        LOG_AT(engine_log(d->engine), LOG_WARNING,
               "HOROVOD_THREAD_AFFINITY asks for core %d, which this process may not use: %s.",
               d->core, strerror(-rc));
}

static void *background(void *arg)
{
    struct driver *d = arg;
    struct os_event events[EVENTS_AT_ONCE];
    pin(d);
    while (!atomic_load(&d->is_stopping)) {
        uint32_t seen = atomic_load(&d->turn);
        if (pthread_mutex_trylock(&d->token) != 0) {
            turn_sleep(d, seen, TURN_NS);
            continue;
        }
        work(d);
        /* Callers did the work themselves a moment ago and will again: do not arm the bells yet. */
        int64_t now_ns = os_now_ns(d->os);
        /* Read once: a later submit must find is_idle set, or be found in the queue below. */
        bool is_busy = engine_has_in_flight(d->engine);
        bool is_grace =
            !is_busy &&
            now_ns - atomic_load_explicit(&d->helped_ns, memory_order_relaxed) < GRACE_NS;
        bool is_quiet = is_grace || arm(d);
        int64_t limit = is_quiet ? sleep_limit(d, is_busy, now_ns) : 0;
        limit = is_grace && limit > GRACE_NS ? GRACE_NS : limit;
        atomic_store(&d->is_grace, is_grace);
        bool has_waiters = atomic_load(&d->sleepers) > 0;
        if (limit > 0 && !is_busy)
            atomic_store(&d->is_idle, true);
        pthread_mutex_unlock(&d->token);
        if (has_waiters && is_helped(d) && !is_quiet)
            turn_wake(d);
        atomic_thread_fence(memory_order_seq_cst);
        if (engine_has_queued(d->engine)) {
            /* A waiter that found the token taken a moment ago must not go to sleep. */
            if (is_helped(d))
                turn_wake(d);
            else
                limit = 0;
        }
        if (limit > 0)
            d->os->poll_wait(d->os->ctx, d->poll_fd, events, EVENTS_AT_ONCE, limit);
        atomic_store(&d->is_idle, false);
        atomic_store(&d->is_grace, false);
        d->os->bell_clear(d->os->ctx, d->bell_fd);
        atomic_fetch_add_explicit(&d->wakeups, 1, memory_order_relaxed);
    }
    return NULL;
}

/* ---- create and destroy ---- */

hvd_status_t driver_create(struct driver *d, struct engine *engine, const struct config *config,
                           int poll_fd, int32_t local_rank, int32_t local_size, struct error *error)
{
    const struct os *os = engine_os(engine);
    d->engine = engine;
    d->os = os;
    d->poll_fd = poll_fd;
    d->transports = engine_transports(engine, &d->transport_count);
    bool has_cores = os->cpu_count(os->ctx) >= local_size;
    d->spin_default_ns = has_cores ? SPIN_NS : SPIN_SHORT_NS;
    d->limits.yield_count = has_cores ? 0 : YIELD_COUNT;
    limits_set(d);
    char why[256];
    d->idle_ns = config_beat_ns(config);
    if (!affinity_core(config->thread_affinity, local_rank, local_size, &d->core, why, sizeof why))
        d->core = -1;
    if (why[0] != '\0' && local_rank == 0)
        LOG_AT(engine_log(engine), LOG_WARNING, "%s", why);
    pthread_mutex_init(&d->token, NULL);
    atomic_store(&d->turned_ns, os_now_ns(os));
    d->bell_fd = os->bell_create(os->ctx);
    if (d->bell_fd < 0)
        return error_set_os(error, d->bell_fd, "Could not make an event descriptor");
    int added = os->poll_add(os->ctx, poll_fd, d->bell_fd, d, false);
    if (added < 0)
        return error_set_os(error, added, "Could not watch an event descriptor");
    return HVD_OK;
}

hvd_status_t driver_start(struct driver *d, struct error *error)
{
    int started = d->os->thread_start(d->os->ctx, background, d, "horovod", &d->thread);
    return started < 0 ? error_set_os(error, started, "Could not start the engine's thread")
                       : HVD_OK;
}

void driver_shutdown(struct driver *d, int64_t timeout_ms)
{
    int64_t deadline_ns = os_now_ns(d->os) + timeout_ms * 1000000;
    pthread_mutex_lock(&d->token);
    disarm(d);
    engine_shutdown_ask(d->engine);
    while (os_now_ns(d->os) < deadline_ns) {
        bool has_moved = turn(d);
        if (engine_is_over(d->engine))
            break;
        if (has_moved)
            continue;
        pthread_mutex_unlock(&d->token);
        d->os->sleep_ns(d->os->ctx, 50000);
        pthread_mutex_lock(&d->token);
        disarm(d);
    }
    engine_stop(d->engine, HVD_ERR_SHUTDOWN, ENGINE_SHUTDOWN_TEXT, false);
    turn(d);
    pthread_mutex_unlock(&d->token);
    turn_wake(d);
}

void driver_destroy(struct driver *d)
{
    if (d->engine == NULL)
        return;
    atomic_store(&d->is_stopping, true);
    if (d->thread != NULL) {
        ring(d);
        turn_wake(d);
        d->os->thread_join(d->os->ctx, d->thread);
    }
    if (d->bell_fd >= 0) {
        d->os->poll_remove(d->os->ctx, d->poll_fd, d->bell_fd);
        d->os->close(d->os->ctx, d->bell_fd);
    }
    pthread_mutex_destroy(&d->token);
    d->engine = NULL;
}
