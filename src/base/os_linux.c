/* SPDX-License-Identifier: Apache-2.0 */
/* os_linux.c - the `os` table on Linux; the only file that calls the kernel, malloc or getenv.
 *
 * Thread: any.  Owner: static.  Blocks: poll_wait, sleep_ns, futex_wait, thread_join, and file i/o
 * as long as the file does.
 * Invariant: failures are negative errno values; a call interrupted by a signal is taken up again
 * with the time that is left; every descriptor is close-on-exec and non-blocking.
 * The two allocation counters and the note about epoll_pwait2 are the only state.
 * Start reading at os_host() at the end: the table lists what the file holds, in order. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE 1
#endif
#include "base/os.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "base/cgroup_linux.h"

#define NS_PER_S 1000000000LL

/* Kernel numbers that the C library's headers may be too old to name. */
#ifndef SYS_epoll_pwait2
#define SYS_epoll_pwait2 441
#endif
#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif
#define FUTEX_WAIT_PRIVATE 128
#define FUTEX_WAKE_PRIVATE 129

static atomic_uint_fast64_t alloc_live, alloc_total;
static atomic_bool has_no_epoll_pwait2;

/* The usual way out of a system call that gives -1 and errno. */
static int result(int rc)
{
    return rc < 0 ? -errno : rc;
}

static int64_t result64(ssize_t rc)
{
    return rc < 0 ? -errno : (int64_t)rc;
}

/* ---- time and randomness ---- */

static int64_t clock_ns(clockid_t clock)
{
    struct timespec now;
    (void)clock_gettime(clock, &now);
    return (int64_t)now.tv_sec * NS_PER_S + now.tv_nsec;
}

static int64_t host_now_ns(void *ctx)
{
    (void)ctx;
    return clock_ns(CLOCK_MONOTONIC);
}

static int64_t host_wall_us(void *ctx)
{
    (void)ctx;
    return clock_ns(CLOCK_REALTIME) / 1000;
}

static struct timespec timespec_of(int64_t ns)
{
    return (struct timespec){.tv_sec = (time_t)(ns / NS_PER_S), .tv_nsec = (long)(ns % NS_PER_S)};
}

static int host_random(void *ctx, void *ret_bytes, size_t n)
{
    (void)ctx;
    uint8_t *at = ret_bytes;
    while (n > 0) {
        ssize_t got = getrandom(at, n, 0);
        if (got < 0 && errno != EINTR)
            return -errno;
        if (got > 0) {
            at += got;
            n -= (size_t)got;
        }
    }
    return 0;
}

/* ---- memory ---- */

static void *host_alloc(void *ctx, size_t bytes)
{
    (void)ctx;
    void *ptr = calloc(1, bytes == 0 ? 1 : bytes);
    if (ptr == NULL)
        return NULL;
    atomic_fetch_add_explicit(&alloc_live, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&alloc_total, 1, memory_order_relaxed);
    return ptr;
}

static void *host_resize(void *ctx, void *ptr, size_t bytes)
{
    (void)ctx;
    bool is_new = ptr == NULL;
    void *resized = realloc(ptr, bytes == 0 ? 1 : bytes);
    if (resized == NULL)
        return NULL;
    if (is_new)
        atomic_fetch_add_explicit(&alloc_live, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&alloc_total, 1, memory_order_relaxed);
    return resized;
}

static void host_free(void *ctx, void *ptr)
{
    (void)ctx;
    if (ptr == NULL)
        return;
    free(ptr);
    atomic_fetch_sub_explicit(&alloc_live, 1, memory_order_relaxed);
}

/* ---- sockets ---- */

