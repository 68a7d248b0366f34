/* SPDX-License-Identifier: Apache-2.0 */
/* spawn.c - see spawn.h. Linux. Between fork and exec only what cannot fail loudly is done; the
 * process is single threaded, so the child may use libc.
 * Thread: one per process.  Start reading at spawn_start(). */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE 1
#endif
#include "spawn.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define PIPE_NAME  "cause"
#define PIPE_BYTES (1 << 20)

extern char **environ;

#define NAMES_MAX 1000u

static const int watched_signals[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGCHLD, SIGTSTP, SIGCONT};

/* ---- the child, between fork and exec ---- */

static void child_close_from(unsigned first, unsigned last)
{
#ifdef SYS_close_range
    if (syscall(SYS_close_range, first, last, 0) == 0)
        return;
#endif
    long limit = sysconf(_SC_OPEN_MAX);
    unsigned end = limit > 0 && limit < 65536 ? (unsigned)limit : 65536;
    for (unsigned fd = first; fd <= last && fd < end; fd++)
        close((int)fd);
}

static void child_signals(void)
{
    sigset_t none;
    sigemptyset(&none);
    signal(SIGPIPE, SIG_DFL);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

static void child_file_limit(uint64_t soft)
{
    struct rlimit limit;
    if (soft == 0 || getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return;
    limit.rlim_cur = (rlim_t)soft;
    setrlimit(RLIMIT_NOFILE, &limit);
}

static void child_descriptors(const struct spawn *s)
{
    int fds[3];
    for (int i = 0; i < 3; i++) { /* first out of the range that is about to be overwritten */
        int fd = s->fds[i] >= 0 ? s->fds[i] : open("/dev/null", i == 0 ? O_RDONLY : O_WRONLY);
        fds[i] = fcntl(fd, F_DUPFD, SPAWN_KEPT_FD + 1);
    }
    if (s->kept_fd >= 0)
        dup2(s->kept_fd, SPAWN_KEPT_FD);
    for (int i = 0; i < 3; i++)
        dup2(fds[i], i);
    child_close_from(3, s->kept_fd >= 0 ? SPAWN_KEPT_FD - 1 : SPAWN_KEPT_FD);
    child_close_from(SPAWN_KEPT_FD + 1, ~0u);
}

static const char *env_value(char *const *env, const char *name)
{
    size_t n = strlen(name);
    for (; *env != NULL; env++)
        if (strncmp(*env, name, n) == 0 && (*env)[n] == '=')
            return *env + n + 1;
    return NULL;
}

/* A script without "#!" is the shell's, as with execvp(). */
static void child_exec_file(const char *path, char *const *argv, char *const *env)
{
    execve(path, argv, env);
    if (errno != ENOEXEC)
        return;
    size_t count = 0;
    while (argv[count] != NULL)
        count++;
    const char **shell = calloc(count + 2, sizeof *shell);
    if (shell == NULL)
        return;
    shell[0] = "sh";
    shell[1] = path;
    for (size_t i = 1; i < count; i++)
        shell[i + 1] = argv[i];
    execve("/bin/sh", (char *const *)shell, env);
    free(shell);
}

static void child_exec_search(char *const *argv, char *const *env)
{
    const char *path = env_value(env, "PATH");
    if (path == NULL || *path == '\0')
        path = "/usr/local/bin:/usr/bin:/bin";
    int cause = ENOENT;
    for (;;) {
        size_t n = strcspn(path, ":");
        char file[PATH_MAX];
        int used = snprintf(file, sizeof file, "%.*s%s%s", (int)n, path, n > 0 ? "/" : "", argv[0]);
        if (used > 0 && (size_t)used < sizeof file) {
            child_exec_file(file, argv, env);
            if (errno != ENOENT && errno != ENOTDIR)
                cause = errno; /* found but not usable: the better message */
        }
        if (path[n] == '\0')
            break;
        path += n + 1;
    }
    errno = cause;
}

static _Noreturn void child_run(const struct spawn *s, pid_t parent)
{
    if (s->death_signal != 0) {
        prctl(PR_SET_PDEATHSIG, s->death_signal);
        if (getppid() != parent) /* it died before we asked */
            _exit(1);
    }
    if (s->wants_session)
        setsid();
    else
        setpgid(0, 0);
    child_descriptors(s);
    child_signals();
    child_file_limit(s->file_limit);
    if (s->cwd != NULL && chdir(s->cwd) != 0)
        dprintf(STDERR_FILENO, "horovodrun: cannot change to directory %s: %s\n", s->cwd,
                strerror(errno));
    char *const *env = s->env == NULL ? environ : s->env;
    if (s->path != NULL)
        execve(s->path, s->argv, env);
    else if (strchr(s->argv[0], '/') != NULL)
        child_exec_file(s->argv[0], s->argv, env);
    else
        child_exec_search(s->argv, env);
    int cause = errno;
    dprintf(STDERR_FILENO, "horovodrun: cannot run '%s': %s\n", s->argv[0], strerror(cause));
    _exit(cause == ENOENT ? 127 : 126);
}

/* ---- the parent ---- */

int spawn_start(const struct spawn *s, pid_t *ret_pid, int *ret_pidfd)
{
    pid_t parent = getpid();
    pid_t pid = fork();
    if (pid < 0)
        return -errno;
    if (pid == 0)
        child_run(s, parent);
    if (!s->wants_session)
        setpgid(pid, pid); /* both sides do it, so that neither has to wait for the other */
    *ret_pid = pid;
    *ret_pidfd = -1;
#ifdef SYS_pidfd_open
    *ret_pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
#endif
    return 0;
}

bool spawn_reap(pid_t pid, struct spawn_end *ret)
{
    int status = 0;
    pid_t got = waitpid(pid, &status, WNOHANG);
    if (got <= 0)
        return false;
    *ret = (struct spawn_end){.pid = got,
                              .code = WIFEXITED(status) ? WEXITSTATUS(status) : 0,
                              .signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0};
    return true;
}

bool spawn_has_children(void)
{
    siginfo_t info;
    return waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0 || errno != ECHILD;
}

void spawn_signal_group(pid_t leader, int signal_number)
{
    if (leader > 1)
        kill(-leader, signal_number);
}

/* ---- descendants, from /proc ---- */

struct process {
    pid_t pid, parent;
};

static bool process_read(const char *name, struct process *ret)
{
    char path[64], text[512];
    snprintf(path, sizeof path, "/proc/%.20s/stat", name);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    ssize_t n = read(fd, text, sizeof text - 1);
    close(fd);
    if (n <= 0)
        return false;
    text[n] = '\0';
    const char *behind = strrchr(text, ')'); /* the name may hold anything, even ')' */
    char state = 0;
    int parent = 0;
    if (behind == NULL || sscanf(behind + 1, " %c %d", &state, &parent) != 2 || state == 'Z')
        return false;
    ret->pid = (pid_t)atoi(name);
    ret->parent = (pid_t)parent;
    return true;
}

static size_t processes_read(const struct os *os, struct bytes *ret)
{
    DIR *dir = opendir("/proc");
    if (dir == NULL)
        return 0;
    for (const struct dirent *e = readdir(dir); e != NULL; e = readdir(dir)) {
        struct process p;
        if (e->d_name[0] >= '1' && e->d_name[0] <= '9' && process_read(e->d_name, &p))
            bytes_add(os, ret, &p, sizeof p);
    }
    closedir(dir);
    return bytes_used(ret) / sizeof(struct process);
}

static bool is_member(const pid_t *set, size_t count, pid_t pid)
{
    for (size_t i = 0; i < count; i++)
        if (set[i] == pid)
            return true;
    return false;
}

int spawn_signal_descendants(const struct os *os, int signal_number)
{
    struct bytes table = {0}, family = {0};
    size_t count = processes_read(os, &table);
    const struct process *all = (const struct process *)(const void *)bytes_at(&table);
    pid_t self = getpid();
    bytes_add(os, &family, &self, sizeof self);
    for (bool has_grown = true; has_grown;) { /* one pass per generation */
        has_grown = false;
        for (size_t i = 0; i < count; i++) {
            const pid_t *set = (const pid_t *)(const void *)bytes_at(&family);
            size_t members = bytes_used(&family) / sizeof *set;
            if (!is_member(set, members, all[i].parent) || is_member(set, members, all[i].pid))
                continue;
            bytes_add(os, &family, &all[i].pid, sizeof all[i].pid);
            has_grown = true;
        }
    }
    const pid_t *set = (const pid_t *)(const void *)bytes_at(&family);
    size_t members = bytes_used(&family) / sizeof *set;
    for (size_t i = 1; i < members; i++)
        kill(set[i], signal_number);
    bytes_free(os, &table);
    bytes_free(os, &family);
    return (int)members - 1;
}

/* ---- one process, from /proc ---- */

static bool proc_read(pid_t pid, const char *name, char *ret, size_t bytes)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, name);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    ssize_t n = read(fd, ret, bytes - 1);
    close(fd);
    ret[n > 0 ? n : 0] = '\0';
    return n > 0;
}

