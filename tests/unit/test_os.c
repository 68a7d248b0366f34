/* SPDX-License-Identifier: Apache-2.0 */
/* test_os.c - the real os table: clocks, memory, sockets, files, polling and bells across threads,
 * shared memory, reading a peer, futexes, the environment. */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/os.h"

#define MS 1000000LL

static const struct os *os;

static int setup(void **state)
{
    (void)state;
    os = os_host();
    return 0;
}

static void assert_flags(int fd)
{
    assert_true((fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0);
    assert_true((fcntl(fd, F_GETFL) & O_NONBLOCK) != 0);
}

static void no_call_is_missing(void **state)
{
    (void)state;
    const char *at = (const char *)os;
    for (size_t i = sizeof(void *); i < sizeof *os; i += sizeof(void *)) {
        void *entry;
        memcpy(&entry, at + i, sizeof entry);
        assert_non_null(entry);
    }
}

static void clocks_and_random(void **state)
{
    (void)state;
    int64_t start = os_now_ns(os);
    os->sleep_ns(os->ctx, 2 * MS);
    os->sleep_ns(os->ctx, -1);
    assert_true(os_now_ns(os) - start >= 2 * MS);
    assert_true(os->wall_us(os->ctx) > 1700000000LL * 1000000);
    uint8_t a[64] = {0}, b[64] = {0};
    assert_int_equal(os->random(os->ctx, a, sizeof a), 0);
    assert_int_equal(os->random(os->ctx, b, sizeof b), 0);
    assert_memory_not_equal(a, b, sizeof a);
    assert_true(os->cpu_count(os->ctx) >= 1);
    assert_int_equal(os->pid(os->ctx), getpid());
}

static void memory_is_zeroed_and_counted(void **state)
{
    (void)state;
    uint64_t live, total, live_now, total_now;
    os_host_alloc_counts(&live, &total);
    uint8_t *a = os_alloc(os, 1000);
    void *nothing = os_alloc(os, 0);
    uint8_t *b = os->resize(os->ctx, NULL, 10);
    assert_true(a != NULL && b != NULL && nothing != NULL);
    for (int i = 0; i < 1000; i++)
        assert_int_equal(a[i], 0);
    memset(b, 7, 10);
    b = os->resize(os->ctx, b, 100000);
    assert_non_null(b);
    assert_int_equal(b[9], 7);
    os_host_alloc_counts(&live_now, &total_now);
    assert_int_equal(live_now - live, 3);
    assert_int_equal(total_now - total, 4);
    os_free(os, a);
    os_free(os, b);
    os_free(os, nothing);
    os_free(os, NULL);
    os_host_alloc_counts(&live_now, &total_now);
    assert_int_equal(live_now, live);
}

/* A listening socket on loopback; its address into ret_addr. */
static int listen_loopback(struct sockaddr_in *ret_addr)
{
    int fd = os->socket(os->ctx, AF_INET, SOCK_STREAM);
    assert_true(fd >= 0);
    assert_flags(fd);
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    assert_int_equal(os->bind(os->ctx, fd, (struct sockaddr *)&addr, sizeof addr), 0);
    assert_int_equal(os->listen(os->ctx, fd, 4), 0);
    unsigned len = sizeof *ret_addr;
    assert_int_equal(os->getsockname(os->ctx, fd, (struct sockaddr *)ret_addr, &len), 0);
    return fd;
}

static void wait_for(int fd, bool want_write)
{
    int poll_fd = os->poll_create(os->ctx);
    assert_true(poll_fd >= 0);
    assert_int_equal(os->poll_add(os->ctx, poll_fd, fd, NULL, want_write), 0);
    struct os_event event;
    assert_int_equal(os->poll_wait(os->ctx, poll_fd, &event, 1, 10000 * MS), 1);
    assert_int_equal(os->close(os->ctx, poll_fd), 0);
}

static void tcp_round_trip(void **state)
{
    (void)state;
    struct sockaddr_in addr;
    int listener = listen_loopback(&addr);
    assert_int_equal(os->accept(os->ctx, listener, NULL, NULL), -EAGAIN);
    int dialer = os->socket(os->ctx, AF_INET, SOCK_STREAM);
    int rc = os->connect(os->ctx, dialer, (struct sockaddr *)&addr, sizeof addr);
    assert_true(rc == 0 || rc == -EINPROGRESS);
    wait_for(listener, false);
    int accepted = os->accept(os->ctx, listener, NULL, NULL);
    assert_true(accepted >= 0);
    assert_flags(accepted);
    wait_for(dialer, true);
    int failure = -1, on = 1;
    unsigned len = sizeof failure;
    assert_int_equal(os->sockopt_get(os->ctx, dialer, SOL_SOCKET, SO_ERROR, &failure, &len), 0);
    assert_int_equal(failure, 0);
    assert_int_equal(os->sockopt_set(os->ctx, dialer, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on), 0);

    char hello[] = "hello ", world[] = "world", got[32] = "";
    struct iovec iov[2] = {{hello, 6}, {world, 5}};
    assert_int_equal(os->recv(os->ctx, accepted, got, sizeof got), -EAGAIN);
    assert_int_equal(os->send(os->ctx, dialer, iov, 2), 11);
    wait_for(accepted, false);
    assert_int_equal(os->recv(os->ctx, accepted, got, sizeof got), 11);
    assert_memory_equal(got, "hello world", 11);

    assert_int_equal(os->close(os->ctx, dialer), 0);
    wait_for(accepted, false);
    assert_int_equal(os->recv(os->ctx, accepted, got, sizeof got), 0);
    (void)os->send(os->ctx, accepted, iov, 1); /* the peer answers with a reset, or has already */
    os->sleep_ns(os->ctx, MS);
    int64_t sent = 0;
    for (int i = 0; i < 1000 && sent >= 0; i++)
        sent = os->send(os->ctx, accepted, iov, 1);
    assert_true(sent == -EPIPE || sent == -ECONNRESET); /* and no SIGPIPE */
    assert_int_equal(os->close(os->ctx, accepted), 0);
    assert_int_equal(os->close(os->ctx, listener), 0);
}

static void poll_tells_what_is_ready(void **state)
{
    (void)state;
    int ends[2], tag_a, tag_b;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends), 0);
    int poll_fd = os->poll_create(os->ctx);
    struct os_event events[4];
    assert_int_equal(os->poll_wait(os->ctx, poll_fd, events, 4, 0), 0);
    assert_int_equal(os->poll_add(os->ctx, poll_fd, ends[0], &tag_a, false), 0);
    assert_int_equal(os->poll_add(os->ctx, poll_fd, ends[0], &tag_a, false), -EEXIST);
    assert_int_equal(os->poll_wait(os->ctx, poll_fd, events, 4, MS / 2), 0);
    assert_int_equal(os->poll_change(os->ctx, poll_fd, ends[0], &tag_b, true), 0);
    assert_int_equal(os->poll_wait(os->ctx, poll_fd, events, 4, -1), 1);
    assert_ptr_equal(events[0].tag, &tag_b);
    assert_true(events[0].writable && !events[0].readable && !events[0].closed);
    assert_int_equal(os->write(os->ctx, ends[1], "x", 1), 1);
    assert_int_equal(os->poll_wait(os->ctx, poll_fd, events, 4, 0), 1);
    assert_true(events[0].writable && events[0].readable);
    assert_int_equal(os->close(os->ctx, ends[1]), 0);
    assert_int_equal(os->poll_wait(os->ctx, poll_fd, events, 4, 0), 1);
    assert_true(events[0].readable && events[0].closed); /* the byte is still there to be read */
    assert_int_equal(os->poll_remove(os->ctx, poll_fd, ends[0]), 0);
    assert_int_equal(os->poll_wait(os->ctx, poll_fd, events, 4, 0), 0);
    assert_int_equal(os->close(os->ctx, ends[0]), 0);
    assert_int_equal(os->close(os->ctx, poll_fd), 0);
    assert_int_equal(os->close(os->ctx, -1), -EBADF);
}