static int host_socket(void *ctx, int domain, int type)
{
    (void)ctx;
    return result(socket(domain, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
}

static int host_bind(void *ctx, int fd, const struct sockaddr *addr, unsigned len)
{
    (void)ctx;
    return result(bind(fd, addr, (socklen_t)len));
}

static int host_listen(void *ctx, int fd, int backlog)
{
    (void)ctx;
    return result(listen(fd, backlog));
}

static int host_accept(void *ctx, int fd, struct sockaddr *ret_addr, unsigned *len)
{
    (void)ctx;
    int rc;
    do {
        rc = accept4(fd, ret_addr, len, SOCK_NONBLOCK | SOCK_CLOEXEC);
    } while (rc < 0 && errno == EINTR);
    return result(rc);
}

static int host_connect(void *ctx, int fd, const struct sockaddr *addr, unsigned len)
{
    (void)ctx;
    int rc = result(connect(fd, addr, (socklen_t)len));
    return rc == -EINTR ? -EINPROGRESS : rc; /* interrupted, it goes on in the background */
}

static int host_getsockname(void *ctx, int fd, struct sockaddr *ret_addr, unsigned *len)
{
    (void)ctx;
    return result(getsockname(fd, ret_addr, len));
}

static int host_sockopt_get(void *ctx, int fd, int level, int name, void *ret_value, unsigned *len)
{
    (void)ctx;
    return result(getsockopt(fd, level, name, ret_value, len));
}

static int host_sockopt_set(void *ctx, int fd, int level, int name, const void *value, unsigned len)
{
    (void)ctx;
    return result(setsockopt(fd, level, name, value, (socklen_t)len));
}

static int64_t host_sendmsg(void *ctx, int fd, const struct msghdr *msg)
{
    (void)ctx;
    ssize_t rc;
    do {
        rc = sendmsg(fd, msg, MSG_NOSIGNAL);
    } while (rc < 0 && errno == EINTR);
    return result64(rc);
}

static int64_t host_recvmsg(void *ctx, int fd, struct msghdr *msg)
{
    (void)ctx;
    ssize_t rc;
    do {
        rc = recvmsg(fd, msg, MSG_CMSG_CLOEXEC);
    } while (rc < 0 && errno == EINTR);
    return result64(rc);
}

static int64_t host_send(void *ctx, int fd, const struct iovec *iov, int count)
{
    struct msghdr msg = {.msg_iov = (struct iovec *)(uintptr_t)iov, .msg_iovlen = (size_t)count};
    return host_sendmsg(ctx, fd, &msg);
}

static int64_t host_recv(void *ctx, int fd, void *ret_bytes, size_t n)
{
    (void)ctx;
    ssize_t rc;
    do {
        rc = recv(fd, ret_bytes, n, 0);
    } while (rc < 0 && errno == EINTR);
    return result64(rc);
}

static int host_close(void *ctx, int fd)
{
    (void)ctx;
    int rc = result(close(fd));
    return rc == -EINTR ? 0 : rc; /* Linux has released the descriptor by then */
}

/* ---- files ---- */

static int host_open(void *ctx, const char *path, int flags, unsigned mode)
{
    (void)ctx;
    int rc;
    do {
        rc = open(path, flags | O_CLOEXEC | O_NONBLOCK, (mode_t)mode);
    } while (rc < 0 && errno == EINTR);
    return result(rc);
}

static int64_t host_read(void *ctx, int fd, void *ret_bytes, size_t n)
{
    (void)ctx;
    ssize_t rc;
    do {
        rc = read(fd, ret_bytes, n);
    } while (rc < 0 && errno == EINTR);
    return result64(rc);
}

static int64_t host_write(void *ctx, int fd, const void *bytes, size_t n)
{
    (void)ctx;
    ssize_t rc;
    do {
        rc = write(fd, bytes, n);
    } while (rc < 0 && errno == EINTR);
    return result64(rc);
}

static int64_t host_pwrite(void *ctx, int fd, const void *bytes, size_t n, int64_t offset)
{
    (void)ctx;
    ssize_t rc;
    do {
        rc = pwrite(fd, bytes, n, (off_t)offset);
    } while (rc < 0 && errno == EINTR);
    return result64(rc);
}

/* ---- waiting for many descriptors ---- */

static int host_poll_create(void *ctx)
{
    (void)ctx;
    return result(epoll_create1(EPOLL_CLOEXEC));
}

static int poll_control(int poll_fd, int what, int fd, void *tag, bool want_write)
{
    struct epoll_event event = {.events = EPOLLIN | EPOLLRDHUP, .data.ptr = tag};
    if (want_write)
        event.events |= EPOLLOUT;
    return result(epoll_ctl(poll_fd, what, fd, &event));
}

static int host_poll_add(void *ctx, int poll_fd, int fd, void *tag, bool want_write)
{
    (void)ctx;
    return poll_control(poll_fd, EPOLL_CTL_ADD, fd, tag, want_write);
}

static int host_poll_change(void *ctx, int poll_fd, int fd, void *tag, bool want_write)
{
    (void)ctx;
    return poll_control(poll_fd, EPOLL_CTL_MOD, fd, tag, want_write);
}

static int host_poll_remove(void *ctx, int poll_fd, int fd)
{
    (void)ctx;
    return poll_control(poll_fd, EPOLL_CTL_DEL, fd, NULL, false);
}

/* Older kernels and strict sandboxes know only milliseconds; those are rounded up, because waking
 * early would make a caller with a deadline spin. */
static int epoll_wait_ns(int poll_fd, struct epoll_event *ret_events, int max, int64_t timeout_ns)
{
    if (timeout_ns > 0 && !atomic_load_explicit(&has_no_epoll_pwait2, memory_order_relaxed)) {
        struct timespec timeout = timespec_of(timeout_ns);
        long rc = syscall(SYS_epoll_pwait2, poll_fd, ret_events, max, &timeout, NULL, (size_t)0);
        if (rc >= 0 || (errno != ENOSYS && errno != EPERM))
            return result((int)rc);
        atomic_store_explicit(&has_no_epoll_pwait2, true, memory_order_relaxed);
    }
    int64_t timeout_ms = timeout_ns < 0 ? -1 : timeout_ns / 1000000 + (timeout_ns % 1000000 != 0);
    if (timeout_ms > INT32_MAX)
        timeout_ms = INT32_MAX;
    return result(epoll_wait(poll_fd, ret_events, max, (int)timeout_ms));
}

static struct os_event os_event_of(const struct epoll_event *event)
{
    uint32_t bits = event->events;
    return (struct os_event){
        .tag = event->data.ptr,
        .readable = (bits & EPOLLIN) != 0,
        .writable = (bits & EPOLLOUT) != 0,
        .closed = (bits & (EPOLLHUP | EPOLLERR | EPOLLRDHUP)) != 0,
    };
}

static int host_poll_wait(void *ctx, int poll_fd, struct os_event *ret_events, int max,
                          int64_t timeout_ns)
{
    struct epoll_event events[64];
    int room = max < 64 ? max : 64;
    int64_t end_ns = timeout_ns > 0 ? host_now_ns(ctx) + timeout_ns : 0;
    int count;
    while ((count = epoll_wait_ns(poll_fd, events, room, timeout_ns)) == -EINTR) {
        if (timeout_ns <= 0)
            continue;
        timeout_ns = end_ns - host_now_ns(ctx);
        if (timeout_ns <= 0)
            return 0;
    }
    for (int i = 0; i < count; i++)
        ret_events[i] = os_event_of(&events[i]);
    return count;
}

static int host_bell_create(void *ctx)
{
    (void)ctx;
    return result(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
}

/* EAGAIN: the bell's counter is full, or was empty: it rings, or is clear, as asked. */
static int host_bell_ring(void *ctx, int bell_fd)
{
    uint64_t one = 1;
    int64_t rc = host_write(ctx, bell_fd, &one, sizeof one);
    return rc < 0 && rc != -EAGAIN ? (int)rc : 0;
}

static int host_bell_clear(void *ctx, int bell_fd)
{
    uint64_t rings;
    int64_t rc = host_read(ctx, bell_fd, &rings, sizeof rings);
    return rc < 0 && rc != -EAGAIN ? (int)rc : 0;
}

/* ---- memory shared with other processes ---- */

static int memfd_open(const char *name)
{
    /* Newer kernels log a warning when neither exec nor noexec is asked for; older refuse it. */
    int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);
    if (fd < 0 && errno == EINVAL)
        fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    return result(fd);
}

static int host_memfd(void *ctx, const char *name, uint64_t bytes)
{
    (void)ctx;
    if (bytes > INT64_MAX)
        return -EFBIG;
    int fd = memfd_open(name);
    if (fd < 0)
        return fd;
    int rc = result(ftruncate(fd, (off_t)bytes));
    if (rc < 0)
        goto fail_close;
    /* A peer that could shrink the file would turn our next access into SIGBUS. */
    rc = result(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL));
    if (rc < 0)
        goto fail_close;
    return fd;
fail_close:
    (void)close(fd);
    return rc;
}

static void *host_map(void *ctx, int fd, uint64_t bytes)
{
    (void)ctx;
    if (bytes == 0 || bytes > SIZE_MAX)
        return NULL;
    void *ptr =
        mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
    return ptr == MAP_FAILED ? NULL : ptr;
}

static int host_unmap(void *ctx, void *ptr, uint64_t bytes)
{
    (void)ctx;
    if (ptr == NULL)
        return 0;
    return result(munmap(ptr, (size_t)bytes));
}

static int host_discard(void *ctx, int fd, uint64_t offset, uint64_t bytes)
{
    (void)ctx;
    return result(
        fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)offset, (off_t)bytes));
}

