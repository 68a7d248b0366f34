/* SPDX-License-Identifier: Apache-2.0 */
/* shm.c - creating and destroying a segment, and the transport's table; connecting is in
 * shm_connect.c, moving bytes in shm_ring.c, sleeping and detecting death in shm_sleep.c, the heap
 * in shm_heap.c.
 *
 * Thread: token holder.  Owner: the engine.  Start reading at shm_create(). */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "base/machine.h"
#include "base/socket.h"
#include "transport/shm/shm_internal.h"

#define HEAP_BYTES_MAX   (64ull << 30)
#define HEAP_BYTES_MIN   (16ull << 20)
#define HOST_VIRTUAL_MAX (32ull << 40) /* of all segments that one process maps */
#define LISTEN_BACKLOG   1024

_Static_assert(sizeof(struct shm_header) <= SHM_UNIT, "header fits its unit");
_Static_assert(sizeof(struct shm_rings) % SHM_UNIT == 0, "rings are whole units");
_Static_assert(sizeof(struct shm_board) % SHM_UNIT == 0, "boards are whole units");

struct shm_peer *shm_peer_of(const struct shm *shm, int32_t rank)
{
    if (rank < 0 || rank >= shm->world || shm->by_rank[rank] < 0 || rank == shm->rank)
        return NULL;
    return &shm->peers[shm->by_rank[rank]];
}

void shm_todo(struct shm *shm, const struct shm_peer *peer)
{
    shm->todo[peer->local / 64] |= 1ull << (peer->local % 64);
}

/* --- who and where are we --- */

static void host_id_fill(const struct os *os, char *ret_id, size_t capacity)
{
    char boot[MACHINE_BOOT_ID_MAX];
    machine_boot_id(os, boot);
    snprintf(ret_id, capacity, "%s.%llx.%llx", boot, (unsigned long long)machine_local_scope(os),
             (unsigned long long)os->user(os->ctx));
}

static uint64_t heap_bytes_wanted(const struct shm *shm)
{
    const struct os *os = shm->base.os;
    const struct config *config = shm->config;
    uint64_t wanted = HEAP_BYTES_MAX;
    if (config->arena_max_bytes > 0) {
        wanted = (uint64_t)config->arena_max_bytes;
    } else {
        uint64_t memory = machine_memory_bytes(os);
        if (memory > 0 && memory < wanted)
            wanted = memory;
    }
    if (config->local_size > 1) {
        uint64_t share = HOST_VIRTUAL_MAX / (uint64_t)config->local_size;
        if (wanted > share)
            wanted = share;
    }
    if (wanted < HEAP_BYTES_MIN)
        wanted = HEAP_BYTES_MIN;
    return (wanted + shm->page - 1) / shm->page * shm->page;
}

/* --- create --- */

static hvd_status_t segment_create(struct shm *shm, struct error *error)
{
    const struct os *os = shm->base.os;
    int rc = -ENOMEM;
    shm->page = os->page_bytes(os->ctx);
    if (shm->page > SHM_PAGE_MAX)
        return error_set(error, HVD_ERR_OS,
                         "memory pages of %llu bytes are larger than any we know",
                         (unsigned long long)shm->page);
    for (uint64_t heap = heap_bytes_wanted(shm); heap >= HEAP_BYTES_MIN;
         heap = heap / 2 / shm->page * shm->page) {
        shm->bytes = SHM_HEAP_AT + heap;
        rc = os->memfd(os->ctx, "horovod", shm->bytes);
        if (rc < 0)
            continue;
        shm->segment_fd = rc;
        shm->segment = os->map(os->ctx, shm->segment_fd, shm->bytes, SHM_OWN_COLOR);
        if (shm->segment != NULL)
            break;
        rc = -ENOMEM;
        os->close(os->ctx, shm->segment_fd);
        shm->segment_fd = -1;
    }
    if (shm->segment == NULL)
        return error_set_os(error, rc, "can't create shared memory of %llu bytes",
                            (unsigned long long)shm->bytes);
    shm->header = (struct shm_header *)(void *)shm->segment;
    shm->header->magic = SHM_MAGIC;
    shm->header->layout = SHM_LAYOUT;
    shm->header->rank = shm->rank;
    shm->header->bytes = shm->bytes;
    rc = shm_heap_init(shm);
    if (rc < 0)
        return error_set_os(error, rc, "can't set up the arena heap");
    return HVD_OK;
}

