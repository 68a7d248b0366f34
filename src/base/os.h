/* SPDX-License-Identifier: Apache-2.0 */
/* os.h - the only interface to the operating system: time, randomness, memory, sockets, files,
 * threads.
 *
 * All other code takes a `const struct os *` and calls through it, so that a test can fail the k-th
 * call, a simulator can provide virtual time, and another platform is one more set of files (ours
 * end in _linux.c). Features that this table lacks and only Linux has are in separate headers
 * (machine.h, proc.h, socket.h, library.h, cpu.h), whose Linux files use the table. Calls that can
 * fail return a negative errno value on failure (-EAGAIN, -ENOMEM ...) and never set errno.
 * Thread: any.  Owner: static tables.  Blocks: only if the name says so (poll, sleep; connect does
 * not). */
#ifndef HVD_BASE_OS_H
#define HVD_BASE_OS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct iovec;
struct msghdr;
struct sockaddr;

/* Size of a cache line, for data that must not share one; a constant because layouts depend on it.
 * If lines are longer (128 bytes on Apple's cores), sharing only costs time. */
#define OS_CACHE_LINE 64u

enum os_file_kind { OS_FILE_REGULAR, OS_FILE_FOLDER, OS_FILE_LINK, OS_FILE_OTHER };

struct os_file {
    enum os_file_kind kind;
    uint32_t uid;  /* its owner */
    uint32_t mode; /* permission bits, at most 07777 */
    uint64_t bytes;
};

/* flags of library_open */
#define OS_LIBRARY_LOADED 1u /* only if it is already loaded */
#define OS_LIBRARY_GLOBAL 2u /* libraries that are loaded later can use its symbols */

struct os_event { /* one ready descriptor from poll_wait() */
    void *tag;
    uint32_t readable : 1, writable : 1, closed : 1;
};

#define OS_COLORS 128 /* of shared mappings, see map() */

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

    /* Calls fn for each address of a host, name or number; the port is digits. -ENOENT: the name is
     * unknown. Blocks as long as the system's resolver does, unless it is a number. */
    int (*resolve)(void *ctx, const char *host, const char *port,
                   void (*fn)(void *arg, const struct sockaddr *addr, unsigned len), void *arg);
    /* Calls fn for each address of each network interface that is up. */
    int (*interfaces)(void *ctx,
                      void (*fn)(void *arg, const char *name, const struct sockaddr *addr,
                                 bool is_loopback),
                      void *arg);

    /* files */
    int (*open)(void *ctx, const char *path, int flags, unsigned mode);
    /* An empty file to write to, created with `mode` if it does not exist. In a directory that
     * others can write, it follows no link and uses no file that another user may have put there:
     * -ELOOP, -EPERM; see os_create_hint(). */
    int (*create)(void *ctx, const char *path, unsigned mode);
    int64_t (*read)(void *ctx, int fd, void *ret_bytes, size_t n);
    int64_t (*write)(void *ctx, int fd, const void *bytes, size_t n);
    int64_t (*pwrite)(void *ctx, int fd, const void *bytes, size_t n, int64_t offset);
    int (*stat)(void *ctx, const char *path, struct os_file *ret); /* does not follow a link */
    int (*fstat)(void *ctx, int fd, struct os_file *ret);
    int (*mkdir)(void *ctx, const char *path, unsigned mode);
    int (*rename)(void *ctx, const char *from, const char *to); /* replaces `to` */
    int (*unlink)(void *ctx, const char *path);

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
                 uint64_t bytes); /* sparse, close-on-exec, sealed size */
    /* 0: a memfd of exactly `bytes` bytes that nobody can shrink, so that accessing it is safe */
    int (*memfd_check)(void *ctx, int fd, uint64_t bytes);
    /* Shared, read-write; NULL on failure. At equal offsets, mappings of different colors (0 ..
     * OS_COLORS - 1) differ in the low address bits that caches and their predictors use; -1:
     * anywhere. */
    void *(*map)(void *ctx, int fd, uint64_t bytes, int32_t color);
    int (*unmap)(void *ctx, void *ptr, uint64_t bytes);
    int (*discard)(void *ctx, int fd, uint64_t offset, uint64_t bytes); /* release the pages */
    /* share() replaces whole pages at `at` with shared pages of `fd`; unshare() replaces them with
     * private pages of the same contents. On failure nothing has changed. */
    int (*share)(void *ctx, void *at, uint64_t bytes, int fd, uint64_t offset);
    int (*unshare)(void *ctx, void *at, uint64_t bytes);
    /* Whole pages at `at`, shared pages of `fd` at `offset`, become private and keep their
     * contents; unlike with unshare, no concurrent write of another thread is lost. */
    int (*detach)(void *ctx, void *at, uint64_t bytes, int fd, uint64_t offset);
    int64_t (*peer_read)(void *ctx, int32_t pid, const struct iovec *local, int nlocal,
                         const struct iovec *remote, int nremote); /* process_vm_readv */
    int32_t (*pid)(void *ctx);
    uint32_t (*user)(void *ctx);     /* the effective user */
    size_t (*page_bytes)(void *ctx); /* a power of two */
    int (*cpu_count)(
        void *ctx); /* cores this process may use: affinity and cgroup quota, at least 1 */

    /* threads and short waits */
    int (*thread_start)(void *ctx, void *(*fn)(void *), void *arg, const char *name,
                        void **ret_thread);
    int (*thread_join)(void *ctx, void *thread);
    int (*thread_detach)(void *ctx, void *thread); /* no thread will join it */
    int (*thread_pin)(void *ctx, int core);        /* the calling thread, to this core only */
    void (*yield)(void *ctx);
    void (*sleep_ns)(void *ctx, int64_t ns);
    /* process-private futex: wait while *word == expected, at most timeout_ns (< 0: no limit);
     * 0 = check again, -EAGAIN = it had another value, -ETIMEDOUT. wake returns the number woken.
     */
    int (*futex_wait)(void *ctx, const uint32_t *word, uint32_t expected, int64_t timeout_ns);
    int (*futex_wake)(void *ctx, const uint32_t *word, int count);

    /* Shared libraries. They stay mapped when closed: many leave handlers installed. On failure
     * NULL and the reason as text. With a NULL library, all global ones are searched for a symbol.
     */
    void *(*library_open)(void *ctx, const char *name, unsigned flags, char *ret_why, size_t bytes);
    void *(*library_symbol)(void *ctx, void *library, const char *name);
    void (*library_close)(void *ctx, void *library);

    const char *(*env)(void *ctx, const char *name); /* the only getenv */
    void (*env_each)(void *ctx, void (*fn)(void *arg, const char *name, const char *value),
                     void *arg);
    /* clears a value in place, so that neither children nor /proc show it; may be NULL */
    void (*env_wipe)(void *ctx, const char *name);
};

/* The real operating system. */
const struct os *os_host(void);

/* From now on a child of fork() has /dev/null in place of every socket, poller, bell and memory
 * file created through os_host(): peers see this process die although the child lives. */
void os_host_watch_forks(void);

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
/* What an object owns, when it is destroyed. */
static inline void os_free_each(const struct os *os, void *const *owned, size_t count)
{
    for (size_t i = 0; i < count; i++)
        os_free(os, owned[i]);
}
/* A hint to append to the error's text when create() has failed. */
const char *os_create_hint(int neg_errno);

#endif