static int host_share(void *ctx, void *at, uint64_t bytes, int fd, uint64_t offset)
{
    (void)ctx;
    void *ptr = mmap(at, (size_t)bytes, PROT_READ | PROT_WRITE,
                     MAP_SHARED | MAP_FIXED | MAP_NORESERVE, fd, (off_t)offset);
    return ptr == MAP_FAILED ? -errno : 0;
}

static int host_unshare(void *ctx, void *at, uint64_t bytes)
{
    (void)ctx;
    void *copy =
        mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (copy == MAP_FAILED)
        return -errno;
    memcpy(copy, at, (size_t)bytes);
    if (mremap(copy, (size_t)bytes, (size_t)bytes, MREMAP_MAYMOVE | MREMAP_FIXED, at) != MAP_FAILED)
        return 0;
    int error = errno;
    munmap(copy, (size_t)bytes);
    return -error;
}

static int64_t host_peer_read(void *ctx, int32_t pid, const struct iovec *local, int nlocal,
                              const struct iovec *remote, int nremote)
{
    (void)ctx;
    return result64(process_vm_readv((pid_t)pid, local, (unsigned long)nlocal, remote,
                                     (unsigned long)nremote, 0));
}

static int32_t host_pid(void *ctx)
{
    (void)ctx;
    return (int32_t)getpid();
}