static void *ring_later(void *arg)
{
    os->sleep_ns(os->ctx, 5 * MS);
    assert_int_equal(os->bell_ring(os->ctx, *(int *)arg), 0);
    return NULL;
}

static void bell_wakes_another_thread(void **state)
{
    (void)state;
    int bell = os->bell_create(os->ctx);
    int poll_fd = os->poll_create(os->ctx);
    assert_true(bell >= 0 && poll_fd >= 0);
    assert_flags(bell);
    assert_int_equal(os->poll_add(os->ctx, poll_fd, bell, &bell, false), 0);
    void *thread = NULL;
    assert_int_equal(
        os->thread_start(os->ctx, ring_later, &bell, "a name that is too long", &thread), 0);
    struct os_event event;
    assert_int_equal(os->poll_wait(os->ctx, poll_fd, &event, 1, -1), 1);
    assert_ptr_equal(event.tag, &bell);
    assert_true(event.readable);
    assert_int_equal(os->thread_join(os->ctx, thread), 0);
    assert_int_equal(os->thread_join(os->ctx, NULL), 0);
    assert_int_equal(os->bell_ring(os->ctx, bell), 0);
    assert_int_equal(os->bell_clear(os->ctx, bell), 0);
    assert_int_equal(os->bell_clear(os->ctx, bell), 0);
    assert_int_equal(os->poll_wait(os->ctx, poll_fd, &event, 1, 0), 0);
    assert_int_equal(os->close(os->ctx, poll_fd), 0);
    assert_int_equal(os->close(os->ctx, bell), 0);
}

