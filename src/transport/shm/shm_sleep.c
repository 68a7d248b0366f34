/* SPDX-License-Identifier: Apache-2.0 */
/* shm_sleep.c - sleeping, waking, and detecting that a peer has exited.
 *
 * A lost wake-up is impossible because four accesses are sequentially consistent: the writer stores
 * its word, then loads `sleeping`; the sleeper stores `sleeping`, then loads the word. One of the
 * two sees the other. A writer that finds `sleeping` set clears it (exchange) and rings the bell
 * once.
 *
 * The kernel closes a dead peer's socket; if a child of the peer still holds the socket, the
 * missing process reveals the death. While awake we check links about once per millisecond.
 *
 * Thread: token holder.  Start reading at shm_links_check(). */
#include <errno.h>
#include <sys/uio.h>

#include "transport/shm/shm_internal.h"

#define CHECK_EVERY_NS    1000000
#define CHECK_EVERY_CALLS 4096u
#define EVENTS_AT_ONCE    64

void shm_wake(struct shm *shm, struct shm_peer *peer)
{
    struct shm_header *header = (struct shm_header *)(void *)peer->segment;
    if (atomic_load(&header->sleeping) == 0)
        return;
    if (atomic_exchange(&header->sleeping, 0) != 0)
        shm->base.os->bell_ring(shm->base.os->ctx, peer->bell);
}

void shm_attention(struct shm *shm, struct shm_peer *peer)
{
    struct shm_header *header = (struct shm_header *)(void *)peer->segment;
    atomic_fetch_or(&header->attention[shm->local / 64], 1ull << (shm->local % 64));
    shm_wake(shm, peer);
}

void shm_notify(struct transport *t, int32_t rank)
{
    shm_notify_all((struct shm *)t, &rank, 1);
}

void shm_notify_all(struct shm *shm, const int32_t *ranks, int32_t count)
{
    for (int32_t i = 0; i < count; i++) {
        struct shm_peer *peer = shm_peer_of(shm, ranks[i]);
        if (peer != NULL && peer->is_up)
            shm_wake(shm, peer);
    }
}

void shm_waiter_add(struct shm *shm, struct shm_waiter *waiter)
{
    waiter->next = shm->waiters;
    shm->waiters = waiter;
}

void shm_waiter_remove(struct shm *shm, struct shm_waiter *waiter)
{
    struct shm_waiter **link = &shm->waiters;
    while (*link != NULL && *link != waiter)
        link = &(*link)->next;
    if (*link != NULL)
        *link = waiter->next;
}

static bool has_something(struct shm *shm)
{
    for (int32_t word = 0; word * 64 < shm->peer_count; word++)
        if (shm->todo[word] != 0 || atomic_load(&shm->header->attention[word]) != 0)
            return true;
    for (const struct shm_waiter *w = shm->waiters; w != NULL; w = w->next)
        if (w->is_ready(w))
            return true;
    return false;
}

bool shm_sleep_begin(struct transport *t)
{
    struct shm *shm = (struct shm *)t;
    if (shm->must_check)
        return false;
    atomic_store(&shm->header->sleeping, 1);
    if (!has_something(shm))
        return true;
    atomic_store(&shm->header->sleeping, 0);
    return false;
}

void shm_sleep_end(struct transport *t)
{
    struct shm *shm = (struct shm *)t;
    atomic_store(&shm->header->sleeping, 0);
    shm->must_check = true;
}

/* --- which peers are alive --- */

static void peer_gone(struct shm *shm, struct shm_peer *peer)
{
    if (!peer->is_up)
        return;
    shm_peer_progress(shm, peer); /* what it wrote before */
    shm_peer_fail(shm, peer->rank, HVD_ERR_PEER_DEAD, "died or closed its connection");
}

static void socket_event(struct shm *shm, struct shm_peer *peer)
{
    if (!peer->is_up)
        return;
    const struct os *os = shm->base.os;
    uint8_t byte;
    int64_t n = os->recv(os->ctx, peer->fd, &byte, 1);
    if (n == -EAGAIN || n == -EINTR)
        return;
    if (n > 0)
        shm_peer_fail(shm, peer->rank, HVD_ERR_CORRUPT, "sent unexpected bytes");
    else
        peer_gone(shm, peer);
}

