/* SPDX-License-Identifier: Apache-2.0 */
/* os.h - the one door to the world: time, randomness, memory, sockets, files, threads.
 *
 * Everything above takes a `const struct os *` and calls through it, so that a test can fail the
 * k-th call, a simulator can give virtual time, and another platform is one more file (os_linux.c
 * is ours). Calls that can fail return a negative errno value on failure (-EAGAIN, -ENOMEM ...),
 * never set errno. Thread: any.  Owner: static tables.  Blocks: only where a name says so (poll,
 * sleep, connect does not). */
#ifndef HVD_BASE_OS_H
#define HVD_BASE_OS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct iovec;
struct msghdr;
struct sockaddr;

struct os_event { /* one ready descriptor out of poll_wait() */
    void *tag;
    uint32_t readable : 1, writable : 1, closed : 1;
};

struct os {
    void *ctx; /* first argument of every call */

    /* time and randomness */
    int64_t (*now_ns)(void *ctx);  /* monotonic */
    int64_t (*wall_us)(void *ctx); /* since 1970 */
    int (*random)(void *ctx, void *ret_bytes, size_t n);

    /* memory; alloc() is zeroed */
    void *(*alloc)(void *ctx, size_t bytes);
    void *(*resize)(void *ctx, void *ptr,
                    size_t bytes); /* like realloc; new bytes are not zeroed */
    void (*free)(void *ctx, void *ptr);

    /* descriptors; all non-blocking and close-on-exec */
    int (*socket)(void *ctx, int domain, int type);
    int (*bind)(void *ctx, int fd, const struct sockaddr *addr, unsigned len);
    int (*listen)(void *ctx, int fd, int backlog);
    int (*accept)(void *ctx, int fd, struct sockaddr *ret_addr, unsigned *len);
    int (*connect)(void *ctx, int fd, const struct sockaddr *addr,
                   unsigned len); /* -EINPROGRESS is normal */
    int (*getsockname)(void *ctx, int fd, struct sockaddr *ret_addr, unsigned *len);
    int (*sockopt_get)(void *ctx, int fd, int level, int name, void *ret_value, unsigned *len);
    int (*sockopt_set)(void *ctx, int fd, int level, int name, const void *value, unsigned len);
    int64_t (*send)(void *ctx, int fd, const struct iovec *iov, int count); /* MSG_NOSIGNAL */
    int64_t (*recv)(void *ctx, int fd, void *ret_bytes, size_t n);          /* 0 = closed */
    int64_t (*sendmsg)(void *ctx, int fd, const struct msghdr *msg);
    int64_t (*recvmsg)(void *ctx, int fd, struct msghdr *msg);
    int (*close)(void *ctx, int fd);

    /* files */
    int (*open)(void *ctx, const char *path, int flags, unsigned mode);
    int64_t (*read)(void *ctx, int fd, void *ret_bytes, size_t n);
    int64_t (*write)(void *ctx, int fd, const void *bytes, size_t n);
    int64_t (*pwrite)(void *ctx, int fd, const void *bytes, size_t n, int64_t offset);

    /* waiting for many descriptors (epoll) and waking a waiter (eventfd) */
    int (*poll_create)(void *ctx);
    int (*poll_add)(void *ctx, int poll_fd, int fd, void *tag, bool want_write);
    int (*poll_change)(void *ctx, int poll_fd, int fd, void *tag, bool want_write);
    int (*poll_remove)(void *ctx, int poll_fd, int fd);
    int (*poll_wait)(void *ctx, int poll_fd, struct os_event *ret_events, int max,
                     int64_t timeout_ns);
    int (*bell_create)(void *ctx); /* a descriptor that polls readable after bell_ring */
    int (*bell_ring)(void *ctx, int bell_fd);
    int (*bell_clear)(void *ctx, int bell_fd);

    /* memory shared with other processes */
    int (*memfd)(void *ctx, const char *name,
                 uint64_t bytes);                    /* sparse, close-on-exec, sealed size */
    void *(*map)(void *ctx, int fd, uint64_t bytes); /* shared, read-write; NULL on failure */
    int (*unmap)(void *ctx, void *ptr, uint64_t bytes);
    int (*discard)(void *ctx, int fd, uint64_t offset, uint64_t bytes); /* give pages back */
    /* Whole pages at `at` become those of `fd`, shared; or private pages that hold what was there.
     * On failure nothing has changed. */
    int (*share)(void *ctx, void *at, uint64_t bytes, int fd, uint64_t offset);
    int (*unshare)(void *ctx, void *at, uint64_t bytes);
    int64_t (*peer_read)(void *ctx, int32_t pid, const struct iovec *local, int nlocal,
                         const struct iovec *remote, int nremote); /* process_vm_readv */
    int32_t (*pid)(void *ctx);
    int (*cpu_count)(
        void *ctx); /* cores this process may use: affinity and cgroup quota, at least 1 */

    /* threads and short waits */
    int (*thread_start)(void *ctx, void *(*fn)(void *), void *arg, const char *name,
                        void **ret_thread);
    int (*thread_join)(void *ctx, void *thread);
    int (*thread_pin)(void *ctx, int core); /* the calling thread, to this core alone */
    void (*yield)(void *ctx);
    void (*sleep_ns)(void *ctx, int64_t ns);
    /* process-private futex: wait while *word == expected, at most timeout_ns (< 0: no limit);
     * 0 = look again, -EAGAIN = it had another value, -ETIMEDOUT. wake gives the number woken. */
    int (*futex_wait)(void *ctx, const uint32_t *word, uint32_t expected, int64_t timeout_ns);
    int (*futex_wake)(void *ctx, const uint32_t *word, int count);

    const char *(*env)(void *ctx, const char *name); /* the only getenv */
    void (*env_each)(void *ctx, void (*fn)(void *arg, const char *name, const char *value),
                     void *arg);
    /* empties a value where it lies, so that neither children nor /proc show it; may be NULL */
    void (*env_wipe)(void *ctx, const char *name);
};

/* The real thing. */
const struct os *os_host(void);

/* Counts live allocations and all allocations ever made through os_host(): tests and hvd_stats().
 */
void os_host_alloc_counts(uint64_t *ret_live, uint64_t *ret_total);

/* Short forms. */
static inline int64_t os_now_ns(const struct os *os)
{
    return os->now_ns(os->ctx);
}
static inline void *os_alloc(const struct os *os, size_t n)
{
    return os->alloc(os->ctx, n);
}
static inline void os_free(const struct os *os, void *p)
{
    os->free(os->ctx, p);
}

#endif