/* The set must be at least as large as the kernel's, which nothing tells: grow until it fits. */
static int affinity_count(void)
{
    for (int cores = 1024; cores <= 1024 * 1024; cores *= 4) {
        cpu_set_t *set = CPU_ALLOC((size_t)cores);
        if (set == NULL)
            return 0;
        size_t bytes = CPU_ALLOC_SIZE((size_t)cores);
        int rc = sched_getaffinity(0, bytes, set);
        int count = rc == 0 ? CPU_COUNT_S(bytes, set) : 0;
        int failure = rc == 0 ? 0 : errno;
        CPU_FREE(set);
        if (failure != EINVAL)
            return count;
    }
    return 0;
}

static int host_cpu_count(void *ctx)
{
    (void)ctx;
    int count = affinity_count();
    if (count <= 0)
        count = (int)sysconf(_SC_NPROCESSORS_ONLN);
    int limit = cgroup_cpu_limit(os_host());
    if (limit > 0 && limit < count)
        count = limit;
    return count < 1 ? 1 : count;
}

/* ---- threads and short waits ---- */

/* Signals are the program's business: our threads take none, but a fault of their own still gets
 * to whoever reports crashes. */
static void signals_block(sigset_t *ret_old)
{
    sigset_t blocked;
    sigfillset(&blocked);
    static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS};
    for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++)
        sigdelset(&blocked, faults[i]);
    (void)pthread_sigmask(SIG_SETMASK, &blocked, ret_old);
}

static int host_thread_start(void *ctx, void *(*fn)(void *), void *arg, const char *name,
                             void **ret_thread)
{
    pthread_t *thread = host_alloc(ctx, sizeof *thread);
    if (thread == NULL)
        return -ENOMEM;
    sigset_t old;
    signals_block(&old);
    int rc = pthread_create(thread, NULL, fn, arg);
    (void)pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (rc != 0) {
        host_free(ctx, thread);
        return -rc;
    }
    char short_name[16]; /* the kernel's limit */
    (void)snprintf(short_name, sizeof short_name, "%.15s", name == NULL ? "hvd" : name);
    (void)pthread_setname_np(*thread, short_name);
    *ret_thread = thread;
    return 0;
}

static int host_thread_pin(void *ctx, int core)
{
    cpu_set_t *set;
    size_t bytes = CPU_ALLOC_SIZE((size_t)core + 1);
    (void)ctx;
    if (core < 0 || (set = CPU_ALLOC((size_t)core + 1)) == NULL)
        return core < 0 ? -EINVAL : -ENOMEM;
    CPU_ZERO_S(bytes, set);
    CPU_SET_S((size_t)core, bytes, set);
    int rc = pthread_setaffinity_np(pthread_self(), bytes, set);
    CPU_FREE(set);
    return -rc;
}

