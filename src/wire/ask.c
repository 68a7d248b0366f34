/* SPDX-License-Identifier: Apache-2.0 */
/* ask.c - see ask.h. A record is a magic number and its fields in the order of the struct. */
#include "wire/ask.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "base/codec.h"
#include "base/socket.h"

#define STATUS_MAGIC 0x3373757461747368ull
#define END_MAGIC    0x31646e656b736168ull
#define BACKLOG      16

_Static_assert(sizeof(struct ask_status) + 64 <= ASK_STATUS_MAX, "the longest status fits");
_Static_assert(sizeof(struct ask_end) + 32 <= ASK_END_MAX, "the longest end fits");

/* ---- records ---- */

static void text_get(struct reader *r, char *ret, size_t bytes)
{
    get_text(r, ret, bytes);
    for (char *at = ret; !r->bad && *at != '\0'; at++)
        if ((unsigned char)*at < ' ' || *at == 0x7f)
            *at = ' ';
}

static void peer_put(struct writer *w, const struct ask_peer *peer)
{
    put_u32(w, (uint32_t)peer->rank);
    put_u64(w, (uint64_t)peer->awaits_ns);
    put_u64(w, peer->sent_bytes);
    put_u64(w, peer->received_bytes);
    put_u64(w, (uint64_t)peer->send_ns);
    put_u64(w, (uint64_t)peer->receive_ns);
}

static bool peer_get(struct reader *r, int32_t size, struct ask_peer *ret)
{
    ret->rank = (int32_t)get_u32(r);
    ret->awaits_ns = get_i64(r);
    ret->sent_bytes = get_u64(r);
    ret->received_bytes = get_u64(r);
    ret->send_ns = get_i64(r);
    ret->receive_ns = get_i64(r);
    return ret->rank >= 0 && ret->rank < size && ret->awaits_ns >= 0 && ret->send_ns >= 0 &&
           ret->receive_ns >= 0;
}

size_t ask_status_put(const struct ask_status *status, uint8_t *ret_bytes)
{
    struct writer w;
    writer_init(&w, ret_bytes, ASK_STATUS_MAX);
    put_u64(&w, STATUS_MAGIC);
    put_u32(&w, (uint32_t)status->rank);
    put_u32(&w, (uint32_t)status->size);
    put_u64(&w, status->epoch);
    put_text(&w, status->state);
    put_text(&w, status->cause);
    put_u64(&w, (uint64_t)status->busy_ns);
    put_u64(&w, status->steps);
    put_u64(&w, (uint64_t)status->step_ns);
    put_u64(&w, (uint64_t)status->since_ns);
    put_u32(&w, (uint32_t)status->in_flight);
    put_text(&w, status->op);
    put_text(&w, status->doing);
    put_u64(&w, (uint64_t)status->op_ns);
    put_text(&w, status->missing);
    put_u64(&w, (uint64_t)status->steps_ns);
    put_u64(&w, (uint64_t)status->alone_ns);
    put_u64(&w, status->op_bytes);
    put_u64(&w, (uint64_t)status->user_ns);
    put_u64(&w, (uint64_t)status->system_ns);
    put_text(&w, status->slow);
    put_u32(&w, (uint32_t)status->peer_count);
    for (int32_t i = 0; i < status->peer_count && i < ASK_PEERS_MAX; i++)
        peer_put(&w, &status->peers[i]);
    return w.bad ? 0 : w.used;
}

