/* SPDX-License-Identifier: Apache-2.0 */
/* os_linux.c - the `os` table on Linux. Only this file and fork_linux.c and net_linux.c, which it
 * calls, call the kernel, malloc or getenv.
 *
 * Thread: any.  Owner: static.  Blocks: poll_wait, sleep_ns, futex_wait, thread_join, and file i/o
 * as long as the file does. Invariant: failures are negative errno values; a call interrupted by a
 * signal is resumed with the time that is left; every descriptor is close-on-exec and non-blocking.
 * The two allocation counters and the flag about epoll_pwait2 are the only state here; fork_linux.c
 * records which descriptors are ours. Start reading at os_host() at the end: the table lists the
 * contents of this file, in order. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE 1
#endif
#include "base/os.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
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
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "base/cgroup_linux.h"
#include "base/fork_linux.h"
#include "base/net_linux.h"

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

/* The result of a system call that returns -1 and sets errno. */
static int result(int rc)
{
    return rc < 0 ? -errno : rc;
}

static int64_t result64(ssize_t rc)
{
    return rc < 0 ? -errno : (int64_t)rc;
}

/* fork_lock() is held: a descriptor that was just made, or -1 and errno. */
static int own(int fd)
{
    int rc = result(fd);
    fork_note(rc);
    fork_unlock();
    return rc;
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
    fork_lock();
    return own(socket(domain, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
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
    fork_lock();
    do {
        rc = accept4(fd, ret_addr, len, SOCK_NONBLOCK | SOCK_CLOEXEC);
    } while (rc < 0 && errno == EINTR);
    return own(rc);
}

static int host_connect(void *ctx, int fd, const struct sockaddr *addr, unsigned len)
{
    (void)ctx;
    int rc = result(connect(fd, addr, (socklen_t)len));
    return rc == -EINTR ? -EINPROGRESS : rc; /* if interrupted, it continues in the background */
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

/* Descriptors received with a message are ours, too. */
static void own_received(struct msghdr *msg)
{
    for (struct cmsghdr *head = CMSG_FIRSTHDR(msg); head != NULL; head = CMSG_NXTHDR(msg, head)) {
        if (head->cmsg_level != SOL_SOCKET || head->cmsg_type != SCM_RIGHTS)
            continue;
        size_t count = (head->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < count; i++) {
            int fd;
            memcpy(&fd, CMSG_DATA(head) + i * sizeof fd, sizeof fd);
            fork_note(fd);
        }
    }
}

static int64_t host_recvmsg(void *ctx, int fd, struct msghdr *msg)
{
    (void)ctx;
    bool may_bring = msg->msg_controllen > 0;
    ssize_t rc;
    if (may_bring)
        fork_lock();
    do {
        rc = recvmsg(fd, msg, MSG_CMSG_CLOEXEC);
    } while (rc < 0 && errno == EINTR);
    int64_t got = result64(rc);
    if (may_bring) {
        if (rc >= 0)
            own_received(msg);
        fork_unlock();
    }
    return got;
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
    bool is_noted = fork_is_noted(fd);
    if (is_noted) { /* a child forked in between would keep it */
        fork_lock();
        fork_forget(fd);
    }
    int rc = result(close(fd));
    if (is_noted)
        fork_unlock();
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

/* Could any user except us and root have put something into this directory? */
static bool is_shared_folder(const struct stat *st)
{
    return (st->st_uid != geteuid() && st->st_uid != 0) || (st->st_mode & (S_IWGRP | S_IWOTH)) != 0;
}

static int check_own_file(const struct stat *st)
{
    return S_ISREG(st->st_mode) && st->st_uid == geteuid() && st->st_nlink == 1 ? 0 : -EPERM;
}

/* 0: the existing file may be opened, without following a link; 1: a link of our own user that
 * others can't replace, which the user wants. Checked before the kernel refuses with a less clear
 * error. */
static int check_entry(int folder, const struct stat *folder_st, const char *name)
{
    struct stat st;
    if (fstatat(folder, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT ? 0 : -errno;
    if (!S_ISLNK(st.st_mode))
        return check_own_file(&st);
    return st.st_uid == geteuid() && (folder_st->st_mode & S_ISVTX) != 0 ? 1 : -ELOOP;
}

static int create_in(int folder, const char *name, unsigned mode)
{
    const int flags = O_WRONLY | O_CREAT | O_CLOEXEC | O_NONBLOCK;
    struct stat folder_st, st;
    int rc = result(fstat(folder, &folder_st));
    if (rc == 0)
        rc = is_shared_folder(&folder_st) ? check_entry(folder, &folder_st, name) : 1;
    if (rc < 0)
        return rc;
    if (rc == 1)
        return result(openat(folder, name, flags | O_TRUNC, (mode_t)mode));
    int fd = result(openat(folder, name, flags | O_NOFOLLOW, (mode_t)mode));
    if (fd < 0)
        return fd;
    rc = result(fstat(fd, &st));
    if (rc == 0)
        rc = check_own_file(&st); /* it may have been replaced meanwhile */
    if (rc == 0)
        rc = result(ftruncate(fd, 0));
    if (rc == 0)
        return fd;
    (void)close(fd);
    return rc;
}

static int host_create(void *ctx, const char *path, unsigned mode)
{
    (void)ctx;
    char folder[PATH_MAX];
    const char *slash = strrchr(path, '/');
    size_t n = slash == NULL ? 0 : (size_t)(slash - path);
    if (n >= sizeof folder)
        return -ENAMETOOLONG;
    memcpy(folder, path, n);
    folder[n] = '\0';
    int fd = result(open(slash == NULL ? "."
                         : n == 0      ? "/"
                                       : folder,
                         O_PATH | O_DIRECTORY | O_CLOEXEC));
    if (fd < 0)
        return fd;
    int rc = create_in(fd, slash == NULL ? path : slash + 1, mode);
    (void)close(fd);
    return rc;
}

const char *os_create_hint(int neg_errno)
{
    if (neg_errno != -ELOOP && neg_errno != -EPERM)
        return "";
    return " (in a directory that others may write, a link or another user's file is not written "
           "to: "
           "remove it or choose another place)";
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

static enum os_file_kind file_kind_of(mode_t mode)
{
    if (S_ISREG(mode))
        return OS_FILE_REGULAR;
    if (S_ISDIR(mode))
        return OS_FILE_FOLDER;
    return S_ISLNK(mode) ? OS_FILE_LINK : OS_FILE_OTHER;
}

static int file_of(int rc, const struct stat *st, struct os_file *ret)
{
    if (rc < 0)
        return -errno;
    *ret = (struct os_file){.kind = file_kind_of(st->st_mode),
                            .uid = (uint32_t)st->st_uid,
                            .mode = (uint32_t)(st->st_mode & 07777),
                            .bytes = st->st_size > 0 ? (uint64_t)st->st_size : 0};
    return 0;
}

static int host_stat(void *ctx, const char *path, struct os_file *ret)
{
    (void)ctx;
    struct stat st;
    return file_of(lstat(path, &st), &st, ret);
}

static int host_fstat(void *ctx, int fd, struct os_file *ret)
{
    (void)ctx;
    struct stat st;
    return file_of(fstat(fd, &st), &st, ret);
}

static int host_mkdir(void *ctx, const char *path, unsigned mode)
{
    (void)ctx;
    return result(mkdir(path, (mode_t)mode));
}

static int host_rename(void *ctx, const char *from, const char *to)
{
    (void)ctx;
    return result(rename(from, to));
}

static int host_unlink(void *ctx, const char *path)
{
    (void)ctx;
    return result(unlink(path));
}

/* ---- waiting for many descriptors ---- */

static int host_poll_create(void *ctx)
{
    (void)ctx;
    fork_lock();
    return own(epoll_create1(EPOLL_CLOEXEC));
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
    fork_lock();
    return own(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
}

/* EAGAIN: the bell's counter is full, or was empty: it rings, or is clear, as requested. */
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
    /* Newer kernels log a warning if neither exec nor noexec is requested; older ones reject it. */
    fork_lock();
    int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);
    if (fd < 0 && errno == EINVAL)
        fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    return own(fd);
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
    (void)host_close(ctx, fd);
    return rc;
}

static int host_memfd_check(void *ctx, int fd, uint64_t bytes)
{
    (void)ctx;
    struct stat st;
    int seals = result(fcntl(fd, F_GET_SEALS));
    if (seals < 0)
        return seals;
    if ((seals & F_SEAL_SHRINK) == 0)
        return -EPERM;
    int rc = result(fstat(fd, &st));
    return rc < 0 ? rc : st.st_size >= 0 && (uint64_t)st.st_size == bytes ? 0 : -EINVAL;
}

/* The kernel puts one mapping right below another, so two arenas of a size that is a power of two
 * or nearly so have equal low address bits at equal offsets. Some processors predict the way of
 * their L1 cache by a hash of these bits (AMD: 12 to 27), and then lines of the two evict each
 * other: reducing takes four times as long. A color is an address modulo COLOR_SPAN, in steps of
 * COLOR_STEP, which a large page may have. */
#define COLOR_STEP ((uint64_t)2 << 20)
#define COLOR_SPAN (COLOR_STEP * OS_COLORS)

/* Reserves more than is needed and keeps the part that begins right; NULL: as the kernel likes. */
static void *place_of(uint64_t bytes, int32_t color)
{
    if (color < 0 || bytes > SIZE_MAX - COLOR_SPAN)
        return NULL;
    void *room = mmap(NULL, (size_t)(bytes + COLOR_SPAN), PROT_NONE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (room == MAP_FAILED)
        return NULL;
    uint64_t wanted = (uint64_t)color % OS_COLORS * COLOR_STEP;
    uint64_t skip = (wanted - (uint64_t)(uintptr_t)room) % COLOR_SPAN;
    uint8_t *place = (uint8_t *)room + skip;
    if (skip > 0)
        munmap(room, (size_t)skip);
    munmap(place + bytes, (size_t)(COLOR_SPAN - skip));
    return place;
}

static void *host_map(void *ctx, int fd, uint64_t bytes, int32_t color)
{
    (void)ctx;
    if (bytes == 0 || bytes > SIZE_MAX || bytes % (uint64_t)sysconf(_SC_PAGESIZE) != 0)
        return NULL;
    void *place = place_of(bytes, color);
    void *ptr = mmap(place, (size_t)bytes, PROT_READ | PROT_WRITE,
                     MAP_SHARED | MAP_NORESERVE | (place != NULL ? MAP_FIXED : 0), fd, 0);
    if (ptr == MAP_FAILED && place != NULL)
        munmap(place, (size_t)bytes);
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

static size_t host_page_bytes(void *ctx)
{
    (void)ctx;
    return (size_t)sysconf(_SC_PAGESIZE);
}

/* A private mapping shows the file's page until it is written to; so each page is, without changing
 * it. */
static int host_detach(void *ctx, void *at, uint64_t bytes, int fd, uint64_t offset)
{
    void *ptr = mmap(at, (size_t)bytes, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE, fd, (off_t)offset);
    if (ptr == MAP_FAILED)
        return -errno;
    size_t page = host_page_bytes(ctx);
    for (uint64_t done = 0; done < bytes; done += page)
        atomic_fetch_or((_Atomic uint8_t *)at + done, 0);
    return 0;
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

static uint32_t host_user(void *ctx)
{
    (void)ctx;
    return (uint32_t)geteuid();
}

/* The set must be at least as large as the kernel's, whose size is not reported: grow until it
 * fits. */
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

/* Signals belong to the program: our threads block them all, except faults of their own, which
 * still reach crash handlers. */
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

static int host_thread_detach(void *ctx, void *thread)
{
    if (thread == NULL)
        return 0;
    int rc = pthread_detach(*(pthread_t *)thread);
    host_free(ctx, thread);
    return -rc;
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

/* ---- shared libraries ---- */

static void *host_library_open(void *ctx, const char *name, unsigned flags, char *ret_why,
                               size_t bytes)
{
    (void)ctx;
    int how = RTLD_NOW | RTLD_NODELETE;
    how |= (flags & OS_LIBRARY_GLOBAL) != 0 ? RTLD_GLOBAL : RTLD_LOCAL;
    how |= (flags & OS_LIBRARY_LOADED) != 0 ? RTLD_NOLOAD : 0;
    void *library = dlopen(name, how);
    if (library == NULL && bytes > 0) {
        const char *why = dlerror();
        (void)snprintf(ret_why, bytes, "%s", why != NULL ? why : "it can't be loaded");
    }
    return library;
}

static void *host_library_symbol(void *ctx, void *library, const char *name)
{
    (void)ctx;
    return dlsym(library != NULL ? library : RTLD_DEFAULT, name);
}

static void host_library_close(void *ctx, void *library)
{
    (void)ctx;
    if (library != NULL)
        (void)dlclose(library);
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

/* In place, as unsetenv() would race with readers in other threads and leave the bytes in memory.
 */
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
        .resolve = net_resolve,
        .interfaces = net_interfaces,
        .open = host_open,
        .create = host_create,
        .read = host_read,
        .write = host_write,
        .pwrite = host_pwrite,
        .stat = host_stat,
        .fstat = host_fstat,
        .mkdir = host_mkdir,
        .rename = host_rename,
        .unlink = host_unlink,
        .poll_create = host_poll_create,
        .poll_add = host_poll_add,
        .poll_change = host_poll_change,
        .poll_remove = host_poll_remove,
        .poll_wait = host_poll_wait,
        .bell_create = host_bell_create,
        .bell_ring = host_bell_ring,
        .bell_clear = host_bell_clear,
        .memfd = host_memfd,
        .memfd_check = host_memfd_check,
        .map = host_map,
        .unmap = host_unmap,
        .discard = host_discard,
        .share = host_share,
        .unshare = host_unshare,
        .detach = host_detach,
        .peer_read = host_peer_read,
        .pid = host_pid,
        .user = host_user,
        .page_bytes = host_page_bytes,
        .cpu_count = host_cpu_count,
        .thread_start = host_thread_start,
        .thread_join = host_thread_join,
        .thread_detach = host_thread_detach,
        .thread_pin = host_thread_pin,
        .yield = host_yield,
        .sleep_ns = host_sleep_ns,
        .futex_wait = host_futex_wait,
        .futex_wake = host_futex_wake,
        .library_open = host_library_open,
        .library_symbol = host_library_symbol,
        .library_close = host_library_close,
        .env = host_env,
        .env_each = host_env_each,
        .env_wipe = host_env_wipe,
    };
    return &host;
}

void os_host_watch_forks(void)
{
    fork_watch();
}

void os_host_alloc_counts(uint64_t *ret_live, uint64_t *ret_total)
{
    *ret_live = atomic_load_explicit(&alloc_live, memory_order_relaxed);
    *ret_total = atomic_load_explicit(&alloc_total, memory_order_relaxed);
}