static void shared_memory(void **state)
{
    (void)state;
    const uint64_t bytes = 1ull << 32; /* far more than is ever touched */
    int fd = os->memfd(os->ctx, "hvd-test", bytes);
    assert_true(fd >= 0);
    assert_true((fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0);
    assert_true(ftruncate(fd, 4096) < 0 && errno == EPERM);
    assert_true(ftruncate(fd, (off_t)bytes * 2) < 0 && errno == EPERM);
    uint8_t *a = os->map(os->ctx, fd, bytes, -1);
    uint8_t *b = os->map(os->ctx, fd, bytes, -1);
    assert_true(a != NULL && b != NULL && a != b);
    a[0] = 1;
    a[bytes - 1] = 2;
    assert_int_equal(b[0], 1);
    assert_int_equal(b[bytes - 1], 2);
    struct stat before, after;
    assert_int_equal(fstat(fd, &before), 0);
    assert_int_equal(os->discard(os->ctx, fd, 0, 1 << 20), 0);
    assert_int_equal(b[0], 0);
    assert_int_equal(b[bytes - 1], 2);
    assert_int_equal(fstat(fd, &after), 0);
    assert_true(before.st_size == after.st_size);
    assert_int_equal(os->unmap(os->ctx, a, bytes), 0);
    assert_int_equal(os->unmap(os->ctx, b, bytes), 0);
    assert_int_equal(os->unmap(os->ctx, NULL, 0), 0);
    assert_int_equal(os->close(os->ctx, fd), 0);
    assert_null(os->map(os->ctx, -1, 4096, -1));
    assert_null(os->map(os->ctx, fd, 0, -1));
    assert_int_equal(os->memfd(os->ctx, "x", UINT64_MAX), -EFBIG);
}

/* Whatever a processor hashes out of the bits 12 to 27: where two addresses agree in the bits below
 * 21 and differ in those above, no fold of the upper onto the lower bits makes them equal. */
static void colors(void **state)
{
    (void)state;
    const uint64_t bytes = 1ull << 30;
    uint8_t *at[OS_COLORS];
    bool is_taken[OS_COLORS] = {false};
    int fd = os->memfd(os->ctx, "hvd-test", bytes);
    assert_true(fd >= 0);
    for (int32_t i = 0; i < OS_COLORS; i++) {
        at[i] = os->map(os->ctx, fd, bytes, i);
        assert_non_null(at[i]);
        at[i][bytes - 1] = (uint8_t)i;
        assert_int_equal((uintptr_t)at[i] % (2u << 20), 0);
        uintptr_t color = (uintptr_t)at[i] >> 21 & (OS_COLORS - 1);
        assert_false(is_taken[color]);
        is_taken[color] = true;
    }
    assert_int_equal(at[0][bytes - 1], OS_COLORS - 1);
    for (int32_t i = 0; i < OS_COLORS; i++)
        assert_int_equal(os->unmap(os->ctx, at[i], bytes), 0);
    assert_int_equal(os->close(os->ctx, fd), 0);
    assert_null(os->map(os->ctx, -1, 4096, 3));
    assert_null(os->map(os->ctx, -1, 100, 3));
}

static void peer_read_of_oneself(void **state)
{
    (void)state;
    char from[] = "some bytes", to[sizeof from] = "";
    struct iovec local = {to, sizeof to}, remote = {from, sizeof from};
    if (HVD_TEST_EMULATED)
        skip(); /* qemu knows no process_vm_readv() */
    assert_int_equal(os->peer_read(os->ctx, os->pid(os->ctx), &local, 1, &remote, 1), sizeof from);
    assert_string_equal(to, "some bytes");
    remote.iov_base = NULL;
    assert_int_equal(os->peer_read(os->ctx, os->pid(os->ctx), &local, 1, &remote, 1), -EFAULT);
    assert_int_equal(os->peer_read(os->ctx, INT32_MAX, &local, 1, &remote, 1), -ESRCH);
}

static void *wake_later(void *arg)
{
    _Atomic uint32_t *word = arg;
    os->sleep_ns(os->ctx, 5 * MS);
    atomic_store(word, 1);
    assert_true(os->futex_wake(os->ctx, (const uint32_t *)word, 1) >= 0);
    return NULL;
}

static void futex(void **state)
{
    (void)state;
    _Atomic uint32_t word = 0;
    const uint32_t *plain = (const uint32_t *)&word;
    assert_int_equal(os->futex_wait(os->ctx, plain, 5, -1), -EAGAIN);
    assert_int_equal(os->futex_wait(os->ctx, plain, 0, MS), -ETIMEDOUT);
    assert_int_equal(os->futex_wake(os->ctx, plain, 1), 0);
    void *thread = NULL;
    assert_int_equal(os->thread_start(os->ctx, wake_later, &word, "waker", &thread), 0);
    while (atomic_load(&word) == 0) {
        int rc = os->futex_wait(os->ctx, plain, 0, -1);
        assert_true(rc == 0 || rc == -EAGAIN);
    }
    assert_int_equal(os->thread_join(os->ctx, thread), 0);
    os->yield(os->ctx);
}

static void files(void **state)
{
    (void)state;
    char path[] = "/tmp/hvd_test_os_XXXXXX";
    int made = mkstemp(path);
    assert_true(made >= 0);
    close(made);
    int fd = os->open(os->ctx, path, O_RDWR | O_TRUNC, 0600);
    assert_true(fd >= 0);
    assert_flags(fd);
    assert_int_equal(os->write(os->ctx, fd, "abcdef", 6), 6);
    assert_int_equal(os->pwrite(os->ctx, fd, "XY", 2, 1), 2);
    assert_int_equal(lseek(fd, 0, SEEK_SET), 0);
    char text[8] = "";
    assert_int_equal(os->read(os->ctx, fd, text, sizeof text), 6);
    assert_string_equal(text, "aXYdef");
    assert_int_equal(os->read(os->ctx, fd, text, sizeof text), 0);
    assert_int_equal(os->close(os->ctx, fd), 0);
    unlink(path);
    assert_int_equal(os->open(os->ctx, path, O_RDONLY, 0), -ENOENT);
}

/* Descriptors passed over a socket arrive close-on-exec. */
static int create_file(const char *folder, const char *name, unsigned mode)
{
    char path[160];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    int fd = os->create(os->ctx, path, mode);
    if (fd >= 0)
        os->close(os->ctx, fd);
    return fd < 0 ? fd : 0;
}

static void plant(const char *folder, const char *name, const char *target, unsigned owner)
{
    char path[160];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    if (target != NULL) {
        assert_int_equal(symlink(target, path), 0);
    } else {
        int fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0666);
        assert_true(fd >= 0);
        assert_int_equal(write(fd, "theirs", 6), 6);
        close(fd);
    }
    if (owner != 0)
        assert_int_equal(lchown(path, owner, owner), 0);
}

