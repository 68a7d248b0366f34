/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_tcp_frame.c - a rogue peer on the three connections of a TCP link.
 *
 * The input is a script: raw bytes for a connection, frames with right checksums and any fields,
 * receives and sends posted, cancelled and forgotten meanwhile, short reads, closed connections.
 * Nothing may crash, leak, hang or be reported twice, whatever arrives.
 *
 * The os table below has no sockets: a descriptor is the number of a queue of bytes. Start reading
 * at LLVMFuzzerTestOneInput(). */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "base/crc32c.h"
#include "transport/tcp/tcp_internal.h"

#define CONNS     3 /* control and two bulk flows */
#define QUEUE     (1u << 14)
#define REQS      24
#define REQ_BYTES 600u
#define EPOCH     5u

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

struct queue {
    uint8_t bytes[QUEUE];
    size_t begin, end;
    bool is_closed;
};

struct world {
    struct os os;
    struct queue queues[CONNS];
    void *tags[CONNS];
    size_t read_max, write_max; /* per call */
    struct tcp *tcp;
    struct transport_req reqs[REQS];
    uint8_t memory[REQS][REQ_BYTES];
    uint64_t sequence;
    int downs;
};

struct script {
    const uint8_t *bytes;
    size_t n, at;
};

static uint8_t next(struct script *s)
{
    return s->at < s->n ? s->bytes[s->at++] : 0;
}

static uint32_t next_word(struct script *s)
{
    const uint32_t low = next(s);

    return low | (uint32_t)next(s) << 8;
}

/* --- the world's os --- */

static int64_t queue_recv(struct world *w, int fd, void *ret_bytes, size_t n)
{
    struct queue *q = &w->queues[fd];
    size_t take = q->end - q->begin;

    if (take == 0)
        return q->is_closed ? 0 : -EAGAIN;
    if (take > n)
        take = n;
    if (take > w->read_max)
        take = w->read_max;
    memcpy(ret_bytes, q->bytes + q->begin, take);
    q->begin += take;
    return (int64_t)take;
}

static int64_t fake_recv(void *ctx, int fd, void *ret_bytes, size_t n)
{
    return queue_recv(ctx, fd, ret_bytes, n);
}

static int64_t fake_recvmsg(void *ctx, int fd, struct msghdr *msg)
{
    int64_t total = 0;

    for (size_t i = 0; i < (size_t)msg->msg_iovlen; i++) {
        const struct iovec *iov = &msg->msg_iov[i];
        const int64_t got = queue_recv(ctx, fd, iov->iov_base, iov->iov_len);

        if (got <= 0)
            return total > 0 ? total : got;
        total += got;
        if ((size_t)got < iov->iov_len)
            break;
    }
    return total;
}

static int64_t fake_send(void *ctx, int fd, const struct iovec *iov, int count)
{
    struct world *w = ctx;
    size_t n = 0;
    volatile uint8_t sum = 0; /* touches every byte, so that a bad pointer shows */

    (void)fd;
    for (int i = 0; i < count; i++) {
        for (size_t b = 0; b < iov[i].iov_len && n < w->write_max; b++, n++)
            sum = (uint8_t)(sum + ((const uint8_t *)iov[i].iov_base)[b]);
    }
    return n > 0 ? (int64_t)n : -EAGAIN;
}

static int fake_poll_add(void *ctx, int poll_fd, int fd, void *tag, bool want_write)
{
    struct world *w = ctx;

    (void)poll_fd;
    (void)want_write;
    w->tags[fd] = tag;
    return 0;
}

static int fake_poll_remove(void *ctx, int poll_fd, int fd)
{
    struct world *w = ctx;

    (void)poll_fd;
    if (fd >= 0 && fd < CONNS)
        w->tags[fd] = NULL;
    return 0;
}

static int fake_poll_wait(void *ctx, int poll_fd, struct os_event *ret_events, int max,
                          int64_t timeout_ns)
{
    struct world *w = ctx;
    int count = 0;

    (void)poll_fd;
    (void)timeout_ns;
    for (int fd = 0; fd < CONNS && count < max; fd++) {
        const struct queue *q = &w->queues[fd];

        if (w->tags[fd] == NULL)
            continue;
        ret_events[count++] = (struct os_event){.tag = w->tags[fd],
                                                .readable = q->end > q->begin,
                                                .writable = 1,
                                                .closed = q->is_closed};
    }
    return count;
}

static int fake_close(void *ctx, int fd)
{
    (void)ctx;
    (void)fd;
    return 0;
}

/* --- what the script can do --- */

static void queue_add(struct queue *q, const void *bytes, size_t n)
{
    if (q->begin == q->end)
        q->begin = q->end = 0;
    if (n > QUEUE - q->end)
        n = QUEUE - q->end;
    memcpy(q->bytes + q->end, bytes, n);
    q->end += n;
}

static void feed_raw(struct world *w, struct script *s)
{
    struct queue *q = &w->queues[next(s) % CONNS];
    size_t n = next(s);

    if (n > s->n - s->at)
        n = s->n - s->at;
    queue_add(q, s->bytes + s->at, n);
    s->at += n;
}

static void feed_control(struct world *w, struct script *s)
{
    uint8_t head[TCP_CONTROL_HEAD], payload[256];
    const uint8_t kind = next(s);
    struct tcp_control_frame frame = {.epoch = EPOCH, .sequence = w->sequence++};

    frame.type = (enum tcp_control_type)(kind % 5);
    frame.length = next(s);
    if ((kind & 0x80) != 0)
        frame.sequence += next(s);
    memset(payload, kind, sizeof payload);
    tcp_control_encode(&frame, payload, head);
    queue_add(&w->queues[0], head, sizeof head);
    queue_add(&w->queues[0], payload, frame.length);
}

