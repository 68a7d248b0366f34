/* SPDX-License-Identifier: Apache-2.0 */
/* probe.c - see probe.h. After the handshake the dialer sends one letter per question:
 *   P  answered by one byte: the round trip
 *   M  answered by four bytes: the largest packet the other side may send on this connection
 *   B  then bytes until it closes its side; answered by how many came: the rate
 * Every wait has a deadline. Thread: see probe.h.  Start reading at probe_dial(). */
#include "probe.h"

#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "base/sha256.h"
#include "base/socket.h"
#include "locality.h"
#include "wire/address.h"
#include "wire/handshake.h"

#define NS_PER_MS     1000000LL
#define NS_PER_S      1000000000LL
#define CONNECT_NS    (2 * NS_PER_S)
#define ANSWER_NS     (5 * NS_PER_S)
#define BURST_NS      (300 * NS_PER_MS)
#define BLOCK_BYTES   65536u
#define ROUND_TRIPS   16
#define WAIT_STEP_MS  100
#define LISTENERS_MAX ADDRESS_LIST_MAX
#define PROBE_EPOCH   0

struct probe_server {
    const struct os *os;
    int fds[LISTENERS_MAX];
    int count;
    uint8_t key[MESSAGE_KEY_BYTES];
    atomic_bool is_over;
    void *thread;
};

/* ---- waiting on one socket ---- */

static bool wait_fd(const struct os *os, int fd, short events, int64_t deadline_ns)
{
    for (;;) {
        int64_t left_ns = deadline_ns - os_now_ns(os);
        if (left_ns <= 0)
            return false;
        struct pollfd p = {.fd = fd, .events = events};
        int n = poll(&p, 1, (int)(left_ns / NS_PER_MS) + 1);
        if (n > 0)
            return true;
        if (n < 0 && errno != EINTR)
            return false;
    }
}

static bool prove(const struct os *os, int fd, bool is_dialer, const uint8_t *key,
                  int64_t deadline_ns)
{
    struct handshake h;
    struct error error;
    error_clear(&error);
    if (handshake_begin(&h, os, HANDSHAKE_AGENT, is_dialer, key, PROBE_EPOCH, is_dialer ? 0 : 1,
                        is_dialer ? 1 : 0, 0) != HVD_OK)
        return false;
    hvd_status_t status = handshake_step(&h, os, fd, &error);
    while (status == HVD_IN_PROGRESS &&
           wait_fd(os, fd, handshake_wants_write(&h) ? POLLOUT : POLLIN, deadline_ns))
        status = handshake_step(&h, os, fd, &error);
    handshake_end(&h);
    return status == HVD_OK;
}

static bool send_all(const struct os *os, int fd, const void *bytes, size_t n, int64_t deadline_ns)
{
    const uint8_t *at = bytes;
    while (n > 0) {
        struct iovec iov = {(void *)(uintptr_t)at, n};
        int64_t sent = os->send(os->ctx, fd, &iov, 1);
        if (sent == -EAGAIN) {
            if (!wait_fd(os, fd, POLLOUT, deadline_ns))
                return false;
            continue;
        }
        if (sent <= 0)
            return false;
        at += sent;
        n -= (size_t)sent;
    }
    return true;
}

/* At least one byte; 0: closed; negative: failed or too late. */
static int64_t recv_some(const struct os *os, int fd, void *ret_bytes, size_t n,
                         int64_t deadline_ns)
{
    for (;;) {
        int64_t got = os->recv(os->ctx, fd, ret_bytes, n);
        if (got != -EAGAIN)
            return got;
        if (!wait_fd(os, fd, POLLIN, deadline_ns))
            return -ETIMEDOUT;
    }
}

/* ---- the side that listens ---- */

static void serve_burst(const struct os *os, int fd)
{
    uint8_t block[BLOCK_BYTES], answer[8];
    uint64_t total = 0;
    int64_t got = 1;
    while (got > 0) {
        got = recv_some(os, fd, block, sizeof block, os_now_ns(os) + ANSWER_NS);
        total += got > 0 ? (uint64_t)got : 0;
    }
    struct writer w;
    writer_init(&w, answer, sizeof answer);
    put_u64(&w, total);
    send_all(os, fd, answer, sizeof answer, os_now_ns(os) + ANSWER_NS);
}

static bool serve_mtu(const struct os *os, int fd)
{
    uint8_t answer[4];
    struct writer w;
    writer_init(&w, answer, sizeof answer);
    put_u32(&w, socket_path_mtu(os, fd));
    return send_all(os, fd, answer, sizeof answer, os_now_ns(os) + ANSWER_NS);
}