static int64_t size_of(const char *path)
{
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    return (int64_t)st.st_size;
}

/* Files that another user has put where we are going to write. */
static void files_that_are_traps(void **state)
{
    (void)state;
    char folder[] = "/tmp/horovod-create-XXXXXX", own[64], shared[64], precious[64], path[128];
    struct stat st;
    assert_non_null(mkdtemp(folder));
    snprintf(own, sizeof own, "%s/own", folder);
    snprintf(shared, sizeof shared, "%s/shared", folder);
    snprintf(precious, sizeof precious, "%s/precious", folder);
    assert_int_equal(mkdir(own, 0755), 0);
    assert_int_equal(mkdir(shared, 0777), 0);
    assert_int_equal(chmod(shared, 01777), 0);
    plant(folder, "precious", NULL, 0);
    /* where only we can write, links are ours */
    plant(own, "link", precious, 0);
    assert_int_equal(create_file(own, "new", 0600), 0);
    snprintf(path, sizeof path, "%s/new", own);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0600);
    assert_int_equal(create_file(shared, "new", 0600), 0);
    assert_int_equal(create_file(shared, "new", 0600), 0); /* once more: it is our own */
    if (geteuid() == 0) {
        plant(shared, "link", precious, 65534);
        plant(shared, "file", NULL, 65534);
        assert_int_equal(create_file(shared, "link", 0644), -ELOOP);
        assert_int_equal(create_file(shared, "file", 0644), -EPERM);
        assert_int_equal(size_of(precious), 6);
        snprintf(path, sizeof path, "%s/file", shared);
        assert_int_equal(size_of(path), 6);
        assert_int_equal(chown(own, 65534, 65534), 0); /* a folder of somebody else */
        assert_int_equal(create_file(own, "link", 0644), -ELOOP);
        assert_int_equal(chown(own, 0, 0), 0);
    }
    assert_int_equal(size_of(precious), 6);
    snprintf(path, sizeof path, "%s/hard", shared);
    assert_int_equal(link(precious, path), 0);
    assert_int_equal(create_file(shared, "hard", 0644), -EPERM);
    assert_int_equal(size_of(precious), 6);
    assert_int_equal(create_file(own, "link", 0644), 0);
    assert_int_equal(size_of(precious), 0);
    assert_string_not_equal(os_create_hint(-ELOOP), "");
    assert_string_equal(os_create_hint(-ENOENT), "");
    char command[96];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    assert_int_equal(system(command), 0);
}