bool ask_status_get(const uint8_t *bytes, size_t n, struct ask_status *ret)
{
    struct reader r;
    reader_init(&r, bytes, n);
    uint64_t magic = get_u64(&r);
    ret->rank = (int32_t)get_u32(&r);
    ret->size = (int32_t)get_u32(&r);
    ret->epoch = get_u64(&r);
    text_get(&r, ret->state, sizeof ret->state);
    text_get(&r, ret->cause, sizeof ret->cause);
    ret->busy_ns = get_i64(&r);
    ret->steps = get_u64(&r);
    ret->step_ns = get_i64(&r);
    ret->since_ns = get_i64(&r);
    ret->in_flight = (int32_t)get_u32(&r);
    text_get(&r, ret->op, sizeof ret->op);
    text_get(&r, ret->doing, sizeof ret->doing);
    ret->op_ns = get_i64(&r);
    text_get(&r, ret->missing, sizeof ret->missing);
    ret->steps_ns = get_i64(&r);
    ret->alone_ns = get_i64(&r);
    ret->op_bytes = get_u64(&r);
    ret->user_ns = get_i64(&r);
    ret->system_ns = get_i64(&r);
    text_get(&r, ret->slow, sizeof ret->slow);
    ret->peer_count = (int32_t)get_u32(&r);
    bool is_bounded = ret->peer_count >= 0 && ret->peer_count <= ASK_PEERS_MAX;
    for (int32_t i = 0; is_bounded && i < ret->peer_count; i++)
        is_bounded = peer_get(&r, ret->size, &ret->peers[i]);
    return is_bounded && ret->steps_ns >= 0 && ret->alone_ns >= 0 && ret->user_ns >= 0 &&
           ret->system_ns >= 0 && reader_done(&r) && magic == STATUS_MAGIC && ret->rank >= 0 &&
           ret->size > ret->rank && ret->busy_ns >= 0 && ret->step_ns >= 0 && ret->since_ns >= 0 &&
           ret->op_ns >= 0;
}

size_t ask_end_put(const struct ask_end *end, uint8_t *ret_bytes)
{
    struct writer w;
    writer_init(&w, ret_bytes, ASK_END_MAX);
    put_u64(&w, END_MAGIC);
    put_u64(&w, end->epoch);
    put_u32(&w, (uint32_t)end->rank);
    put_text(&w, end->text);
    return w.bad ? 0 : w.used;
}

bool ask_end_get(const uint8_t *bytes, size_t n, struct ask_end *ret)
{
    struct reader r;
    reader_init(&r, bytes, n);
    uint64_t magic = get_u64(&r);
    ret->epoch = get_u64(&r);
    ret->rank = (int32_t)get_u32(&r);
    text_get(&r, ret->text, sizeof ret->text);
    return reader_done(&r) && magic == END_MAGIC && ret->rank >= 0;
}

/* ---- sockets ---- */

/* A socket for a path of the file system. */
static int path_socket(const struct os *os, const char *path, struct sockaddr_storage *ret,
                       unsigned *ret_bytes)
{
    *ret_bytes = socket_path_address(path, ret);
    return *ret_bytes == 0 ? -ENAMETOOLONG : os->socket(os->ctx, AF_UNIX, SOCK_STREAM);
}

static int keep_if(const struct os *os, int rc, int fd)
{
    if (rc == 0)
        return fd;
    os->close(os->ctx, fd);
    return rc;
}

int ask_listen(const struct os *os, const char *path)
{
    struct sockaddr_storage address;
    unsigned bytes = 0;
    int fd = path_socket(os, path, &address, &bytes);
    if (fd < 0)
        return fd;
    os->unlink(os->ctx, path);
    int rc = os->bind(os->ctx, fd, (const struct sockaddr *)&address, bytes);
    if (rc == 0)
        rc = os->listen(os->ctx, fd, BACKLOG);
    return keep_if(os, rc, fd);
}

int ask_connect(const struct os *os, const char *path)
{
    struct sockaddr_storage address;
    struct socket_peer peer;
    unsigned bytes = 0;
    int fd = path_socket(os, path, &address, &bytes);
    if (fd < 0)
        return fd;
    int rc = os->connect(os->ctx, fd, (const struct sockaddr *)&address, bytes);
    if (rc == 0)
        rc = socket_peer(os, fd, &peer);
    if (rc == 0 && peer.uid != os->user(os->ctx))
        rc = -EPERM;
    return keep_if(os, rc, fd);
}