static void serve_one(struct probe_server *p, int fd)
{
    const struct os *os = p->os;
    char letter = 0;
    if (!prove(os, fd, false, p->key, os_now_ns(os) + ANSWER_NS))
        return;
    while (recv_some(os, fd, &letter, 1, os_now_ns(os) + ANSWER_NS) == 1) {
        if (letter == 'B') {
            serve_burst(os, fd);
            return;
        }
        if (letter == 'M' && serve_mtu(os, fd))
            continue;
        if (letter != 'P' || !send_all(os, fd, "P", 1, os_now_ns(os) + ANSWER_NS))
            return;
    }
}

static void *serve_loop(void *arg)
{
    struct probe_server *p = arg;
    while (!atomic_load(&p->is_over)) {
        struct pollfd polls[LISTENERS_MAX];
        for (int i = 0; i < p->count; i++)
            polls[i] = (struct pollfd){.fd = p->fds[i], .events = POLLIN};
        if (poll(polls, (nfds_t)p->count, WAIT_STEP_MS) <= 0)
            continue;
        for (int i = 0; i < p->count; i++) {
            int fd = polls[i].revents == 0 ? -1 : p->os->accept(p->os->ctx, p->fds[i], NULL, NULL);
            if (fd < 0)
                continue;
            serve_one(p, fd);
            p->os->close(p->os->ctx, fd);
        }
    }
    return NULL;
}

static int listen_on(const struct os *os, const char *host, char *ret_text, size_t bytes)
{
    struct address address;
    int count = 0;
    char text[ADDRESS_TEXT_MAX];
    snprintf(text, sizeof text, strchr(host, ':') == NULL ? "%s:0" : "[%s]:0", host);
    if (address_list_parse(os_host(), text, &address, 1, &count, NULL) != HVD_OK || count != 1)
        return -EINVAL;
    int fd = os->socket(os->ctx, address.sockaddr.ss_family, SOCK_STREAM);
    if (fd < 0)
        return fd;
    int rc = os->bind(os->ctx, fd, (struct sockaddr *)&address.sockaddr, address.bytes);
    if (rc >= 0)
        rc = os->listen(os->ctx, fd, 16);
    address.bytes = sizeof address.sockaddr;
    if (rc >= 0)
        rc = os->getsockname(os->ctx, fd, (struct sockaddr *)&address.sockaddr, &address.bytes);
    if (rc < 0) {
        os->close(os->ctx, fd);
        return rc;
    }
    address_format(&address, ret_text, bytes);
    return fd;
}

/* Loopback only where there is nothing else: it reaches nobody. */
static void own_addresses(struct mem *m, struct list *ret)
{
    struct locality here;
    if (locality_load(m, &here, NULL) == HVD_OK)
        locality_all(&here, m, ret);
    if (ret->count == 0)
        locality_add_once(m, ret, "127.0.0.1");
}

void probe_serve(struct mem *m, struct link *l, struct reader *request, struct probe_server **ret)
{
    struct list hosts = {0};
    char *all = mem_copy(m, "");
    if (*ret == NULL) {
        struct probe_server *p = mem_alloc(m, sizeof *p);
        p->os = l->os;
        get_bytes(request, p->key, sizeof p->key);
        own_addresses(m, &hosts);
        for (size_t i = 0; i < hosts.count && p->count < LISTENERS_MAX; i++) {
            char text[ADDRESS_TEXT_MAX];
            int fd = listen_on(p->os, hosts.items[i], text, sizeof text);
            if (fd < 0)
                continue;
            p->fds[p->count++] = fd;
            all = mem_format(m, "%s%s%s", all, all[0] == '\0' ? "" : ",", text);
        }
        *ret = p;
        if (p->os->thread_start(p->os->ctx, serve_loop, p, "probe", &p->thread) != 0)
            p->thread = NULL;
    }
    message_begin(l, MESSAGE_SERVING);
    message_text(l, all);
    message_end(l);
}

void probe_destroy(struct probe_server *p)
{
    if (p == NULL)
        return;
    atomic_store(&p->is_over, true);
    if (p->thread != NULL)
        p->os->thread_join(p->os->ctx, p->thread);
    for (int i = 0; i < p->count; i++)
        p->os->close(p->os->ctx, p->fds[i]);
    bytes_wipe(p->key, sizeof p->key);
    p->count = 0;
}

/* ---- the side that dials ---- */