static void descriptors_travel(void **state)
{
    (void)state;
    int ends[2], bell = os->bell_create(os->ctx);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends), 0);
    char byte = 'x';
    struct iovec iov = {&byte, 1};
    union {
        char bytes[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } control = {0};
    struct msghdr msg = {.msg_iov = &iov,
                         .msg_iovlen = 1,
                         .msg_control = control.bytes,
                         .msg_controllen = sizeof control.bytes};
    struct cmsghdr *cmsg = CMSG_FIRSTHDR(&msg);
    cmsg->cmsg_level = SOL_SOCKET;
    cmsg->cmsg_type = SCM_RIGHTS;
    cmsg->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(cmsg), &bell, sizeof bell);
    assert_int_equal(os->sendmsg(os->ctx, ends[0], &msg), 1);
    memset(&control, 0, sizeof control);
    msg.msg_controllen = sizeof control.bytes;
    assert_int_equal(os->recvmsg(os->ctx, ends[1], &msg), 1);
    cmsg = CMSG_FIRSTHDR(&msg);
    assert_non_null(cmsg);
    int arrived;
    memcpy(&arrived, CMSG_DATA(cmsg), sizeof arrived);
    assert_true(arrived != bell);
    assert_flags(arrived);
    assert_int_equal(os->recvmsg(os->ctx, ends[1], &msg), -EAGAIN);
    int fds[] = {arrived, bell, ends[0], ends[1]};
    for (int i = 0; i < 4; i++)
        assert_int_equal(os->close(os->ctx, fds[i]), 0);
}

/* ---- forked children ---- */

static bool is_kind(int fd, mode_t kind)
{
    struct stat info;
    return fstat(fd, &info) == 0 && (info.st_mode & S_IFMT) == kind;
}

