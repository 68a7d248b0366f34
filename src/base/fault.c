/* SPDX-License-Identifier: Apache-2.0 */
/* fault.c - an `os` table that forwards every call, and fails the k-th one that may fail.
 *
 * Thread: any.  Owner: the test that created it.  Blocks: where the inner table does. Invariant: a
 * call that is made to fail does not reach the inner table; it returns the errno that is most
 * likely for it in practice. Start reading at fault_hit(); the rest is one forwarding function for
 * each row of struct os. */
#include "base/fault.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>

struct fault_os {
    struct os table;
    const struct os *inner;
    uint64_t fail_at;
    bool is_lasting;
    atomic_uint_fast64_t calls, failures;
};

/* Counts a fallible call; true: fail it. */
static bool fault_hit(struct fault_os *fault)
{
    uint64_t number = atomic_fetch_add(&fault->calls, 1) + 1;
    bool is_hit = fault->fail_at != 0 &&
                  (number == fault->fail_at || (fault->is_lasting && number > fault->fail_at));
    if (is_hit)
        atomic_fetch_add(&fault->failures, 1);
    return is_hit;
}

static int64_t fault_now_ns(void *ctx)
{
    struct fault_os *fault = ctx;
    return fault->inner->now_ns(fault->inner->ctx);
}

static int64_t fault_wall_us(void *ctx)
{
    struct fault_os *fault = ctx;
    return fault->inner->wall_us(fault->inner->ctx);
}

static int fault_random(void *ctx, void *ret_bytes, size_t n)
{
    struct fault_os *fault = ctx;
    if (fault_hit(fault))
        return -EIO;
    return fault->inner->random(fault->inner->ctx, ret_bytes, n);
}

static void *fault_alloc(void *ctx, size_t bytes)
{
    struct fault_os *fault = ctx;
    if (fault_hit(fault))
        return NULL;
    return fault->inner->alloc(fault->inner->ctx, bytes);
}

static void *fault_resize(void *ctx, void *ptr, size_t bytes)
{
    struct fault_os *fault = ctx;
    if (fault_hit(fault))
        return NULL;
    return fault->inner->resize(fault->inner->ctx, ptr, bytes);
}

static void fault_free(void *ctx, void *ptr)
{
    struct fault_os *fault = ctx;
    fault->inner->free(fault->inner->ctx, ptr);
}

static int fault_socket(void *ctx, int domain, int type)
{
    struct fault_os *fault = ctx;
    if (fault_hit(fault))
        return -EMFILE;
    return fault->inner->socket(fault->inner->ctx, domain, type);
}

static int fault_bind(void *ctx, int fd, const struct sockaddr *addr, unsigned len)
{
    struct fault_os *fault = ctx;
    if (fault_hit(fault))
        return -EADDRINUSE;
    return fault->inner->bind(fault->inner->ctx, fd, addr, len);
}

static int fault_listen(void *ctx, int fd, int backlog)
{
    struct fault_os *fault = ctx;
    if (fault_hit(fault))
        return -EADDRINUSE;
    return fault->inner->listen(fault->inner->ctx, fd, backlog);
}

static int fault_accept(void *ctx, int fd, struct sockaddr *ret_addr, unsigned *len)
{
    struct fault_os *fault = ctx;
    if (fault_hit(fault))
        return -EMFILE;
    return fault->inner->accept(fault->inner->ctx, fd, ret_addr, len);
}

static int fault_connect(void *ctx, int fd, const struct sockaddr *addr, unsigned len)
{
    struct fault_os *fault = ctx;
    if (fault_hit(fault))
        return -ECONNREFUSED;
    return fault->inner->connect(fault->inner->ctx, fd, addr, len);
}

static int fault_getsockname(void *ctx, int fd, struct sockaddr *ret_addr, unsigned *len)
{
    struct fault_os *fault = ctx;
    if (fault_hit(fault))
        return -ENOBUFS;
    return fault->inner->getsockname(fault->inner->ctx, fd, ret_addr, len);
}

static int fault_sockopt_get(void *ctx, int fd, int level, int name, void *ret_value, unsigned *len)
{
    struct fault_os *fault = ctx;
    if (fault_hit(fault))
        return -ENOBUFS;
    return fault->inner->sockopt_get(fault->inner->ctx, fd, level, name, ret_value, len);
}