static hvd_status_t listener_create(struct shm *shm, char *ret_name, struct error *error)
{
    const struct os *os = shm->base.os;
    uint8_t noise[16];
    int rc = os->random(os->ctx, noise, sizeof noise);
    if (rc < 0)
        return error_set_os(error, rc, "can't get random bytes");
    int n = snprintf(ret_name, SHM_NAME_MAX, "horovod-%d-", (int)shm->rank);
    for (size_t i = 0; i < sizeof noise; i++)
        n += snprintf(ret_name + n, SHM_NAME_MAX - (size_t)n, "%02x", noise[i]);

    struct sockaddr_storage addr;
    unsigned len = socket_local_address(ret_name, (size_t)n, &addr);
    shm->listener = os->socket(os->ctx, AF_UNIX, SOCK_STREAM);
    if (shm->listener < 0)
        return error_set_os(error, shm->listener, "can't create a Unix socket");
    rc = os->bind(os->ctx, shm->listener, (const struct sockaddr *)&addr, len);
    if (rc == 0)
        rc = os->listen(os->ctx, shm->listener, LISTEN_BACKLOG);
    if (rc < 0)
        return error_set_os(error, rc, "can't listen on the Unix socket @%s", ret_name);
    return HVD_OK;
}

static hvd_status_t poller_create(struct shm *shm, struct error *error)
{
    const struct os *os = shm->base.os;
    shm->bell = os->bell_create(os->ctx);
    if (shm->bell < 0)
        return error_set_os(error, shm->bell, "can't create a bell");
    shm->inner_poll = os->poll_create(os->ctx);
    if (shm->inner_poll < 0)
        return error_set_os(error, shm->inner_poll, "can't create a poller");
    int rc = os->poll_add(os->ctx, shm->inner_poll, shm->bell, shm, false);
    if (rc < 0)
        return error_set_os(error, rc, "can't poll the bell");
    return HVD_OK;
}

static bool is_reaching(const struct transport *t, int32_t rank)
{
    const struct shm_peer *peer = shm_peer_of((const struct shm *)t, rank);
    return peer != NULL && peer->is_up;
}

static uint8_t *arena_of(const struct transport *t, int32_t rank, uint64_t *ret_bytes)
{
    const struct shm *shm = (const struct shm *)t;
    if (rank == shm->rank) {
        *ret_bytes = shm->bytes;
        return shm->segment;
    }
    const struct shm_peer *peer = shm_peer_of(shm, rank);
    if (peer == NULL || peer->segment == NULL) {
        *ret_bytes = 0;
        return NULL;
    }
    *ret_bytes = peer->bytes;
    return peer->segment;
}

static bool progress(struct transport *t, int64_t now_ns)
{
    struct shm *shm = (struct shm *)t;
    bool has_moved = false;
    for (int32_t word = 0; word * 64 < shm->peer_count; word++) {
        uint64_t bits = shm->todo[word];
        shm->todo[word] = 0;
        if (atomic_load_explicit(&shm->header->attention[word], memory_order_relaxed) != 0)
            bits |= atomic_exchange(&shm->header->attention[word], 0);
        for (; bits != 0; bits &= bits - 1) {
            int32_t local = word * 64 + __builtin_ctzll(bits);
            if (local < shm->peer_count && local != shm->local && shm->peers[local].is_up)
                has_moved |= shm_peer_progress(shm, &shm->peers[local]);
        }
    }
    if (shm_links_check(shm, now_ns))
        has_moved = true;
    return has_moved;
}

static void counters(const struct transport *t, uint64_t *ret_messages, uint64_t *ret_bytes)
{
    const struct shm *shm = (const struct shm *)t;
    *ret_messages = shm->messages;
    *ret_bytes = shm->moved_bytes;
}

static void fd_close(const struct os *os, int *fd)
{
    if (*fd >= 0)
        os->close(os->ctx, *fd);
    *fd = -1;
}

static void peers_destroy(struct shm *shm)
{
    const struct os *os = shm->base.os;
    for (int32_t i = 0; shm->peers != NULL && i < shm->peer_count; i++) {
        struct shm_peer *peer = &shm->peers[i];
        shm_peer_release(shm, peer, HVD_ERR_SHUTDOWN);
        fd_close(os, &peer->fd);
        fd_close(os, &peer->bell);
        if (peer->segment != NULL)
            os->unmap(os->ctx, peer->segment, peer->bytes);
        os_free(os, peer->outbox.bytes);
        os_free(os, peer->assembly.bytes);
        os_free(os, peer->cancels);
    }
    os_free(os, shm->peers);
    os_free(os, shm->by_rank);
}

static void destroy(struct transport *t)
{
    struct shm *shm = (struct shm *)t;
    if (shm == NULL)
        return;
    const struct os *os = shm->base.os;
    peers_destroy(shm);
    if (shm->outer_poll >= 0 && shm->inner_poll >= 0)
        os->poll_remove(os->ctx, shm->outer_poll, shm->inner_poll);
    fd_close(os, &shm->inner_poll);
    fd_close(os, &shm->listener);
    fd_close(os, &shm->bell);
    shm_unregister_all(shm);
    shm_segment_unmap(shm);
    shm_heap_destroy(shm);
    fd_close(os, &shm->segment_fd);
    os_free(os, shm->inbox);
    os_free(os, shm);
}