static void sockets_check(struct shm *shm)
{
    const struct os *os = shm->base.os;
    struct os_event events[EVENTS_AT_ONCE];
    int n = os->poll_wait(os->ctx, shm->inner_poll, events, EVENTS_AT_ONCE, 0);
    for (int i = 0; i < n; i++) {
        if (events[i].tag == shm)
            os->bell_clear(os->ctx, shm->bell);
        else
            socket_event(shm, events[i].tag);
    }
    if (n == EVENTS_AT_ONCE)
        shm->must_check =
            true; /* there may be more; those reported by then are out of the poller */
}

/* One peer per round: reading an address that is never mapped fails with EFAULT if the process is
 * alive, with ESRCH if it has exited, also when a forked child keeps its socket open. */
static void process_check(struct shm *shm)
{
    const struct os *os = shm->base.os;
    if (++shm->check_next >= shm->peer_count)
        shm->check_next = 0;
    struct shm_peer *peer = &shm->peers[shm->check_next];
    if (shm->check_next == shm->local || !peer->is_up || peer->pid <= 0)
        return;
    uint8_t byte;
    struct iovec local = {.iov_base = &byte, .iov_len = 1};
    struct iovec remote = {.iov_base = (void *)(uintptr_t)1, .iov_len = 1};
    if (os->peer_read(os->ctx, peer->pid, &local, 1, &remote, 1) == -ESRCH)
        peer_gone(shm, peer);
}

/* Other ranks may already have reported why a peer left; their messages come first, so that the
 * cause is known before its consequences. */
static void rings_drain(struct shm *shm)
{
    for (int32_t i = 0; i < shm->peer_count; i++)
        if (i != shm->local && shm->peers[i].is_up)
            shm_peer_progress(shm, &shm->peers[i]);
}

/* The peer that went down first among those not reported yet: the others may have left because of
 * it. */
static struct shm_peer *untold_first(const struct shm *shm)
{
    struct shm_peer *first = NULL;
    for (int32_t i = 0; i < shm->peer_count; i++) {
        struct shm_peer *peer = &shm->peers[i];
        if (i == shm->local || peer->is_up || peer->is_down_told || peer->down.status == HVD_OK)
            continue;
        if (first == NULL || peer->down_number < first->down_number)
            first = peer;
    }
    return first;
}

static bool downs_tell(struct shm *shm)
{
    const struct os *os = shm->base.os;
    if (untold_first(shm) == NULL)
        return false;
    rings_drain(shm);
    for (struct shm_peer *peer; (peer = untold_first(shm)) != NULL;) {
        peer->is_down_told = true;
        os->poll_remove(os->ctx, shm->inner_poll, peer->fd);
        os->close(os->ctx, peer->fd);
        peer->fd = -1;
        shm_peer_release(shm, peer, peer->down.status);
        if (shm->base.events.peer_down != NULL)
            shm->base.events.peer_down(shm->base.events.ctx, peer->rank, peer->down.status,
                                       peer->down.text);
    }
    return true;
}

int64_t shm_last_heard_ns(struct transport *t, int32_t rank, int64_t now_ns)
{
    struct shm_peer *peer = shm_peer_of((struct shm *)t, rank);
    if (peer == NULL || !peer->is_up)
        return 0;
    const struct shm_header *header = (const struct shm_header *)(void *)peer->segment;
    uint64_t heartbeat = atomic_load_explicit(&header->heartbeat, memory_order_relaxed);
    if (heartbeat == 0)
        return -1;
    if (heartbeat != peer->heartbeat || peer->heard_ns == 0) {
        peer->heartbeat = heartbeat;
        peer->heard_ns = now_ns;
    }
    return peer->heard_ns;
}

bool shm_links_check(struct shm *shm, int64_t now_ns)
{
    bool is_due = now_ns - shm->checked_ns >= CHECK_EVERY_NS;
    if (!is_due && !shm->must_check && ++shm->calls < CHECK_EVERY_CALLS)
        return false;
    shm->must_check = false;
    shm->checked_ns = now_ns;
    shm->calls = 0;
    atomic_fetch_add_explicit(&shm->header->heartbeat, 1, memory_order_relaxed);
    if (shm->peer_count <= 1)
        return false;
    sockets_check(shm);
    if (is_due)
        process_check(shm);
    return downs_tell(shm);
}