static int fault_sockopt_set(void *ctx, int fd, int level, int name, const void *value,
                             unsigned len)
{
    struct fault_os *fault = ctx;
    if (fault_hit(fault))
        return -ENOBUFS;
    return fault->inner->sockopt_set(fault->inner->ctx, fd, level, name, value, len);
}

static int64_t fault_send(void *ctx, int fd, const struct iovec *iov, int count)
{
    struct fault_os *fault = ctx;
    if (fault_hit(fault))
        return -EPIPE;
    return fault->inner->send(fault->inner->ctx, fd, iov, count);
}

static int64_t fault_recv(void *ctx, int fd, void *ret_bytes, size_t n)
{
    struct fault_os *fault = ctx;
    if (fault_hit(fault))
        return -ECONNRESET;
    return fault->inner->recv(fault->inner->ctx, fd, ret_bytes, n);
}

static int64_t fault_sendmsg(void *ctx, int fd, const struct msghdr *msg)
{
    struct fault_os *fault = ctx;
    if (fault_hit(fault))
        return -EPIPE;
    return fault->inner->sendmsg(fault->inner->ctx, fd, msg);
}

static int64_t fault_recvmsg(void *ctx, int fd, struct msghdr *msg)
{
    struct fault_os *fault = ctx;
    if (fault_hit(fault))
        return -ECONNRESET;
    return fault->inner->recvmsg(fault->inner->ctx, fd, msg);
}

static int fault_close(void *ctx, int fd)
{
    struct fault_os *fault = ctx;
    return fault->inner->close(fault->inner->ctx, fd);
}

static int fault_open(void *ctx, const char *path, int flags, unsigned mode)
{
    struct fault_os *fault = ctx;
    if (fault_hit(fault))
        return -EACCES;
    return fault->inner->open(fault->inner->ctx, path, flags, mode);
}

static int64_t fault_read(void *ctx, int fd, void *ret_bytes, size_t n)
{
    struct fault_os *fault = ctx;
    if (fault_hit(fault))
        return -EIO;
    return fault->inner->read(fault->inner->ctx, fd, ret_bytes, n);
}

static int64_t fault_write(void *ctx, int fd, const void *bytes, size_t n)
{
    struct fault_os *fault = ctx;
    if (fault_hit(fault))
        return -ENOSPC;
    return fault->inner->write(fault->inner->ctx, fd, bytes, n);
}

static int64_t fault_pwrite(void *ctx, int fd, const void *bytes, size_t n, int64_t offset)
{
    struct fault_os *fault = ctx;
    if (fault_hit(fault))
        return -ENOSPC;
    return fault->inner->pwrite(fault->inner->ctx, fd, bytes, n, offset);
}

static int fault_poll_create(void *ctx)
{
    struct fault_os *fault = ctx;
    if (fault_hit(fault))
        return -EMFILE;
    return fault->inner->poll_create(fault->inner->ctx);
}

static int fault_poll_add(void *ctx, int poll_fd, int fd, void *tag, bool want_write)
{
    struct fault_os *fault = ctx;
    if (fault_hit(fault))
        return -ENOSPC;
    return fault->inner->poll_add(fault->inner->ctx, poll_fd, fd, tag, want_write);
}

static int fault_poll_change(void *ctx, int poll_fd, int fd, void *tag, bool want_write)
{
    struct fault_os *fault = ctx;
    if (fault_hit(fault))
        return -ENOMEM;
    return fault->inner->poll_change(fault->inner->ctx, poll_fd, fd, tag, want_write);
}

static int fault_poll_remove(void *ctx, int poll_fd, int fd)
{
    struct fault_os *fault = ctx;
    return fault->inner->poll_remove(fault->inner->ctx, poll_fd, fd);
}

static int fault_poll_wait(void *ctx, int poll_fd, struct os_event *ret_events, int max,
                           int64_t timeout_ns)
{
    struct fault_os *fault = ctx;
    if (fault_hit(fault))
        return -ENOMEM;
    return fault->inner->poll_wait(fault->inner->ctx, poll_fd, ret_events, max, timeout_ns);
}

