/* SPDX-License-Identifier: Apache-2.0 */
/* sim_os.c - the os table that simulated ranks see: virtual clocks and seeded random bytes.
 *
 * Every call gets the net as its context, so those that stay real are forwarded with the context of
 * the underlying table; a test may therefore put a failing table below the net.
 *
 * Thread: one.  Owner: struct sim_net.  Start reading at sim_os_init(). */
#include "transport/sim/sim_internal.h"

static const struct os *under(void *ctx)
{
    return ((struct sim_net *)ctx)->os;
}

static int64_t sim_now_ns(void *ctx)
{
    return ((struct sim_net *)ctx)->now_ns;
}

static int64_t sim_wall_us(void *ctx)
{
    return ((struct sim_net *)ctx)->now_ns / 1000;
}

static int sim_random(void *ctx, void *ret_bytes, size_t n)
{
    uint8_t *bytes = ret_bytes;

    for (size_t i = 0; i < n; i++)
        bytes[i] = (uint8_t)(sim_net_random(ctx) >> 32);
    return 0;
}

static void *sim_alloc(void *ctx, size_t bytes)
{
    return under(ctx)->alloc(under(ctx)->ctx, bytes);
}

static void *sim_resize(void *ctx, void *ptr, size_t bytes)
{
    return under(ctx)->resize(under(ctx)->ctx, ptr, bytes);
}

static void sim_free(void *ctx, void *ptr)
{
    under(ctx)->free(under(ctx)->ctx, ptr);
}

static int sim_socket(void *ctx, int domain, int type)
{
    return under(ctx)->socket(under(ctx)->ctx, domain, type);
}

static int sim_bind(void *ctx, int fd, const struct sockaddr *addr, unsigned len)
{
    return under(ctx)->bind(under(ctx)->ctx, fd, addr, len);
}

static int sim_listen(void *ctx, int fd, int backlog)
{
    return under(ctx)->listen(under(ctx)->ctx, fd, backlog);
}

static int sim_accept(void *ctx, int fd, struct sockaddr *ret_addr, unsigned *len)
{
    return under(ctx)->accept(under(ctx)->ctx, fd, ret_addr, len);
}

static int sim_connect(void *ctx, int fd, const struct sockaddr *addr, unsigned len)
{
    return under(ctx)->connect(under(ctx)->ctx, fd, addr, len);
}

static int sim_getsockname(void *ctx, int fd, struct sockaddr *ret_addr, unsigned *len)
{
    return under(ctx)->getsockname(under(ctx)->ctx, fd, ret_addr, len);
}

static int sim_sockopt_get(void *ctx, int fd, int level, int name, void *ret_value, unsigned *len)
{
    return under(ctx)->sockopt_get(under(ctx)->ctx, fd, level, name, ret_value, len);
}

static int sim_sockopt_set(void *ctx, int fd, int level, int name, const void *value, unsigned len)
{
    return under(ctx)->sockopt_set(under(ctx)->ctx, fd, level, name, value, len);
}

static int64_t sim_send(void *ctx, int fd, const struct iovec *iov, int count)
{
    return under(ctx)->send(under(ctx)->ctx, fd, iov, count);
}

static int64_t sim_recv(void *ctx, int fd, void *ret_bytes, size_t n)
{
    return under(ctx)->recv(under(ctx)->ctx, fd, ret_bytes, n);
}

static int64_t sim_sendmsg(void *ctx, int fd, const struct msghdr *msg)
{
    return under(ctx)->sendmsg(under(ctx)->ctx, fd, msg);
}

static int64_t sim_recvmsg(void *ctx, int fd, struct msghdr *msg)
{
    return under(ctx)->recvmsg(under(ctx)->ctx, fd, msg);
}

static int sim_close(void *ctx, int fd)
{
    return under(ctx)->close(under(ctx)->ctx, fd);
}

static int sim_open(void *ctx, const char *path, int flags, unsigned mode)
{
    return under(ctx)->open(under(ctx)->ctx, path, flags, mode);
}

static int64_t sim_read(void *ctx, int fd, void *ret_bytes, size_t n)
{
    return under(ctx)->read(under(ctx)->ctx, fd, ret_bytes, n);
}

static int64_t sim_write(void *ctx, int fd, const void *bytes, size_t n)
{
    return under(ctx)->write(under(ctx)->ctx, fd, bytes, n);
}

static int64_t sim_pwrite(void *ctx, int fd, const void *bytes, size_t n, int64_t offset)
{
    return under(ctx)->pwrite(under(ctx)->ctx, fd, bytes, n, offset);
}

static int sim_poll_create(void *ctx)
{
    return under(ctx)->poll_create(under(ctx)->ctx);
}

static int sim_poll_add(void *ctx, int poll_fd, int fd, void *tag, bool want_write)
{
    return under(ctx)->poll_add(under(ctx)->ctx, poll_fd, fd, tag, want_write);
}