static int wait_code(pid_t child)
{
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* The child has neither our sockets nor pollers, bells and memory; what is the user's it keeps, and
 * the numbers stay taken. */
static void child_keeps_nothing_of_ours(void **state)
{
    (void)state;
    os_host_watch_forks();
    int sockets[2], pair[2], bell = os->bell_create(os->ctx), poll_fd = os->poll_create(os->ctx);
    int memory = os->memfd(os->ctx, "test", 4096);
    for (int i = 0; i < 2; i++)
        sockets[i] = os->socket(os->ctx, AF_INET, SOCK_STREAM);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    int gone = os->socket(os->ctx, AF_INET, SOCK_STREAM);
    os->close(os->ctx, gone);
    int reused = dup(pair[0]); /* the user's, under a number that was ours */
    assert_int_equal(reused, gone);
    pid_t child = fork();
    if (child == 0) {
        const int ours[] = {sockets[0], sockets[1], bell, poll_fd, memory};
        for (size_t i = 0; i < sizeof ours / sizeof *ours; i++)
            if (!is_kind(ours[i], S_IFCHR) || (fcntl(ours[i], F_GETFD) & FD_CLOEXEC) == 0)
                _exit(10 + (int)i);
        if (!is_kind(pair[0], S_IFSOCK) || !is_kind(reused, S_IFSOCK))
            _exit(2);
        int fresh = os->socket(os->ctx, AF_INET, SOCK_STREAM);
        if (fresh <= memory || os->close(os->ctx, memory) != 0)
            _exit(3);
        pid_t grandchild = fork(); /* what the child made is its own to lose */
        if (grandchild == 0)
            _exit(is_kind(fresh, S_IFCHR) && is_kind(pair[0], S_IFSOCK) ? 0 : 4);
        _exit(wait_code(grandchild));
    }
    assert_int_equal(wait_code(child), 0);
    for (int i = 0; i < 2; i++)
        assert_true(is_kind(sockets[i], S_IFSOCK));
    const int all[] = {sockets[0], sockets[1], bell, poll_fd, memory};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        os->close(os->ctx, all[i]);
    close(pair[0]);
    close(pair[1]);
    close(reused);
}

static atomic_bool is_making_over;

static void *make_and_close(void *arg)
{
    while (!atomic_load(&is_making_over)) {
        int fd = os->socket(os->ctx, AF_INET, SOCK_STREAM), bell = os->bell_create(os->ctx);
        os->close(os->ctx, fd);
        os->close(os->ctx, bell);
    }
    return arg;
}

/* Another thread makes and closes descriptors all the time: no fork may catch one in between. */
static void fork_while_descriptors_are_made(void **state)
{
    (void)state;
    void *threads[2];
    os_host_watch_forks();
    atomic_store(&is_making_over, false);
    bool was_socket[64];
    for (int fd = 0; fd < 64; fd++)
        was_socket[fd] = is_kind(fd, S_IFSOCK);
    for (int i = 0; i < 2; i++)
        assert_int_equal(os->thread_start(os->ctx, make_and_close, NULL, "maker", &threads[i]), 0);
    int kept = 0;
    for (int round = 0; round < 200 && kept == 0; round++) {
        pid_t child = fork();
        if (child == 0) {
            for (int fd = 0; fd < 64; fd++)
                if (!was_socket[fd] && is_kind(fd, S_IFSOCK))
                    _exit(1);
            _exit(0);
        }
        kept = wait_code(child);
    }
    atomic_store(&is_making_over, true);
    for (int i = 0; i < 2; i++)
        os->thread_join(os->ctx, threads[i]);
    assert_int_equal(kept, 0);
}

static void see_variable(void *arg, const char *name, const char *value)
{
    if (strcmp(name, "HVD_TEST_OS") == 0 && strcmp(value, "a=b") == 0)
        ++*(int *)arg;
}

static void environment(void **state)
{
    (void)state;
    char variable[] = "HVD_TEST_OS=a=b";
    assert_int_equal(putenv(variable), 0);
    assert_string_equal(os->env(os->ctx, "HVD_TEST_OS"), "a=b");
    assert_null(os->env(os->ctx, "HVD_TEST_OS_NOT"));
    int seen = 0;
    os->env_each(os->ctx, see_variable, &seen);
    assert_int_equal(seen, 1);
    os->env_wipe(os->ctx, "HVD_TEST_OS");
    os->env_wipe(os->ctx, "HVD_TEST_OS_NOT");
    assert_string_equal(os->env(os->ctx, "HVD_TEST_OS"), "");
    assert_memory_equal(variable, "HVD_TEST_OS=\0\0\0", sizeof variable);
    assert_int_equal(unsetenv("HVD_TEST_OS"), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_call_is_missing),
        cmocka_unit_test(clocks_and_random),
        cmocka_unit_test(memory_is_zeroed_and_counted),
        cmocka_unit_test(tcp_round_trip),
        cmocka_unit_test(poll_tells_what_is_ready),
        cmocka_unit_test(bell_wakes_another_thread),
        cmocka_unit_test(colors),
        cmocka_unit_test(shared_memory),
        cmocka_unit_test(peer_read_of_oneself),
        cmocka_unit_test(futex),
        cmocka_unit_test(files),
        cmocka_unit_test(files_that_are_traps),
        cmocka_unit_test(descriptors_travel),
        cmocka_unit_test(child_keeps_nothing_of_ours),
        cmocka_unit_test(fork_while_descriptors_are_made),
        cmocka_unit_test(environment),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