static int fault_bell_create(void *ctx)
{
    struct fault_os *fault = ctx;
    if (fault_hit(fault))
        return -EMFILE;
    return fault->inner->bell_create(fault->inner->ctx);
}

static int fault_bell_ring(void *ctx, int bell_fd)
{
    struct fault_os *fault = ctx;
    if (fault_hit(fault))
        return -EIO;
    return fault->inner->bell_ring(fault->inner->ctx, bell_fd);
}

static int fault_bell_clear(void *ctx, int bell_fd)
{
    struct fault_os *fault = ctx;
    if (fault_hit(fault))
        return -EIO;
    return fault->inner->bell_clear(fault->inner->ctx, bell_fd);
}

static int fault_create(void *ctx, const char *path, unsigned mode)
{
    struct fault_os *fault = ctx;
    if (fault_hit(fault))
        return -EACCES;
    return fault->inner->create(fault->inner->ctx, path, mode);
}

static int fault_memfd_check(void *ctx, int fd, uint64_t bytes)
{
    struct fault_os *fault = ctx;
    if (fault_hit(fault))
        return -EINVAL;
    return fault->inner->memfd_check(fault->inner->ctx, fd, bytes);
}

static int fault_memfd(void *ctx, const char *name, uint64_t bytes)
{
    struct fault_os *fault = ctx;
    if (fault_hit(fault))
        return -ENFILE;
    return fault->inner->memfd(fault->inner->ctx, name, bytes);
}

static void *fault_map(void *ctx, int fd, uint64_t bytes, int32_t color)
{
    struct fault_os *fault = ctx;
    if (fault_hit(fault))
        return NULL;
    return fault->inner->map(fault->inner->ctx, fd, bytes, color);
}

static int fault_unmap(void *ctx, void *ptr, uint64_t bytes)
{
    struct fault_os *fault = ctx;
    return fault->inner->unmap(fault->inner->ctx, ptr, bytes);
}

static int fault_discard(void *ctx, int fd, uint64_t offset, uint64_t bytes)
{
    struct fault_os *fault = ctx;
    if (fault_hit(fault))
        return -EOPNOTSUPP;
    return fault->inner->discard(fault->inner->ctx, fd, offset, bytes);
}

static int fault_share(void *ctx, void *at, uint64_t bytes, int fd, uint64_t offset)
{
    struct fault_os *fault = ctx;
    if (fault_hit(fault))
        return -ENOMEM;
    return fault->inner->share(fault->inner->ctx, at, bytes, fd, offset);
}

static int fault_unshare(void *ctx, void *at, uint64_t bytes)
{
    struct fault_os *fault = ctx;
    if (fault_hit(fault))
        return -ENOMEM;
    return fault->inner->unshare(fault->inner->ctx, at, bytes);
}

static int fault_detach(void *ctx, void *at, uint64_t bytes, int fd, uint64_t offset)
{
    struct fault_os *fault = ctx;
    if (fault_hit(fault))
        return -ENOMEM;
    return fault->inner->detach(fault->inner->ctx, at, bytes, fd, offset);
}

static int64_t fault_peer_read(void *ctx, int32_t pid, const struct iovec *local, int nlocal,
                               const struct iovec *remote, int nremote)
{
    struct fault_os *fault = ctx;
    if (fault_hit(fault))
        return -EPERM;
    return fault->inner->peer_read(fault->inner->ctx, pid, local, nlocal, remote, nremote);
}

static int32_t fault_pid(void *ctx)
{
    struct fault_os *fault = ctx;
    return fault->inner->pid(fault->inner->ctx);
}

static int fault_cpu_count(void *ctx)
{
    struct fault_os *fault = ctx;
    return fault->inner->cpu_count(fault->inner->ctx);
}

static int fault_thread_start(void *ctx, void *(*fn)(void *), void *arg, const char *name,
                              void **ret_thread)
{
    struct fault_os *fault = ctx;
    if (fault_hit(fault))
        return -EAGAIN;
    return fault->inner->thread_start(fault->inner->ctx, fn, arg, name, ret_thread);
}

static int fault_thread_pin(void *ctx, int core)
{
    struct fault_os *fault = ctx;
    if (fault_hit(fault))
        return -EINVAL;
    return fault->inner->thread_pin(fault->inner->ctx, core);
}