bool spawn_look(pid_t pid, struct spawn_look *ret)
{
    char text[512];
    *ret = (struct spawn_look){0};
    if (pid <= 1 || !proc_read(pid, "stat", text, sizeof text))
        return false;
    const char *behind = strrchr(text, ')');
    if (behind == NULL || sscanf(behind + 1, " %c", &ret->state) != 1)
        return false;
    if (proc_read(pid, "wchan", text, sizeof text) && strcmp(text, "0") != 0)
        snprintf(ret->place, sizeof ret->place, "%.63s", text);
    return ret->state != 'Z' && ret->state != 'X';
}

bool spawn_is_descendant(pid_t pid)
{
    pid_t self = getpid();
    for (int depth = 0; depth < 64 && pid > 1; depth++) {
        char name[24];
        struct process p;
        if (pid == self)
            return depth > 0;
        snprintf(name, sizeof name, "%d", (int)pid);
        if (!process_read(name, &p))
            return false;
        pid = p.parent;
    }
    return false;
}

bool spawn_catches(pid_t pid, int signal_number)
{
    char text[8192];
    unsigned long long caught = 0;
    if (signal_number < 1 || signal_number > 64 || !proc_read(pid, "status", text, sizeof text))
        return false;
    const char *line = strstr(text, "\nSigCgt:");
    return line != NULL && sscanf(line, "\nSigCgt: %llx", &caught) == 1 &&
           (caught >> (signal_number - 1) & 1) != 0;
}

