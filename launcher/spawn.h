/* SPDX-License-Identifier: Apache-2.0 */
/* spawn.h - starting, watching and ending processes. This is the launcher's own platform file, as
 * src/base/os_linux.c is the core's: fork, exec, pidfd, signalfd and /proc appear nowhere else.
 *
 * Nothing that was started here may outlive the process that started it: a child is killed by the
 * kernel when its parent dies, and whatever escapes from a worker (a daemon, a grandchild in its
 * own session) is adopted by the agent, which finds it among its descendants. Thread: one per
 * process.  Start reading at spawn_start(). */
#ifndef HVD_LAUNCHER_SPAWN_H
#define HVD_LAUNCHER_SPAWN_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/os.h"
#include "mem.h"

#define SPAWN_KEPT_FD 100 /* shell scripts use single digits, bash saves its own from 10 on */

struct spawn {
    const char *path; /* program file; NULL: search argv[0] along env's PATH */
    char *const *argv;
    char *const *env;    /* NULL: ours */
    const char *cwd;     /* NULL or unreachable: stay */
    int fds[3];          /* stdin, stdout, stderr; -1: /dev/null */
    int kept_fd;         /* inherited as SPAWN_KEPT_FD; -1: none */
    bool wants_session;  /* its own session; otherwise its own process group */
    int death_signal;    /* when the parent dies; 0: none */
    uint64_t file_limit; /* soft limit on open files; 0: ours */
};

struct spawn_end {
    pid_t pid;
    int code;   /* exit code, 0 if ended by a signal */
    int signal; /* 0: exited */
};

/* Negative errno on failure. A program that cannot be executed says so on its stderr and exits with
 * 127 (not found) or 126, as env(1) does. *ret_pidfd is -1 where the kernel has none. */
int spawn_start(const struct spawn *s, pid_t *ret_pid, int *ret_pidfd);
bool spawn_reap(pid_t pid, struct spawn_end *ret); /* pid -1: any; false: none has ended */
bool spawn_has_children(void);
/* Signals every descendant of this process; returns how many there were. */
int spawn_signal_descendants(const struct os *os, int signal_number);
void spawn_signal_group(pid_t leader, int signal_number);

struct spawn_look { /* a process, as /proc shows it */
    char state;     /* 'R', 'S', 'D', 'T' ... of its main thread */
    char place[64]; /* the function of the kernel in which it sleeps; "": not known */
};
bool spawn_look(pid_t pid, struct spawn_look *ret); /* false: there is none */
bool spawn_is_descendant(pid_t pid);                /* of this process */
bool spawn_catches(pid_t pid, int signal_number);   /* it has a handler for this signal */
bool spawn_signal(pid_t pid, int signal_number);    /* this process alone; false: there is none */

/* Blocks the given signals and SIGCHLD and turns them into a descriptor; ignores SIGPIPE. */
int spawn_signals_open(void);
int spawn_signals_next(int fd, int *ret_sender_pid); /* a signal number, or 0: none pending */

void spawn_ignore_broken_pipes(void); /* writing gives an error instead; children start afresh */
void spawn_adopt_orphans(void);
int spawn_pipe(int ret_fds[2]);        /* close-on-exec, both ends blocking */
const char *spawn_self(void);          /* what to start for this very program to run again */
int spawn_socket_pair(int ret_fds[2]); /* close-on-exec, both ends blocking */
void spawn_nonblocking(int fd);
int spawn_duplicate(int fd);          /* close-on-exec */
char *spawn_directory(struct mem *m); /* the current one, "" if unknown */
char *spawn_self_path(struct mem *m); /* this program's file, "" if unknown */
void spawn_ensure_stdio(void);        /* 0 to 2 are open, if need be on /dev/null */
/* Raises our limit on open files as far as allowed; the old one is for the children. */
uint64_t spawn_raise_file_limit(void);
/* Moves stdin and stdout out of the way: they become /dev/null and a copy of stderr. */
int spawn_take_stdio(int *ret_in_fd, int *ret_out_fd);
/* A fresh unlinked file with these bytes, offset 0; -errno. */
int spawn_secret_file(const void *bytes, size_t n);
/* A file with these bytes that only we can read, in a folder of its own; NULL: there is no place
 * for it. To be removed by spawn_secret_remove(), which accepts NULL. */
char *spawn_secret_path(struct mem *m, const struct os *os, const void *bytes, size_t n);
void spawn_secret_remove(struct mem *m, const char *path);
/* A named pipe in the folder of such a file, which goes with it. Its descriptor, not blocking. */
int spawn_pipe_beside(struct mem *m, const char *path, char **ret_path);
#define SPAWN_NOTICE_NAME "notice"
#define SPAWN_STACK_NAME  "stack."  /* and a number */
#define SPAWN_STATUS_NAME "status." /* and a number */
/* The path of such a name in the folder of such a file; NULL: there is no such folder. */
char *spawn_path_beside(struct mem *m, const char *path, const char *name);
/* Adds the names in a folder that begin with `prefix`, at most 1,000. */
void spawn_list_folder(struct mem *m, const char *folder, const char *prefix, struct list *ret);
char *spawn_descriptor_path(struct mem *m, int fd); /* for our children; NULL if fd < 0 */
int64_t spawn_oom_kill_count(void);                 /* of this cgroup; -1: not known */

#endif