/* A connected and proven socket, or negative. */
static int dial_one(const struct os *os, const struct address *address, const uint8_t *key)
{
    int64_t deadline_ns = os_now_ns(os) + CONNECT_NS;
    int fd = os->socket(os->ctx, address->sockaddr.ss_family, SOCK_STREAM);
    if (fd < 0)
        return fd;
    int rc = os->connect(os->ctx, fd, (const struct sockaddr *)&address->sockaddr, address->bytes);
    bool is_up = rc == 0 || (rc == -EINPROGRESS && wait_fd(os, fd, POLLOUT, deadline_ns));
    int cause = 0;
    unsigned bytes = sizeof cause;
    if (is_up && os->sockopt_get(os->ctx, fd, SOL_SOCKET, SO_ERROR, &cause, &bytes) >= 0 &&
        cause == 0 && prove(os, fd, true, key, deadline_ns))
        return fd;
    os->close(os->ctx, fd);
    return -ENOTCONN;
}

static double measure_round_trip_us(const struct os *os, int fd)
{
    double best_us = 0;
    for (int i = 0; i < ROUND_TRIPS; i++) {
        char byte = 0;
        int64_t start_ns = os_now_ns(os);
        if (!send_all(os, fd, "P", 1, start_ns + ANSWER_NS) ||
            recv_some(os, fd, &byte, 1, start_ns + ANSWER_NS) != 1)
            return 0;
        double us = (double)(os_now_ns(os) - start_ns) / 1000.0;
        best_us = i == 0 || us < best_us ? us : best_us;
    }
    return best_us;
}

static bool recv_all(const struct os *os, int fd, uint8_t *ret_bytes, size_t n)
{
    for (size_t got = 0; got < n;) {
        int64_t more = recv_some(os, fd, ret_bytes + got, n - got, os_now_ns(os) + ANSWER_NS);
        if (more <= 0)
            return false;
        got += (size_t)more;
    }
    return true;
}

static uint32_t ask_mtu(const struct os *os, int fd)
{
    uint8_t answer[4];
    struct reader r;
    if (!send_all(os, fd, "M", 1, os_now_ns(os) + ANSWER_NS) ||
        !recv_all(os, fd, answer, sizeof answer))
        return 0;
    reader_init(&r, answer, sizeof answer);
    return get_u32(&r);
}

static double measure_rate(const struct os *os, int fd)
{
    static const uint8_t block[BLOCK_BYTES];
    uint8_t answer[8];
    int64_t start_ns = os_now_ns(os);
    if (!send_all(os, fd, "B", 1, start_ns + ANSWER_NS))
        return 0;
    while (os_now_ns(os) < start_ns + BURST_NS)
        if (!send_all(os, fd, block, sizeof block, start_ns + ANSWER_NS))
            return 0;
    shutdown(fd, SHUT_WR);
    if (!recv_all(os, fd, answer, sizeof answer))
        return 0;
    double seconds = (double)(os_now_ns(os) - start_ns) / (double)NS_PER_S;
    struct reader r;
    reader_init(&r, answer, sizeof answer);
    return (double)get_u64(&r) / seconds;
}

void probe_dial(struct mem *m, struct link *l, struct reader *request)
{
    const struct os *os = l->os;
    uint8_t key[MESSAGE_KEY_BYTES];
    get_bytes(request, key, sizeof key);
    char *all = message_get_text(m, request);
    struct address addresses[ADDRESS_LIST_MAX];
    char *good = mem_copy(m, ""), *bad = mem_copy(m, "");
    double round_trip_us = 0, rate = 0;
    uint32_t mtu_here = 0, mtu_there = 0;
    int count = 0;
    if (address_list_parse(os_host(), all, addresses, ADDRESS_LIST_MAX, &count, NULL) != HVD_OK)
        count = 0;
    for (int i = 0; i < count; i++) {
        char text[ADDRESS_TEXT_MAX];
        address_format(&addresses[i], text, sizeof text);
        int fd = dial_one(os, &addresses[i], key);
        char **which = fd < 0 ? &bad : &good;
        *which = mem_format(m, "%s%s%s", *which, (*which)[0] == '\0' ? "" : ",", text);
        if (fd < 0)
            continue;
        if (rate == 0) {
            round_trip_us = measure_round_trip_us(os, fd);
            mtu_here = socket_path_mtu(os, fd);
            mtu_there = ask_mtu(os, fd);
            rate = measure_rate(os, fd);
        }
        os->close(os->ctx, fd);
    }
    bytes_wipe(key, sizeof key);
    message_begin(l, MESSAGE_MEASURED);
    message_text(l, good);
    message_text(l, bad);
    message_f64(l, round_trip_us);
    message_f64(l, rate);
    message_u32(l, mtu_here);
    message_u32(l, mtu_there);
    message_end(l);
}