static void feed_bulk(struct world *w, struct script *s)
{
    static uint8_t payload[1024];
    uint8_t head[TCP_BULK_HEAD];
    const uint8_t kind = next(s);
    struct tcp_bulk_frame frame = {.epoch = EPOCH};

    frame.type = (enum tcp_bulk_type)(kind % 4);
    frame.stream = next(s) % 8;
    frame.length = next_word(s) % sizeof payload;
    frame.left = frame.length + ((kind & 0x40) != 0 ? next_word(s) : 0);
    memset(payload, kind, sizeof payload);
    frame.crc = crc32c(0, payload, frame.length) + ((kind & 0x80) != 0 ? 1 : 0);
    tcp_bulk_encode(&frame, head);
    queue_add(&w->queues[1 + frame.stream % 2], head, sizeof head);
    queue_add(&w->queues[1 + frame.stream % 2], payload, frame.length);
}

static void post(struct world *w, struct script *s, bool is_send)
{
    struct transport *t = tcp_transport(w->tcp);
    const size_t i = next(s) % REQS;
    const uint64_t stream = next(s) % 8;
    const size_t n = next_word(s) % (REQ_BYTES + 1);

    if (w->reqs[i].status == HVD_IN_PROGRESS)
        return;
    if (is_send)
        t->ops->bulk_send(t, 0, stream, w->memory[i], n, &w->reqs[i]);
    else
        t->ops->bulk_recv(t, 0, stream, w->memory[i], n, &w->reqs[i]);
}

/* Streams of small numbers are of life 0. */
static void forget(struct transport *t, struct script *s)
{
    const uint64_t first = next(s) % 8;

    if (next(s) % 2 == 0)
        t->ops->bulk_open(t, 1, first);
    else
        t->ops->bulk_close(t, first);
}

static void step(struct world *w, struct script *s, int64_t *now_ns)
{
    struct transport *t = tcp_transport(w->tcp);
    const uint8_t what = next(s);

    switch (what % 11) {
    case 0: feed_raw(w, s); break;
    case 1: feed_control(w, s); break;
    case 2:
    case 3: feed_bulk(w, s); break;
    case 4: post(w, s, true); break;
    case 5:
    case 6: post(w, s, false); break;
    case 7: t->ops->bulk_cancel(t, &w->reqs[next(s) % REQS]); break;
    case 8:
        w->read_max = 1 + next_word(s);
        w->write_max = next(s);
        break;
    case 9:
        if (what >= 128)
            forget(t, s);
        else
            t->ops->message_send(t, 0, w->memory[0], next(s));
        break;
    case 10:
        if (what >= 200)
            w->queues[next(s) % CONNS].is_closed = true;
        t->ops->sleep_begin(t);
        break;
    }
    *now_ns += 10000000;
    t->ops->progress(t, *now_ns);
}

static void on_message(void *ctx, int32_t peer, const void *bytes, size_t n)
{
    struct world *w = ctx;
    volatile uint8_t sum = 0;

    (void)peer;
    for (size_t i = 0; i < n; i++)
        sum = (uint8_t)(sum + ((const uint8_t *)bytes)[i]);
    if (w->downs > 0)
        abort();
}

static void on_down(void *ctx, int32_t peer, hvd_status_t status, const char *why)
{
    struct world *w = ctx;

    (void)peer;
    if (++w->downs > 1 || status >= 0 || why[0] == '\0')
        abort();
}

static bool world_open(struct world *w)
{
    struct tcp_peer *peer = NULL;

    w->os = *os_host();
    w->os.ctx = w;
    w->os.recv = fake_recv;
    w->os.recvmsg = fake_recvmsg;
    w->os.send = fake_send;
    w->os.poll_add = fake_poll_add;
    w->os.poll_change = fake_poll_add;
    w->os.poll_remove = fake_poll_remove;
    w->os.poll_wait = fake_poll_wait;
    w->os.close = fake_close;
    w->read_max = w->write_max = 1000;
    w->sequence = 1;
    static const struct config defaults;
    w->tcp = tcp_new(&w->os, 1, 2);
    if (w->tcp != NULL)
        w->tcp->config = &defaults;
    if (w->tcp == NULL)
        return false;
    w->tcp->epoch = EPOCH;
    w->tcp->base.events =
        (struct transport_events){.ctx = w, .message = on_message, .peer_down = on_down};
    w->tcp->peers = os_alloc(&w->os, sizeof *w->tcp->peers);
    if (w->tcp->peers == NULL || tcp_peer_new(w->tcp, 0, &peer) != HVD_OK)
        return false;
    w->tcp->peers[0] = peer;
    w->tcp->peer_count = 1;
    peer->control.conn.fd = 0;
    tcp_conn_poll(&peer->control.conn, false);
    for (int i = 0; i < 2; i++) {
        peer->flows[i].conn.fd = 1 + i;
        tcp_conn_poll(&peer->flows[i].conn, false);
    }
    return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    struct world *w = calloc(1, sizeof *w);
    struct script s = {bytes, n, 0};
    int64_t now_ns = 0;

    if (w == NULL)
        return 0;
    if (world_open(w)) {
        while (s.at < s.n)
            step(w, &s, &now_ns);
        for (int i = 0; i < REQS; i++)
            tcp_transport(w->tcp)->ops->bulk_cancel(tcp_transport(w->tcp), &w->reqs[i]);
        if (w->tcp->posted_count != 0)
            abort();
    }
    if (w->tcp != NULL)
        tcp_transport(w->tcp)->ops->destroy(tcp_transport(w->tcp));
    free(w);
    return 0;
}
