/* SPDX-License-Identifier: Apache-2.0 */
/* watch.c - see watch.h.
 *
 * `lock` covers `world`, which is NULL once the world is about to be destroyed; it is held while
 * the engine is read, which is bounded, and never while a file is written. One connection is served
 * at a time, with a limit; others wait in the socket's queue. */
#include "api/watch.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/uio.h>

#include "api/dump.h"
#include "api/world.h"
#include "base/proc.h"
#include "base/signal.h"
#include "wire/ask.h"
#include "wire/peercred.h"

#define TOKEN_WAIT_NS 100000000LL
#define STOP_NS       1000000000LL /* for the thread to end */
#define REQUEST_NS    500000000LL  /* for the request of a connection */
#define EVENTS_MAX    4
#define ENDS_MAX      64         /* reports that are kept: the first ones are the causes */
#define SIGNAL_GAP_NS 50000000LL /* between two dumps: a flood of signals is one */

struct watch {
    const struct os *os;
    pthread_mutex_t lock;
    struct world *world;
    char folder[CONFIG_TEXT_MAX];
    int poll_fd, bell_fd, signal_fd, listen_fd;
    void *thread;
    _Atomic bool is_stopping;
    _Atomic uint32_t is_over;

    int fd; /* the connection; -1: none */
    int64_t until_ns;
    uint8_t request[1 + ASK_END_MAX + 1]; /* one more byte than is valid */
    size_t used;

    _Atomic bool is_silent;     /* no report came in time: no thread waits for one again */
    _Atomic uint32_t end_count; /* increases last: futex */
    struct ask_end ends[ENDS_MAX];
};

/* ---- SIGUSR1 ---- */

static void on_dump(struct watch *w)
{
    struct dump dump;
    bool is_taken = false;
    w->os->bell_clear(w->os->ctx, w->signal_fd);
    pthread_mutex_lock(&w->lock);
    if (w->world != NULL)
        is_taken = dump_take(w->world, w->folder, "signal", false, &dump);
    pthread_mutex_unlock(&w->lock);
    if (is_taken)
        dump_write(&dump);
    if (!atomic_load(&w->is_stopping))
        w->os->sleep_ns(w->os->ctx, SIGNAL_GAP_NS);
}

/* ---- the agent ---- */

static void connection_close(struct watch *w)
{
    const struct os *os = w->os;
    os->poll_remove(os->ctx, w->poll_fd, w->fd);
    os->close(os->ctx, w->fd);
    w->fd = -1;
    os->poll_add(os->ctx, w->poll_fd, w->listen_fd, &w->listen_fd, false);
}

static void connection_open(struct watch *w)
{
    const struct os *os = w->os;
    int fd = os->accept(os->ctx, w->listen_fd, NULL, NULL);
    if (fd < 0)
        return;
    if (!peercred_is_same_user(os, w->listen_fd, fd) ||
        os->poll_add(os->ctx, w->poll_fd, fd, &w->fd, false) < 0) {
        os->close(os->ctx, fd);
        return;
    }
    os->poll_remove(os->ctx, w->poll_fd, w->listen_fd);
    w->fd = fd;
    w->used = 0;
    w->until_ns = os_now_ns(os) + REQUEST_NS;
}

static bool status_read(struct watch *w, struct ask_status *ret)
{
    pthread_mutex_lock(&w->lock);
    struct world *world = w->world;
    if (world != NULL) {
        bool has_token = driver_look_begin(&world->driver, TOKEN_WAIT_NS);
        doing_read(world->engine, os_now_ns(w->os), has_token, ret);
        ret->epoch = world->epoch;
        if (has_token)
            driver_look_end(&world->driver);
        else
            ret->busy_ns = driver_turn_age_ns(&world->driver);
    }
    pthread_mutex_unlock(&w->lock);
    struct proc_times times;
    if (world != NULL && proc_times(w->os, w->os->pid(w->os->ctx), &times)) {
        ret->user_ns = times.user_ns;
        ret->system_ns = times.system_ns;
    }
    return world != NULL;
}

/* A socket takes so few bytes at once; if not, the agent goes without. */
static void answer(struct watch *w)
{
    uint8_t bytes[ASK_STATUS_MAX];
    struct ask_status status;
    if (!status_read(w, &status))
        return;
    struct iovec iov = {.iov_base = bytes, .iov_len = ask_status_put(&status, bytes)};
    w->os->send(w->os->ctx, w->fd, &iov, 1);
}

static void end_take(struct watch *w)
{
    uint32_t count = atomic_load(&w->end_count);
    struct ask_end *end = &w->ends[count < ENDS_MAX ? count : 0];
    if (count >= ENDS_MAX || !ask_end_get(w->request + 1, w->used - 1, end))
        return;
    atomic_store(&w->end_count, count + 1);
    w->os->futex_wake(w->os->ctx, (const uint32_t *)&w->end_count, INT32_MAX);
}

static void connection_read(struct watch *w)
{
    size_t room = sizeof w->request - w->used;
    int64_t n = room > 0 ? w->os->recv(w->os->ctx, w->fd, w->request + w->used, room) : 0;
    if (n == -EAGAIN || n == -EINTR)
        return;
    w->used += n > 0 ? (size_t)n : 0;
    bool is_whole = n == 0 || w->used == sizeof w->request;
    if (w->used > 0 && w->request[0] == ASK_STATUS)
        answer(w);
    else if (n > 0 && !is_whole)
        return;
    else if (n == 0 && w->used > 1 && w->request[0] == ASK_END)
        end_take(w);
    connection_close(w);
}

/* ---- the thread ---- */