static int sim_poll_change(void *ctx, int poll_fd, int fd, void *tag, bool want_write)
{
    return under(ctx)->poll_change(under(ctx)->ctx, poll_fd, fd, tag, want_write);
}

static int sim_poll_remove(void *ctx, int poll_fd, int fd)
{
    return under(ctx)->poll_remove(under(ctx)->ctx, poll_fd, fd);
}

static int sim_poll_wait(void *ctx, int poll_fd, struct os_event *ret_events, int max,
                         int64_t timeout_ns)
{
    return under(ctx)->poll_wait(under(ctx)->ctx, poll_fd, ret_events, max, timeout_ns);
}

static int sim_bell_create(void *ctx)
{
    return under(ctx)->bell_create(under(ctx)->ctx);
}

static int sim_bell_ring(void *ctx, int bell_fd)
{
    return under(ctx)->bell_ring(under(ctx)->ctx, bell_fd);
}

static int sim_bell_clear(void *ctx, int bell_fd)
{
    return under(ctx)->bell_clear(under(ctx)->ctx, bell_fd);
}

static int sim_create(void *ctx, const char *path, unsigned mode)
{
    return under(ctx)->create(under(ctx)->ctx, path, mode);
}

static int sim_memfd_check(void *ctx, int fd, uint64_t bytes)
{
    return under(ctx)->memfd_check(under(ctx)->ctx, fd, bytes);
}

static int sim_memfd(void *ctx, const char *name, uint64_t bytes)
{
    return under(ctx)->memfd(under(ctx)->ctx, name, bytes);
}

static void *sim_map(void *ctx, int fd, uint64_t bytes, int32_t color)
{
    return under(ctx)->map(under(ctx)->ctx, fd, bytes, color);
}

static int sim_unmap(void *ctx, void *ptr, uint64_t bytes)
{
    return under(ctx)->unmap(under(ctx)->ctx, ptr, bytes);
}

static int sim_discard(void *ctx, int fd, uint64_t offset, uint64_t bytes)
{
    return under(ctx)->discard(under(ctx)->ctx, fd, offset, bytes);
}

static int sim_share(void *ctx, void *at, uint64_t bytes, int fd, uint64_t offset)
{
    return under(ctx)->share(under(ctx)->ctx, at, bytes, fd, offset);
}

static int sim_unshare(void *ctx, void *at, uint64_t bytes)
{
    return under(ctx)->unshare(under(ctx)->ctx, at, bytes);
}

static int sim_detach(void *ctx, void *at, uint64_t bytes, int fd, uint64_t offset)
{
    return under(ctx)->detach(under(ctx)->ctx, at, bytes, fd, offset);
}

static int64_t sim_peer_read(void *ctx, int32_t pid, const struct iovec *local, int nlocal,
                             const struct iovec *remote, int nremote)
{
    return under(ctx)->peer_read(under(ctx)->ctx, pid, local, nlocal, remote, nremote);
}

static int32_t sim_pid(void *ctx)
{
    return under(ctx)->pid(under(ctx)->ctx);
}

static int sim_cpu_count(void *ctx)
{
    return under(ctx)->cpu_count(under(ctx)->ctx);
}

static int sim_thread_start(void *ctx, void *(*fn)(void *), void *arg, const char *name,
                            void **ret_thread)
{
    return under(ctx)->thread_start(under(ctx)->ctx, fn, arg, name, ret_thread);
}

static int sim_thread_pin(void *ctx, int core)
{
    return under(ctx)->thread_pin(under(ctx)->ctx, core);
}

static int sim_thread_join(void *ctx, void *thread)
{
    return under(ctx)->thread_join(under(ctx)->ctx, thread);
}

static int sim_thread_detach(void *ctx, void *thread)
{
    return under(ctx)->thread_detach(under(ctx)->ctx, thread);
}

static void sim_yield(void *ctx)
{
    under(ctx)->yield(under(ctx)->ctx);
}

static void sim_sleep_ns(void *ctx, int64_t ns)
{
    under(ctx)->sleep_ns(under(ctx)->ctx, ns);
}

static int sim_futex_wait(void *ctx, const uint32_t *word, uint32_t expected, int64_t timeout_ns)
{
    return under(ctx)->futex_wait(under(ctx)->ctx, word, expected, timeout_ns);
}

static int sim_futex_wake(void *ctx, const uint32_t *word, int count)
{
    return under(ctx)->futex_wake(under(ctx)->ctx, word, count);
}

static int sim_resolve(void *ctx, const char *host, const char *port,
                       void (*fn)(void *arg, const struct sockaddr *addr, unsigned len), void *arg)
{
    return under(ctx)->resolve(under(ctx)->ctx, host, port, fn, arg);
}

static int sim_interfaces(void *ctx,
                          void (*fn)(void *arg, const char *name, const struct sockaddr *addr,
                                     bool is_loopback),
                          void *arg)
{
    return under(ctx)->interfaces(under(ctx)->ctx, fn, arg);
}