bool spawn_signal(pid_t pid, int signal_number)
{
    return pid > 1 && kill(pid, signal_number) == 0;
}

/* ---- signals and descriptors of this process ---- */

int spawn_signals_open(void)
{
    sigset_t set;
    sigemptyset(&set);
    for (size_t i = 0; i < sizeof watched_signals / sizeof *watched_signals; i++) {
        struct sigaction old;
        sigaction(watched_signals[i], NULL, &old);
        bool is_ignored = old.sa_handler == SIG_IGN && watched_signals[i] != SIGCHLD;
        if (!is_ignored) /* nohup and background jobs of plain shells stay as they were set */
            sigaddset(&set, watched_signals[i]);
    }
    signal(SIGCHLD, SIG_DFL);
    spawn_ignore_broken_pipes();
    sigprocmask(SIG_BLOCK, &set, NULL);
    int fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    return fd < 0 ? -errno : fd;
}

int spawn_signals_next(int fd, int *ret_sender_pid)
{
    struct signalfd_siginfo info;
    ssize_t n = read(fd, &info, sizeof info);
    if (n != (ssize_t)sizeof info)
        return 0;
    *ret_sender_pid = (int)info.ssi_pid;
    return (int)info.ssi_signo;
}

void spawn_ignore_broken_pipes(void)
{
    signal(SIGPIPE, SIG_IGN);
}

void spawn_adopt_orphans(void)
{
    prctl(PR_SET_CHILD_SUBREAPER, 1);
}

int spawn_pipe(int ret_fds[2])
{
    return pipe2(ret_fds, O_CLOEXEC) == 0 ? 0 : -errno;
}

const char *spawn_self(void)
{
    return "/proc/self/exe";
}

int spawn_socket_pair(int ret_fds[2])
{
    return socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ret_fds) == 0 ? 0 : -errno;
}

void spawn_nonblocking(int fd)
{
    int flags = fcntl(fd, F_GETFL);
    if (flags >= 0)
        fcntl(fd, F_SETFL, flags | O_NONBLOCK);
}

int spawn_duplicate(int fd)
{
    return fcntl(fd, F_DUPFD_CLOEXEC, 3);
}

char *spawn_directory(struct mem *m)
{
    char path[PATH_MAX];
    return mem_copy(m, getcwd(path, sizeof path) == NULL ? "" : path);
}

char *spawn_self_path(struct mem *m)
{
    char path[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
    return n <= 0 ? mem_copy(m, "") : mem_copy_n(m, path, (size_t)n);
}

void spawn_ensure_stdio(void)
{
    for (int fd = 0; fd < 3; fd++)
        if (fcntl(fd, F_GETFD) < 0 && errno == EBADF)
            (void)!open("/dev/null",
                        fd == 0 ? O_RDONLY : O_WRONLY); /* takes the lowest, this one */
}

uint64_t spawn_raise_file_limit(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return 0;
    uint64_t before = limit.rlim_cur;
    limit.rlim_cur = limit.rlim_max;
    return setrlimit(RLIMIT_NOFILE, &limit) == 0 ? before : 0;
}

int spawn_take_stdio(int *ret_in_fd, int *ret_out_fd)
{
    *ret_in_fd = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3);
    *ret_out_fd = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
    int null_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (*ret_in_fd < 0 || *ret_out_fd < 0 || null_fd < 0)
        return -errno;
    dup2(null_fd, STDIN_FILENO);
    dup2(STDERR_FILENO, STDOUT_FILENO);
    close(null_fd);
    return 0;
}

int spawn_secret_file(const void *bytes, size_t n)
{
    int fd = memfd_create("horovod-key", MFD_CLOEXEC);
    if (fd < 0)
        return -errno;
    if (fchmod(fd, 0600) != 0 || pwrite(fd, bytes, n, 0) != (ssize_t)n) {
        int cause = errno;
        close(fd);
        return -cause;
    }
    return fd;
}

