/* SPDX-License-Identifier: Apache-2.0 */
/* signal_linux.c - see signal.h. A handler has no argument, so its state is the process's. */
#include "base/signal.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <unistd.h>

static _Atomic int bell_fd = -1;
static int32_t bell_pid; /* the process that made it: a child of fork() has /dev/null instead */

static void on_signal(int number)
{
    static const uint64_t one = 1;
    int saved = errno;
    int fd = atomic_load(&bell_fd);
    (void)number;
    if (fd >= 0)
        (void)!write(fd, &one, sizeof one); /* a bell that is full has rung */
    errno = saved;
}

static int number_of(enum signal_name name)
{
    switch (name) {
    case SIGNAL_DUMP: return SIGUSR1;
    }
    return 0;
}

int signal_bell(const struct os *os, enum signal_name name)
{
    struct sigaction old, ours = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    int number = number_of(name);
    if (sigaction(number, NULL, &old) != 0)
        return -errno;
    bool is_ours = (old.sa_flags & SA_SIGINFO) == 0 && old.sa_handler == on_signal;
    bool is_free = (old.sa_flags & SA_SIGINFO) == 0 && old.sa_handler == SIG_DFL;
    if (!is_ours && !is_free)
        return -EBUSY;
    if (atomic_load(&bell_fd) < 0 || bell_pid != os->pid(os->ctx)) {
        int fd = os->bell_create(os->ctx);
        if (fd < 0)
            return fd;
        bell_pid = os->pid(os->ctx);
        atomic_store(&bell_fd, fd);
    }
    sigemptyset(&ours.sa_mask);
    if (is_free && sigaction(number, &ours, NULL) != 0)
        return -errno;
    return atomic_load(&bell_fd);
}
