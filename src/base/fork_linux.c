/* SPDX-License-Identifier: Apache-2.0 */
/* fork_linux.c - see fork_linux.h.
 *
 * Thread: any.  Invariant: while the lock is free, a set bit is an open descriptor that we created.
 * Start reading at on_child(). */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE 1
#endif
#include "base/fork_linux.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <unistd.h>

#define NUMBERS_MAX   (1 << 20) /* what Linux allows a process by default, at most */
#define BITS_PER_WORD 64

/* Pages without a bit are never touched, so they cost nothing. */
static _Atomic uint64_t noted[NUMBERS_MAX / BITS_PER_WORD];
static _Atomic int word_end; /* no word from here on has ever had a bit */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;

void fork_lock(void)
{
    pthread_mutex_lock(&lock);
}

void fork_unlock(void)
{
    pthread_mutex_unlock(&lock);
}

void fork_note(int fd)
{
    if (fd < 0 || fd >= NUMBERS_MAX)
        return;
    int word = fd / BITS_PER_WORD;
    if (word >= atomic_load(&word_end))
        atomic_store(&word_end, word + 1);
    atomic_fetch_or(&noted[word], 1ull << fd % BITS_PER_WORD);
}

void fork_forget(int fd)
{
    if (fd >= 0 && fd < NUMBERS_MAX)
        atomic_fetch_and(&noted[fd / BITS_PER_WORD], ~(1ull << fd % BITS_PER_WORD));
}

bool fork_is_noted(int fd)
{
    return fd >= 0 && fd < NUMBERS_MAX &&
           (atomic_load(&noted[fd / BITS_PER_WORD]) >> fd % BITS_PER_WORD & 1) != 0;
}

static void replace(int fd, int nothing)
{
    if (nothing < 0 || dup3(nothing, fd, O_CLOEXEC) < 0)
        (void)close(fd);
}

static void on_child(void)
{
    int saved_errno = errno;
    int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
    int end = atomic_load(&word_end);
    for (int word = 0; word < end; word++) {
        uint64_t bits = atomic_exchange(&noted[word], 0);
        for (; bits != 0; bits &= bits - 1)
            replace(word * BITS_PER_WORD + __builtin_ctzll(bits), nothing);
    }
    if (nothing >= 0)
        (void)close(nothing);
    fork_unlock();
    errno = saved_errno;
}

static void register_handlers(void)
{
    (void)pthread_atfork(fork_lock, fork_unlock, on_child);
}

void fork_watch(void)
{
    (void)pthread_once(&once, register_handlers);
}