static const struct transport_ops shm_ops = {
    .version = TRANSPORT_VERSION,
    .name = "shm",
    .reaches = is_reaching,
    .message_send = shm_message_send,
    .bulk_send = shm_bulk_send,
    .bulk_recv = shm_bulk_recv,
    .bulk_cancel = shm_bulk_cancel,
    .progress = progress,
    .sleep_begin = shm_sleep_begin,
    .sleep_end = shm_sleep_end,
    .arena = arena_of,
    .notify = shm_notify,
    .counters = counters,
    .last_heard_ns = shm_last_heard_ns,
    .destroy = destroy,
    .memory = &shm_memory,
};

hvd_status_t shm_create(const struct os *os, const struct config *config, int32_t rank,
                        struct endpoint *ret_self, struct shm **ret, struct error *error)
{
    *ret = NULL;
    struct shm *shm = os_alloc(os, sizeof *shm);
    if (shm == NULL)
        return error_set(error, HVD_ERR_NO_MEMORY, "no memory for the shared memory transport");
    shm->base.ops = &shm_ops;
    shm->base.os = os;
    shm->config = config;
    shm->rank = rank;
    shm->segment_fd = shm->bell = shm->listener = shm->inner_poll = shm->outer_poll = -1;
    char name[SHM_NAME_MAX] = "";
    hvd_status_t status = segment_create(shm, error);
    if (status == HVD_OK)
        status = listener_create(shm, name, error);
    if (status == HVD_OK)
        status = poller_create(shm, error);
    shm->inbox = os_alloc(os, SHM_MESSAGE_WHOLE);
    if (status == HVD_OK && shm->inbox == NULL)
        status = error_set(error, HVD_ERR_NO_MEMORY, "no memory for messages");
    if (status == HVD_OK)
        status = endpoint_offer(ret_self, shm_row.name, name, strlen(name), error);
    if (status != HVD_OK) {
        destroy(&shm->base);
        return status;
    }
    ret_self->rank = rank;
    ret_self->pid = os->pid(os->ctx);
    host_id_fill(os, ret_self->host_id, sizeof ret_self->host_id);
    *ret = shm;
    return HVD_OK;
}

uint64_t shm_page_bytes(const struct shm *shm)
{
    return shm->page;
}

struct transport *shm_transport(struct shm *shm)
{
    return &shm->base;
}

struct shm *shm_of(struct transport *t)
{
    return t != NULL && t->ops == &shm_ops ? (struct shm *)t : NULL;
}

/* --- peers' segments --- */

static uint8_t *segment_of(const struct shm *shm, int32_t rank)
{
    uint64_t bytes;
    return arena_of(&shm->base, rank, &bytes);
}

struct shm_board *shm_board(const struct shm *shm, int32_t rank, int32_t set)
{
    uint8_t *segment = segment_of(shm, rank);
    if (segment == NULL || set < 0)
        return NULL;
    uint64_t at = SHM_BOARDS_AT + (uint64_t)set % SHM_BOARDS_MAX * sizeof(struct shm_board);
    return (struct shm_board *)(void *)(segment + at);
}

int32_t shm_peer_pid(const struct shm *shm, int32_t rank)
{
    if (rank == shm->rank)
        return shm->base.os->pid(shm->base.os->ctx);
    const struct shm_peer *peer = shm_peer_of(shm, rank);
    return peer == NULL ? 0 : peer->pid;
}

bool shm_is_peer_down(const struct shm *shm, int32_t rank)
{
    const struct shm_peer *peer = shm_peer_of(shm, rank);
    return rank != shm->rank && (peer == NULL || !peer->is_up);
}

uint32_t shm_down_count(const struct shm *shm)
{
    return shm->downs;
}

hvd_status_t shm_peer_error(const struct shm *shm, int32_t rank, struct error *error)
{
    if (!shm_is_peer_down(shm, rank))
        return HVD_OK;
    const struct shm_peer *peer = shm_peer_of(shm, rank);
    if (peer == NULL || peer->down.status == HVD_OK)
        return error_set(error, HVD_ERR_LINK, "rank %d can't be reached by shared memory",
                         (int)rank);
    return error_set(error, peer->down.status, "%s", peer->down.text);
}

hvd_status_t shm_peer_fail(struct shm *shm, int32_t rank, hvd_status_t status, const char *why)
{
    struct shm_peer *peer = shm_peer_of(shm, rank);
    if (peer == NULL || !peer->is_up)
        return status;
    error_set(&peer->down, status, "rank %d (pid %d on %s) %s", (int)rank, (int)peer->pid,
              peer->host_name[0] != '\0' ? peer->host_name : "this host", why);
    peer->is_up = false;
    peer->down_number = ++shm->downs;
    shm->must_check = true;
    return status;
}
