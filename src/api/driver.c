/* SPDX-License-Identifier: Apache-2.0 */
/* driver.c - see driver.h. */
#include "api/driver.h"

#include <errno.h>
#include <string.h>

#include "api/affinity.h"

#define SPIN_NS        60000 /* about twice what waking a sleeping core costs */
#define SPIN_SHORT_NS  1000  /* more ranks than cores: get out of the way */
#define YIELD_COUNT    50
#define IDLE_NS        1000000000LL
#define TURN_NS        1000000LL
#define BUSY_MIN_NS    200000LL
#define EVENTS_AT_ONCE 16
#define GRACE_NS       2000000LL
#define POLL_WAITED_NS 100000LL /* between looks at a transport that does not ring, ops pending */

static inline void cpu_pause(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* ---- sleeping and waking ---- */

/* Token. After this a peer that has something for us rings; false: something is there already. */
static bool arm(struct driver *d)
{
    bool is_quiet = true;
    for (int32_t i = 0; i < d->transport_count; i++)
        is_quiet &= d->transports[i]->ops->sleep_begin(d->transports[i]);
    d->is_armed = true;
    return is_quiet && atomic_load(&d->engine->queued) == 0;
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
    atomic_fetch_sub(&d->sleepers, 1);
    atomic_fetch_add_explicit(&d->sleeps, 1, memory_order_relaxed);
}

/* ---- one turn ---- */

static void run_callbacks(struct driver *d, struct ticket *ticket)
{
    while (ticket != NULL) {
        struct ticket *next = ticket->next;
        struct op *op = ticket->ops[0];
        bool is_released = (ticket->flags & HVD_OP_AUTO_RELEASE) != 0;
        hvd_status_t status =
            (hvd_status_t)atomic_load_explicit(&ticket->state, memory_order_acquire);
        op->callback(op->arg, ticket->handle, status);
        if (is_released)
            engine_ticket_release(d->engine, ticket);
        ticket = next;
    }
}

/* Token held. Callbacks run without it; it is held again on return. */
static bool turn(struct driver *d)
{
    bool has_moved = engine_progress(d->engine, os_now_ns(d->os));
    if (d->engine->completions != d->completions_told) {
        d->completions_told = d->engine->completions;
        turn_wake(d);
    }
    if (d->engine->done_head != NULL) {
        struct ticket *done = engine_take_done(d->engine);
        pthread_mutex_unlock(&d->token);
        run_callbacks(d, done);
        pthread_mutex_lock(&d->token);
        disarm(d);
    }
    return has_moved;
}

/* Nothing moved: spin, yield, or say that it is time to sleep. */
static bool is_patient(const struct driver *d, int64_t idle_since_ns, int32_t *yields)
{
    if (os_now_ns(d->os) - idle_since_ns < d->spin_ns) {
        for (int i = 0; i < 8; i++)
            cpu_pause();
        return true;
    }
    if (*yields < d->yield_count) {
        ++*yields;
        d->os->yield(d->os->ctx);
        return true;
    }
    return false;
}

/* Token held; given back here. The background thread takes over what is left. */
static void give_back(struct driver *d)
{
    atomic_store_explicit(&d->helped_ns, d->engine->now_ns, memory_order_relaxed);
    if (atomic_load(&d->is_grace) && atomic_load(&d->engine->in_flight) == 0) {
        /* The background thread looks again by itself before long: peers need not ring for every
         * op. */
        pthread_mutex_unlock(&d->token);
        if (atomic_load(&d->sleepers) > 0)
            turn_wake(d);
        return;
    }
    bool is_quiet = arm(d);
    bool has_waiters = atomic_load(&d->sleepers) > 0;
    pthread_mutex_unlock(&d->token);
    if (!is_quiet || atomic_load(&d->engine->in_flight) > 0)
        if (!is_quiet || atomic_exchange(&d->is_idle, false))
            ring(d);
    if (has_waiters)
        turn_wake(d);
}

/* ---- waiting ---- */

static bool is_done(const struct ticket *ticket)
{
    return atomic_load_explicit(&ticket->state, memory_order_acquire) != HVD_IN_PROGRESS;
}

/* Token held: works until the ticket is complete, or patience or the time limit runs out. */
static void drive(struct driver *d, const struct ticket *ticket, int64_t deadline_ns)
{
    int64_t idle_since_ns = 0;
    int32_t yields = 0;
    disarm(d);
    while (!is_done(ticket)) {
        if (turn(d)) {
            idle_since_ns = 0;
            yields = 0;
            continue;
        }
        if (idle_since_ns == 0)
            idle_since_ns = os_now_ns(d->os);
        if (!is_patient(d, idle_since_ns, &yields) || os_now_ns(d->os) > deadline_ns)
            return;
    }
}

hvd_status_t driver_wait(struct driver *d, struct ticket *ticket, int64_t timeout_ms)
{
    int64_t deadline_ns = timeout_ms < 0 ? INT64_MAX : os_now_ns(d->os) + timeout_ms * 1000000;
    hvd_status_t status = HVD_OK;
    if (is_done(ticket))
        return HVD_OK;
    atomic_fetch_add(&d->engine->waiters, 1);
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
        if (!is_done(ticket))
            turn_sleep(d, seen, deadline_ns == INT64_MAX ? IDLE_NS : TURN_NS);
    }
    atomic_fetch_sub(&d->engine->waiters, 1);
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

/* Is a caller there that does the work itself? */
static bool is_helped(struct driver *d)
{
    return !d->is_background_only && atomic_load(&d->engine->waiters) > 0;
}

/* How soon to look at transports that do not ring; IDLE_NS: there are none. */
static int64_t poll_limit(struct driver *d)
{
    int64_t limit = IDLE_NS;
    for (int32_t i = 0; i < d->transport_count; i++) {
        const struct transport_ops *ops = d->transports[i]->ops;
        if (ops->poll_ns == NULL)
            continue;
        int64_t poll_ns = ops->poll_ns(d->transports[i]);
        if (atomic_load(&d->engine->in_flight) > 0 && poll_ns > POLL_WAITED_NS)
            poll_ns = POLL_WAITED_NS;
        limit = poll_ns < limit ? poll_ns : limit;
    }
    return limit;
}

static int64_t sleep_limit(struct driver *d, int64_t now_ns)
{
    int64_t limit = poll_limit(d);
    int64_t deadline = engine_deadline_ns(d->engine);
    if (deadline != INT64_MAX)
        limit = deadline - now_ns < limit ? deadline - now_ns : limit;
    if (atomic_load(&d->engine->in_flight) > 0) {
        int64_t cycle = (int64_t)(d->config->cycle_time_ms * 1e6);
        cycle = cycle > BUSY_MIN_NS ? cycle : BUSY_MIN_NS;
        limit = cycle < limit ? cycle : limit;
    }
    return limit > 0 ? limit : 0;
}

/* Token held: all that can be done now, with some patience while a collective is under way. */
static void work(struct driver *d)
{
    int64_t idle_since_ns = 0;
    int32_t yields = 0;
    disarm(d);
    for (;;) {
        if (turn(d)) {
            idle_since_ns = 0;
            yields = 0;
            continue;
        }
        bool is_running = false;
        for (int32_t i = 0; i < d->engine->member_count; i++)
            is_running |= d->engine->members[i]->run.is_active;
        if (!is_running || is_helped(d))
            return;
        if (idle_since_ns == 0)
            idle_since_ns = os_now_ns(d->os);
        if (!is_patient(d, idle_since_ns, &yields))
            return;
    }
}

static void pin(struct driver *d)
{
    int rc = d->core >= 0 ? d->os->thread_pin(d->os->ctx, d->core) : 0;
    if (rc < 0)
        LOG_AT(d->engine->log, LOG_WARNING,
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
        /* Callers did the work themselves a moment ago and will again: do not ask to be rung yet.
         */
        int64_t now_ns = os_now_ns(d->os);
        bool is_grace =
            atomic_load(&d->engine->in_flight) == 0 &&
            now_ns - atomic_load_explicit(&d->helped_ns, memory_order_relaxed) < GRACE_NS;
        bool is_quiet = is_grace || arm(d);
        int64_t limit = is_quiet ? sleep_limit(d, now_ns) : 0;
        limit = is_grace && limit > GRACE_NS ? GRACE_NS : limit;
        atomic_store(&d->is_grace, is_grace);
        bool has_waiters = atomic_load(&d->sleepers) > 0;
        if (limit > 0 && atomic_load(&d->engine->in_flight) == 0)
            atomic_store(&d->is_idle, true);
        pthread_mutex_unlock(&d->token);
        if (has_waiters && is_helped(d) && !is_quiet)
            turn_wake(d);
        atomic_thread_fence(memory_order_seq_cst);
        if (atomic_load(&d->engine->queued) > 0 && !is_helped(d))
            limit = 0;
        if (limit > 0)
            d->os->poll_wait(d->os->ctx, d->poll_fd, events, EVENTS_AT_ONCE, limit);
        atomic_store(&d->is_idle, false);
        atomic_store(&d->is_grace, false);
        d->os->bell_clear(d->os->ctx, d->bell_fd);
        atomic_fetch_add_explicit(&d->wakeups, 1, memory_order_relaxed);
    }
    return NULL;
}

/* ---- life ---- */

hvd_status_t driver_create(struct driver *d, struct engine *engine, const struct config *config,
                           int poll_fd, struct transport *const *transports,
                           int32_t transport_count, int32_t local_rank, int32_t local_size,
                           struct error *error)
{
    const struct os *os = engine->os;
    d->engine = engine;
    d->os = os;
    d->config = config;
    d->poll_fd = poll_fd;
    for (int32_t i = 0; i < transport_count; i++)
        d->transports[i] = transports[i];
    d->transport_count = transport_count;
    bool has_cores = os->cpu_count(os->ctx) >= local_size;
    d->spin_ns = has_cores ? SPIN_NS : SPIN_SHORT_NS;
    d->yield_count = has_cores ? 0 : YIELD_COUNT;
    if (config->spin_us >= 0)
        d->spin_ns = config->spin_us * 1000;
    char why[256];
    if (!affinity_core(config->thread_affinity, local_rank, local_size, &d->core, why, sizeof why))
        d->core = -1;
    if (why[0] != '\0' && local_rank == 0)
        LOG_AT(engine->log, LOG_WARNING, "%s", why);
    pthread_mutex_init(&d->token, NULL);
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