static bool write_secret(const char *path, const void *bytes, size_t n)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return false;
    bool is_written = write(fd, bytes, n) == (ssize_t)n;
    if (close(fd) != 0 || !is_written) {
        unlink(path);
        return false;
    }
    return true;
}

/* Memory rather than a disk, if there is such a place. */
char *spawn_secret_path(struct mem *m, const struct os *os, const void *bytes, size_t n)
{
    const char *runtime = os->env(os->ctx, "XDG_RUNTIME_DIR");
    const char *const places[] = {runtime != NULL && runtime[0] == '/' ? runtime : "/dev/shm",
                                  "/dev/shm", "/tmp"};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        char *folder = mem_format(m, "%s/horovod-key-XXXXXX", places[i]);
        if (mkdtemp(folder) == NULL) /* 0700 */
            continue;
        char *path = mem_format(m, "%s/key", folder);
        if (write_secret(path, bytes, n))
            return path;
        rmdir(folder);
    }
    return NULL;
}

static char *folder_of(struct mem *m, const char *path)
{
    return mem_copy_n(m, path, (size_t)(strrchr(path, '/') - path));
}

char *spawn_path_beside(struct mem *m, const char *path, const char *name)
{
    if (path == NULL || path[0] != '/')
        return NULL;
    return mem_format(m, "%s/%s", folder_of(m, path), name);
}

/* Open for both, so that it never reads as closed. */
int spawn_pipe_beside(struct mem *m, const char *path, char **ret_path)
{
    if (path == NULL || path[0] != '/')
        return -ENOENT;
    char *name = mem_format(m, "%s/" PIPE_NAME, folder_of(m, path));
    if (mkfifo(name, 0600) != 0)
        return -errno;
    int fd = open(name, O_RDWR | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    (void)fcntl(fd, F_SETPIPE_SZ, PIPE_BYTES); /* room for all ranks at once, where allowed */
    *ret_path = name;
    return fd;
}

void spawn_list_folder(struct mem *m, const char *folder, const char *prefix, struct list *ret)
{
    DIR *dir = opendir(folder);
    if (dir == NULL)
        return;
    for (const struct dirent *e = readdir(dir); e != NULL && ret->count < NAMES_MAX;
         e = readdir(dir))
        if (strncmp(e->d_name, prefix, strlen(prefix)) == 0)
            list_add(m, ret, mem_copy(m, e->d_name));
    closedir(dir);
}

/* A job may have more workers than are listed at once. */
static void remove_all(struct mem *m, const char *folder, const char *prefix)
{
    for (size_t removed = 1; removed > 0;) {
        struct list names = {0};
        spawn_list_folder(m, folder, prefix, &names);
        removed = 0;
        for (size_t i = 0; i < names.count; i++)
            removed += unlink(mem_format(m, "%s/%s", folder, names.items[i])) == 0;
    }
}

void spawn_secret_remove(struct mem *m, const char *path)
{
    if (path == NULL || path[0] != '/')
        return;
    char *folder = folder_of(m, path);
    unlink(path);
    unlink(mem_format(m, "%s/" PIPE_NAME, folder));
    unlink(mem_format(m, "%s/" SPAWN_NOTICE_NAME, folder));
    remove_all(m, folder, SPAWN_STACK_NAME);
    remove_all(m, folder, SPAWN_STATUS_NAME);
    rmdir(folder);
}

char *spawn_descriptor_path(struct mem *m, int fd)
{
    return fd < 0 ? NULL : mem_format(m, "/proc/%d/fd/%d", (int)getpid(), fd);
}

/* ---- the kernel's out-of-memory killer ---- */

static bool cgroup_path(char *ret_path, size_t bytes)
{
    FILE *file = fopen("/proc/self/cgroup", "re");
    if (file == NULL)
        return false;
    char line[PATH_MAX];
    bool is_found = false;
    while (!is_found && fgets(line, sizeof line, file) != NULL) {
        if (strncmp(line, "0::", 3) != 0)
            continue;
        line[strcspn(line, "\n")] = '\0';
        int n = snprintf(ret_path, bytes, "/sys/fs/cgroup%s/memory.events", line + 3);
        is_found = n > 0 && (size_t)n < bytes;
    }
    fclose(file);
    return is_found;
}

int64_t spawn_oom_kill_count(void)
{
    char path[PATH_MAX];
    if (!cgroup_path(path, sizeof path))
        return -1;
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return -1;
    char line[128];
    long long count = -1;
    while (fgets(line, sizeof line, file) != NULL)
        if (sscanf(line, "oom_kill %lld", &count) == 1)
            break;
    fclose(file);
    return count;
}