static int sim_stat(void *ctx, const char *path, struct os_file *ret)
{
    return under(ctx)->stat(under(ctx)->ctx, path, ret);
}

static int sim_fstat(void *ctx, int fd, struct os_file *ret)
{
    return under(ctx)->fstat(under(ctx)->ctx, fd, ret);
}

static int sim_mkdir(void *ctx, const char *path, unsigned mode)
{
    return under(ctx)->mkdir(under(ctx)->ctx, path, mode);
}

static int sim_rename(void *ctx, const char *from, const char *to)
{
    return under(ctx)->rename(under(ctx)->ctx, from, to);
}

static int sim_unlink(void *ctx, const char *path)
{
    return under(ctx)->unlink(under(ctx)->ctx, path);
}

static uint32_t sim_user(void *ctx)
{
    return under(ctx)->user(under(ctx)->ctx);
}

static size_t sim_page_bytes(void *ctx)
{
    return under(ctx)->page_bytes(under(ctx)->ctx);
}

static void *sim_library_open(void *ctx, const char *name, unsigned flags, char *ret_why,
                              size_t bytes)
{
    return under(ctx)->library_open(under(ctx)->ctx, name, flags, ret_why, bytes);
}

static void *sim_library_symbol(void *ctx, void *library, const char *name)
{
    return under(ctx)->library_symbol(under(ctx)->ctx, library, name);
}

static void sim_library_close(void *ctx, void *library)
{
    under(ctx)->library_close(under(ctx)->ctx, library);
}

static const char *sim_env(void *ctx, const char *name)
{
    return under(ctx)->env(under(ctx)->ctx, name);
}

static void sim_env_each(void *ctx, void (*fn)(void *arg, const char *name, const char *value),
                         void *arg)
{
    under(ctx)->env_each(under(ctx)->ctx, fn, arg);
}

static void sim_env_wipe(void *ctx, const char *name)
{
    under(ctx)->env_wipe(under(ctx)->ctx, name);
}

void sim_os_init(struct sim_net *net)
{
    struct os *table = &net->table;

    *table = *net->os;
    table->ctx = net;
    table->now_ns = sim_now_ns;
    table->wall_us = sim_wall_us;
    table->random = sim_random;
    table->alloc = sim_alloc;
    table->resize = sim_resize;
    table->free = sim_free;
    table->socket = sim_socket;
    table->bind = sim_bind;
    table->listen = sim_listen;
    table->accept = sim_accept;
    table->connect = sim_connect;
    table->getsockname = sim_getsockname;
    table->sockopt_get = sim_sockopt_get;
    table->sockopt_set = sim_sockopt_set;
    table->send = sim_send;
    table->recv = sim_recv;
    table->sendmsg = sim_sendmsg;
    table->recvmsg = sim_recvmsg;
    table->close = sim_close;
    table->resolve = sim_resolve;
    table->interfaces = sim_interfaces;
    table->open = sim_open;
    table->create = sim_create;
    table->read = sim_read;
    table->write = sim_write;
    table->pwrite = sim_pwrite;
    table->stat = sim_stat;
    table->fstat = sim_fstat;
    table->mkdir = sim_mkdir;
    table->rename = sim_rename;
    table->unlink = sim_unlink;
    table->poll_create = sim_poll_create;
    table->poll_add = sim_poll_add;
    table->poll_change = sim_poll_change;
    table->poll_remove = sim_poll_remove;
    table->poll_wait = sim_poll_wait;
    table->bell_create = sim_bell_create;
    table->bell_ring = sim_bell_ring;
    table->bell_clear = sim_bell_clear;
    table->memfd = sim_memfd;
    table->memfd_check = sim_memfd_check;
    table->map = sim_map;
    table->unmap = sim_unmap;
    table->discard = sim_discard;
    table->share = sim_share;
    table->unshare = sim_unshare;
    table->detach = sim_detach;
    table->peer_read = sim_peer_read;
    table->pid = sim_pid;
    table->user = sim_user;
    table->page_bytes = sim_page_bytes;
    table->cpu_count = sim_cpu_count;
    table->thread_start = sim_thread_start;
    table->thread_join = sim_thread_join;
    table->thread_detach = sim_thread_detach;
    table->thread_pin = sim_thread_pin;
    table->yield = sim_yield;
    table->sleep_ns = sim_sleep_ns;
    table->futex_wait = sim_futex_wait;
    table->futex_wake = sim_futex_wake;
    table->library_open = sim_library_open;
    table->library_symbol = sim_library_symbol;
    table->library_close = sim_library_close;
    table->env = sim_env;
    table->env_each = sim_env_each;
    table->env_wipe = sim_env_wipe;
}

const struct os *sim_net_os(struct sim_net *net)
{
    return &net->table;
}