static int fault_thread_join(void *ctx, void *thread)
{
    struct fault_os *fault = ctx;
    return fault->inner->thread_join(fault->inner->ctx, thread);
}

static int fault_thread_detach(void *ctx, void *thread)
{
    struct fault_os *fault = ctx;
    return fault->inner->thread_detach(fault->inner->ctx, thread);
}

static void fault_yield(void *ctx)
{
    struct fault_os *fault = ctx;
    fault->inner->yield(fault->inner->ctx);
}

static void fault_sleep_ns(void *ctx, int64_t ns)
{
    struct fault_os *fault = ctx;
    fault->inner->sleep_ns(fault->inner->ctx, ns);
}

static int fault_futex_wait(void *ctx, const uint32_t *word, uint32_t expected, int64_t timeout_ns)
{
    struct fault_os *fault = ctx;
    return fault->inner->futex_wait(fault->inner->ctx, word, expected, timeout_ns);
}

static int fault_futex_wake(void *ctx, const uint32_t *word, int count)
{
    struct fault_os *fault = ctx;
    return fault->inner->futex_wake(fault->inner->ctx, word, count);
}

static int fault_resolve(void *ctx, const char *host, const char *port,
                         void (*fn)(void *arg, const struct sockaddr *addr, unsigned len),
                         void *arg)
{
    struct fault_os *fault = ctx;
    if (fault_hit(fault))
        return -ENOENT;
    return fault->inner->resolve(fault->inner->ctx, host, port, fn, arg);
}

static int fault_interfaces(void *ctx,
                            void (*fn)(void *arg, const char *name, const struct sockaddr *addr,
                                       bool is_loopback),
                            void *arg)
{
    struct fault_os *fault = ctx;
    if (fault_hit(fault))
        return -ENOMEM;
    return fault->inner->interfaces(fault->inner->ctx, fn, arg);
}

static int fault_stat(void *ctx, const char *path, struct os_file *ret)
{
    struct fault_os *fault = ctx;
    if (fault_hit(fault))
        return -EACCES;
    return fault->inner->stat(fault->inner->ctx, path, ret);
}

static int fault_fstat(void *ctx, int fd, struct os_file *ret)
{
    struct fault_os *fault = ctx;
    if (fault_hit(fault))
        return -EIO;
    return fault->inner->fstat(fault->inner->ctx, fd, ret);
}

static int fault_mkdir(void *ctx, const char *path, unsigned mode)
{
    struct fault_os *fault = ctx;
    if (fault_hit(fault))
        return -EACCES;
    return fault->inner->mkdir(fault->inner->ctx, path, mode);
}

static int fault_rename(void *ctx, const char *from, const char *to)
{
    struct fault_os *fault = ctx;
    if (fault_hit(fault))
        return -EACCES;
    return fault->inner->rename(fault->inner->ctx, from, to);
}

static int fault_unlink(void *ctx, const char *path)
{
    struct fault_os *fault = ctx;
    return fault->inner->unlink(fault->inner->ctx, path);
}

static uint32_t fault_user(void *ctx)
{
    struct fault_os *fault = ctx;
    return fault->inner->user(fault->inner->ctx);
}

static size_t fault_page_bytes(void *ctx)
{
    struct fault_os *fault = ctx;
    return fault->inner->page_bytes(fault->inner->ctx);
}

static void *fault_library_open(void *ctx, const char *name, unsigned flags, char *ret_why,
                                size_t bytes)
{
    struct fault_os *fault = ctx;
    if (fault_hit(fault)) {
        (void)snprintf(ret_why, bytes, "failed on purpose");
        return NULL;
    }
    return fault->inner->library_open(fault->inner->ctx, name, flags, ret_why, bytes);
}

static void *fault_library_symbol(void *ctx, void *library, const char *name)
{
    struct fault_os *fault = ctx;
    if (fault_hit(fault))
        return NULL;
    return fault->inner->library_symbol(fault->inner->ctx, library, name);
}

static void fault_library_close(void *ctx, void *library)
{
    struct fault_os *fault = ctx;
    fault->inner->library_close(fault->inner->ctx, library);
}

