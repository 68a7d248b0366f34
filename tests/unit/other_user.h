/* SPDX-License-Identifier: Apache-2.0 */
/* other_user.h - a process of another user that connects to one of our abstract Unix sockets: many
 * idle connections, reopened when they are closed, or as many as it can open and close.
 *
 * Needs root, to switch users; other_user_start() returns 0 if the test has to be skipped. */
#ifndef HVD_TESTS_OTHER_USER_H
#define HVD_TESTS_OTHER_USER_H

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "unit_case.h"

#define OTHER_USER      65534
#define OTHER_USER_IDLE 1000 /* a little less than a backlog and the usual limit of descriptors */

enum { OTHER_IDLE, OTHER_FLOOD };

/* For the array of cmocka's tests; body: unit_case() gives what the other user does. */
#define OTHER_USER_TESTS(body)                                                                     \
    UNIT_CASE(test_other_user_idle, body, OTHER_IDLE),                                             \
        UNIT_CASE(test_other_user_flood, body, OTHER_FLOOD)

static inline int other_user_dial(const char *name, int flags)
{
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    size_t n = strlen(name);
    memcpy(un.sun_path + 1, name, n);
    int fd = socket(AF_UNIX, SOCK_STREAM | flags, 0);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&un,
                           (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + n)) == 0)
        return fd;
    if (fd >= 0)
        close(fd);
    return -1;
}

static inline bool other_user_is_closed(int fd)
{
    char byte;
    return recv(fd, &byte, 1, MSG_DONTWAIT) == 0 || (errno != EAGAIN && errno != EWOULDBLOCK);
}

static inline void other_user_idle(const char *name, int ready)
{
    static int fds[OTHER_USER_IDLE];
    for (int i = 0; i < OTHER_USER_IDLE; i++)
        fds[i] = other_user_dial(name, SOCK_NONBLOCK);
    if (write(ready, "x", 1) != 1)
        return;
    for (;;) {
        for (int i = 0; i < OTHER_USER_IDLE; i++) {
            if (fds[i] >= 0 && other_user_is_closed(fds[i])) {
                close(fds[i]);
                fds[i] = -1;
            }
            if (fds[i] < 0)
                fds[i] = other_user_dial(name, SOCK_NONBLOCK);
        }
    }
}

static inline void other_user_flood(const char *name, int ready)
{
    for (int round = 0;; round++) {
        int fd = other_user_dial(name, SOCK_NONBLOCK);
        if (fd >= 0)
            close(fd);
        if (round == 2000 && write(ready, "x", 1) != 1)
            return;
    }
}

/* The process, which other_user_stop() ends; 0: we are not root. Returns once it is at work. */
static inline pid_t other_user_start(const char *name, bool is_flood)
{
    int ends[2];
    char byte;
    if (geteuid() != 0) {
        fprintf(stderr, "skipped: only root can act as a second user\n");
        return 0;
    }
    if (pipe(ends) != 0)
        return -1;
    pid_t pid = fork();
    if (pid == 0) {
        close(ends[0]);
        if (setgid(OTHER_USER) != 0 || setuid(OTHER_USER) != 0 ||
            prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) /* in this order: a new user clears it */
            _exit(1);
        if (is_flood)
            other_user_flood(name, ends[1]);
        else
            other_user_idle(name, ends[1]);
        _exit(0);
    }
    close(ends[1]);
    if (read(ends[0], &byte, 1) != 1)
        pid = -1;
    close(ends[0]);
    return pid;
}

static inline void other_user_stop(pid_t pid)
{
    if (pid <= 0)
        return;
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

#endif