static int host_thread_join(void *ctx, void *thread)
{
    if (thread == NULL)
        return 0;
    int rc = pthread_join(*(pthread_t *)thread, NULL);
    if (rc != 0)
        return -rc;
    host_free(ctx, thread);
    return 0;
}

static void host_yield(void *ctx)
{
    (void)ctx;
    (void)sched_yield();
}

static void host_sleep_ns(void *ctx, int64_t ns)
{
    if (ns <= 0)
        return;
    struct timespec end = timespec_of(host_now_ns(ctx) + ns);
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &end, NULL) == EINTR)
        continue;
}

static int host_futex_wait(void *ctx, const uint32_t *word, uint32_t expected, int64_t timeout_ns)
{
    (void)ctx;
    struct timespec timeout = timespec_of(timeout_ns < 0 ? 0 : timeout_ns);
    long rc = syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, expected,
                      timeout_ns < 0 ? NULL : &timeout, NULL, 0);
    if (rc < 0 && errno == EINTR)
        return 0;
    return result((int)rc);
}

static int host_futex_wake(void *ctx, const uint32_t *word, int count)
{
    (void)ctx;
    return result((int)syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, count, NULL, NULL, 0));
}

/* ---- environment ---- */

static const char *host_env(void *ctx, const char *name)
{
    (void)ctx;
    return getenv(name);
}

static void host_env_each(void *ctx, void (*fn)(void *arg, const char *name, const char *value),
                          void *arg)
{
    (void)ctx;
    char name[256];
    for (char **entry = environ; entry != NULL && *entry != NULL; entry++) {
        const char *equals = strchr(*entry, '=');
        size_t n = equals == NULL ? 0 : (size_t)(equals - *entry);
        if (n == 0 || n >= sizeof name)
            continue;
        memcpy(name, *entry, n);
        name[n] = '\0';
        fn(arg, name, equals + 1);
    }
}

/* In place, as unsetenv() would race with readers in other threads and leave the bytes behind. */
static void host_env_wipe(void *ctx, const char *name)
{
    (void)ctx;
    char *value = getenv(name);
    if (value != NULL)
        explicit_bzero(value, strlen(value));
}

const struct os *os_host(void)
{
    static const struct os host = {
        .now_ns = host_now_ns,
        .wall_us = host_wall_us,
        .random = host_random,
        .alloc = host_alloc,
        .resize = host_resize,
        .free = host_free,
        .socket = host_socket,
        .bind = host_bind,
        .listen = host_listen,
        .accept = host_accept,
        .connect = host_connect,
        .getsockname = host_getsockname,
        .sockopt_get = host_sockopt_get,
        .sockopt_set = host_sockopt_set,
        .send = host_send,
        .recv = host_recv,
        .sendmsg = host_sendmsg,
        .recvmsg = host_recvmsg,
        .close = host_close,
        .open = host_open,
        .read = host_read,
        .write = host_write,
        .pwrite = host_pwrite,
        .poll_create = host_poll_create,
        .poll_add = host_poll_add,
        .poll_change = host_poll_change,
        .poll_remove = host_poll_remove,
        .poll_wait = host_poll_wait,
        .bell_create = host_bell_create,
        .bell_ring = host_bell_ring,
        .bell_clear = host_bell_clear,
        .memfd = host_memfd,
        .map = host_map,
        .unmap = host_unmap,
        .discard = host_discard,
        .share = host_share,
        .unshare = host_unshare,
        .peer_read = host_peer_read,
        .pid = host_pid,
        .cpu_count = host_cpu_count,
        .thread_start = host_thread_start,
        .thread_join = host_thread_join,
        .thread_pin = host_thread_pin,
        .yield = host_yield,
        .sleep_ns = host_sleep_ns,
        .futex_wait = host_futex_wait,
        .futex_wake = host_futex_wake,
        .env = host_env,
        .env_each = host_env_each,
        .env_wipe = host_env_wipe,
    };
    return &host;
}

void os_host_alloc_counts(uint64_t *ret_live, uint64_t *ret_total)
{
    *ret_live = atomic_load_explicit(&alloc_live, memory_order_relaxed);
    *ret_total = atomic_load_explicit(&alloc_total, memory_order_relaxed);
}