static const char *fault_env(void *ctx, const char *name)
{
    struct fault_os *fault = ctx;
    return fault->inner->env(fault->inner->ctx, name);
}

static void fault_env_each(void *ctx, void (*fn)(void *arg, const char *name, const char *value),
                           void *arg)
{
    struct fault_os *fault = ctx;
    fault->inner->env_each(fault->inner->ctx, fn, arg);
}

static void fault_env_wipe(void *ctx, const char *name)
{
    struct fault_os *fault = ctx;
    if (fault->inner->env_wipe == NULL)
        return;
    fault->inner->env_wipe(fault->inner->ctx, name);
}

static const struct os fault_table = {
    .now_ns = fault_now_ns,
    .wall_us = fault_wall_us,
    .random = fault_random,
    .alloc = fault_alloc,
    .resize = fault_resize,
    .free = fault_free,
    .socket = fault_socket,
    .bind = fault_bind,
    .listen = fault_listen,
    .accept = fault_accept,
    .connect = fault_connect,
    .getsockname = fault_getsockname,
    .sockopt_get = fault_sockopt_get,
    .sockopt_set = fault_sockopt_set,
    .send = fault_send,
    .recv = fault_recv,
    .sendmsg = fault_sendmsg,
    .recvmsg = fault_recvmsg,
    .close = fault_close,
    .resolve = fault_resolve,
    .interfaces = fault_interfaces,
    .open = fault_open,
    .create = fault_create,
    .read = fault_read,
    .write = fault_write,
    .pwrite = fault_pwrite,
    .stat = fault_stat,
    .fstat = fault_fstat,
    .mkdir = fault_mkdir,
    .rename = fault_rename,
    .unlink = fault_unlink,
    .poll_create = fault_poll_create,
    .poll_add = fault_poll_add,
    .poll_change = fault_poll_change,
    .poll_remove = fault_poll_remove,
    .poll_wait = fault_poll_wait,
    .bell_create = fault_bell_create,
    .bell_ring = fault_bell_ring,
    .bell_clear = fault_bell_clear,
    .memfd = fault_memfd,
    .memfd_check = fault_memfd_check,
    .map = fault_map,
    .unmap = fault_unmap,
    .discard = fault_discard,
    .share = fault_share,
    .unshare = fault_unshare,
    .detach = fault_detach,
    .peer_read = fault_peer_read,
    .pid = fault_pid,
    .user = fault_user,
    .page_bytes = fault_page_bytes,
    .cpu_count = fault_cpu_count,
    .thread_start = fault_thread_start,
    .thread_join = fault_thread_join,
    .thread_detach = fault_thread_detach,
    .thread_pin = fault_thread_pin,
    .yield = fault_yield,
    .sleep_ns = fault_sleep_ns,
    .futex_wait = fault_futex_wait,
    .futex_wake = fault_futex_wake,
    .library_open = fault_library_open,
    .library_symbol = fault_library_symbol,
    .library_close = fault_library_close,
    .env = fault_env,
    .env_each = fault_env_each,
    .env_wipe = fault_env_wipe,
};

struct fault_os *fault_os_create(const struct os *inner, uint64_t fail_at)
{
    struct fault_os *fault = os_alloc(inner, sizeof *fault);
    if (fault == NULL)
        return NULL;
    fault->table = fault_table;
    fault->table.ctx = fault;
    fault->inner = inner;
    fault_os_arm(fault, fail_at, false);
    return fault;
}

void fault_os_destroy(struct fault_os *fault)
{
    if (fault != NULL)
        os_free(fault->inner, fault);
}

const struct os *fault_os_table(const struct fault_os *fault)
{
    return &fault->table;
}

void fault_os_arm(struct fault_os *fault, uint64_t fail_at, bool is_lasting)
{
    fault->fail_at = fail_at;
    fault->is_lasting = is_lasting;
    atomic_store(&fault->calls, 0);
    atomic_store(&fault->failures, 0);
}

uint64_t fault_os_calls(const struct fault_os *fault)
{
    return atomic_load(&fault->calls);
}

uint64_t fault_os_failures(const struct fault_os *fault)
{
    return atomic_load(&fault->failures);
}