static void *watch_main(void *arg)
{
    struct watch *w = arg;
    const struct os *os = w->os;
    struct os_event events[EVENTS_MAX];
    while (!atomic_load(&w->is_stopping)) {
        int64_t left_ns = w->fd >= 0 ? w->until_ns - os_now_ns(os) : -1;
        if (w->fd >= 0 && left_ns <= 0) {
            connection_close(w);
            continue;
        }
        int n = os->poll_wait(os->ctx, w->poll_fd, events, EVENTS_MAX, left_ns);
        for (int i = 0; i < n; i++) {
            if (events[i].tag == &w->signal_fd)
                on_dump(w);
            else if (events[i].tag == &w->listen_fd && w->fd < 0)
                connection_open(w);
            else if (events[i].tag == &w->fd && w->fd >= 0)
                connection_read(w);
        }
        if (n < 0 && n != -EINTR)
            break;
    }
    atomic_store(&w->is_over, 1);
    os->futex_wake(os->ctx, (const uint32_t *)&w->is_over, 1);
    return NULL;
}

static void watch_free(struct watch *w)
{
    const struct os *os = w->os;
    int fds[] = {w->fd, w->listen_fd, w->bell_fd, w->poll_fd}; /* the signal's is the process's */
    for (size_t i = 0; i < sizeof fds / sizeof *fds; i++)
        if (fds[i] >= 0)
            os->close(os->ctx, fds[i]);
    pthread_mutex_destroy(&w->lock);
    os_free(os, w);
}

static bool watch_open(struct watch *w, const struct config *c)
{
    const struct os *os = w->os;
    if (c->postmortem_dir[0] != '\0') {
        memcpy(w->folder, c->postmortem_dir, sizeof w->folder);
        w->signal_fd = signal_bell(os, SIGNAL_DUMP);
    }
    if (c->status_socket[0] != '\0')
        w->listen_fd = ask_listen(os, c->status_socket);
    if (w->signal_fd < 0 && w->listen_fd < 0)
        return false;
    w->poll_fd = os->poll_create(os->ctx);
    w->bell_fd = os->bell_create(os->ctx);
    if (w->poll_fd < 0 || w->bell_fd < 0)
        return false;
    int rc = os->poll_add(os->ctx, w->poll_fd, w->bell_fd, &w->bell_fd, false);
    if (rc == 0 && w->signal_fd >= 0)
        rc = os->poll_add(os->ctx, w->poll_fd, w->signal_fd, &w->signal_fd, false);
    if (rc == 0 && w->listen_fd >= 0)
        rc = os->poll_add(os->ctx, w->poll_fd, w->listen_fd, &w->listen_fd, false);
    return rc == 0;
}

void watch_start(struct world *world)
{
    const struct os *os = world->os;
    if (world->config.postmortem_dir[0] == '\0' && world->config.status_socket[0] == '\0')
        return;
    struct watch *w = os_alloc(os, sizeof *w);
    if (w == NULL)
        return;
    *w = (struct watch){.os = os,
                        .world = world,
                        .poll_fd = -1,
                        .bell_fd = -1,
                        .signal_fd = -1,
                        .listen_fd = -1,
                        .fd = -1};
    pthread_mutex_init(&w->lock, NULL);
    if (!watch_open(w, &world->config) ||
        os->thread_start(os->ctx, watch_main, w, "hvd-watch", &w->thread) < 0) {
        watch_free(w);
        return;
    }
    world->watch = w;
}

void watch_stop(struct world *world)
{
    struct watch *w = world->watch;
    if (w == NULL)
        return;
    const struct os *os = world->os;
    world->watch = NULL;
    pthread_mutex_lock(&w->lock);
    w->world = NULL;
    pthread_mutex_unlock(&w->lock);
    atomic_store(&w->is_stopping, true);
    os->bell_ring(os->ctx, w->bell_fd);
    int64_t until_ns = os_now_ns(os) + STOP_NS;
    while (atomic_load(&w->is_over) == 0 && os_now_ns(os) < until_ns)
        os->futex_wait(os->ctx, (const uint32_t *)&w->is_over, 0, until_ns - os_now_ns(os));
    if (atomic_load(&w->is_over) == 0) {
        os->thread_detach(os->ctx, w->thread); /* stuck in a file: it keeps what it uses */
        return;
    }
    os->thread_join(os->ctx, w->thread);
    watch_free(w);
}

/* ---- how others ended ---- */

static bool end_find(const struct watch *w, uint32_t count, uint64_t epoch, int32_t rank, char *ret,
                     size_t bytes)
{
    for (uint32_t i = 0; i < count; i++) {
        const struct ask_end *end = &w->ends[i];
        if (end->rank != rank || (end->epoch != 0 && end->epoch != epoch))
            continue;
        snprintf(ret, bytes, "%s", end->text);
        return true;
    }
    return false;
}

bool watch_end_of(struct world *world, int32_t rank, int64_t timeout_ns, char *ret, size_t bytes)
{
    struct watch *w = world->watch;
    const struct os *os = world->os;
    if (w == NULL || w->listen_fd < 0)
        return false;
    int64_t until_ns = os_now_ns(os) + timeout_ns;
    for (;;) {
        uint32_t count = atomic_load(&w->end_count);
        int64_t left_ns = until_ns - os_now_ns(os);
        if (end_find(w, count, world->epoch, rank, ret, bytes))
            return true;
        if (left_ns <= 0 || count >= ENDS_MAX || atomic_load(&w->is_silent)) {
            atomic_store(&w->is_silent, timeout_ns > 0 || atomic_load(&w->is_silent));
            return false;
        }
        os->futex_wait(os->ctx, (const uint32_t *)&w->end_count, count, left_ns);
    }
}
