/* SPDX-License-Identifier: Apache-2.0 */
/* status_client.c - see status.h: `horovodrun --status [--watch] [PID]` in another terminal. Every
 * wait has a limit. Thread: one.  Start reading at status_run(). */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "spawn.h"
#include "status.h"
#include "wire/ask.h"

#define ANSWER_NS (10 * 1000000000LL)
#define CHUNK     65536u
#define WATCH_NS  1000000000LL

/* True: the launcher answered, with text. */
static bool fetch(const struct os *os, int fd, char kind, struct bytes *ret)
{
    int64_t until_ns = os_now_ns(os) + ANSWER_NS, n = 1;
    struct iovec iov = {.iov_base = &kind, .iov_len = 1};
    struct os_event event;
    int poll_fd = os->poll_create(os->ctx);
    if (poll_fd < 0 || os->poll_add(os->ctx, poll_fd, fd, NULL, false) < 0 ||
        os->send(os->ctx, fd, &iov, 1) != 1)
        n = 0;
    while (n > 0 && bytes_used(ret) < STATUS_TEXT_MAX + CHUNK) {
        int64_t left_ns = until_ns - os_now_ns(os);
        if (left_ns <= 0 || os->poll_wait(os->ctx, poll_fd, &event, 1, left_ns) == 0)
            break;
        uint8_t *room = bytes_room(os, ret, CHUNK);
        n = os->recv(os->ctx, fd, room, CHUNK);
        if (n > 0)
            bytes_grew(ret, (size_t)n);
        else if (n == -EAGAIN || n == -EINTR)
            n = 1;
    }
    if (poll_fd >= 0)
        os->close(os->ctx, poll_fd);
    return bytes_used(ret) > 0;
}

static bool ask(struct mem *m, const struct os *os, const char *folder, const char *name, char kind,
                bool *ret_is_dead, struct bytes *ret)
{
    const char *path = mem_format(m, "%s/%s", folder, name);
    int fd = ask_connect(os, path);
    *ret_is_dead = fd == -ECONNREFUSED;
    if (*ret_is_dead)
        os->unlink(os->ctx, path); /* its launcher was killed */
    if (fd < 0)
        return false;
    bool is_told = fetch(os, fd, kind, ret);
    os->close(os->ctx, fd);
    return is_told;
}

static int not_answered(const char *name)
{
    fprintf(stderr,
            "horovodrun: process %s does not answer: it has ended, or is stopped (Ctrl-Z)\n",
            name + sizeof STATUS_PREFIX - 1);
    return 1;
}

static int tell(struct mem *m, const struct os *os, const char *folder, const char *name)
{
    struct bytes text = {0};
    bool is_dead = false;
    bool is_told = ask(m, os, folder, name, STATUS_STORY, &is_dead, &text);
    fwrite(bytes_at(&text), 1, bytes_used(&text), stdout);
    bytes_free(os, &text);
    return is_told ? 0 : not_answered(name);
}

/* A terminal is cleared, and long lines are cut; a file gets one table after the other. */
static void frame_print(struct bytes *text)
{
    bool is_terminal = isatty(STDOUT_FILENO) != 0;
    fputs(is_terminal ? "\033[H\033[2J\033[?7l" : "", stdout);
    fwrite(bytes_at(text), 1, bytes_used(text), stdout);
    fputs(is_terminal ? "\033[?7h" : "\n", stdout);
}

/* Until the job ends, Ctrl-C, or nobody reads any more. */
static int watch(struct mem *m, const struct os *os, const char *folder, const char *name)
{
    bool is_told = true;
    for (int count = 0; is_told && ferror(stdout) == 0; count++) {
        struct bytes text = {0};
        bool is_dead = false;
        is_told = ask(m, os, folder, name, STATUS_TOP, &is_dead, &text);
        if (is_told)
            frame_print(&text);
        bytes_free(os, &text);
        if (!is_told && count == 0)
            return not_answered(name);
        fflush(stdout);
        if (is_told)
            os->sleep_ns(os->ctx, WATCH_NS);
    }
    if (!is_told)
        fprintf(stderr, "horovodrun: the job has ended, or process %s no longer answers\n",
                name + sizeof STATUS_PREFIX - 1);
    return 0;
}

static bool is_number(const char *text)
{
    return text[0] != '\0' && strspn(text, "0123456789") == strlen(text);
}

/* Prints a line for each; keeps those that live. */
static size_t list_live(struct mem *m, const struct os *os, const char *folder,
                        const struct list *names, struct bytes *ret, const char **ret_last)
{
    size_t count = 0;
    for (size_t i = 0; i < names->count; i++) {
        struct bytes line = {0};
        bool is_dead = false;
        const char *pid = names->items[i] + sizeof STATUS_PREFIX - 1;
        if (!is_number(pid))
            continue;
        bool is_told = ask(m, os, folder, names->items[i], STATUS_LINE, &is_dead, &line);
        if (is_told)
            bytes_add(os, ret, bytes_at(&line), bytes_used(&line));
        bytes_free(os, &line);
        if (!is_told)
            continue;
        count++;
        *ret_last = names->items[i];
    }
    return count;
}

int status_run(struct mem *m, const struct os *os, char **command, bool is_watching)
{
    struct list names = {0};
    struct bytes lines = {0};
    const char *last = NULL, *pid = command != NULL ? command[0] : NULL;
    if (pid != NULL && (!is_number(pid) || command[1] != NULL)) {
        fprintf(stderr, "horovodrun: error: --status takes at most one number, the process id of a "
                        "horovodrun\n");
        return 2;
    }
    char *folder = status_folder(m, os);
    if (folder != NULL)
        spawn_list_folder(m, folder, STATUS_PREFIX, &names);
    if (pid != NULL) {
        const char *name = mem_format(m, STATUS_PREFIX "%s", pid);
        for (size_t i = 0; i < names.count; i++)
            if (strcmp(names.items[i], name) == 0)
                return is_watching ? watch(m, os, folder, name) : tell(m, os, folder, name);
        fprintf(stderr,
                "horovodrun: process %s is not a running horovodrun of yours on this machine\n",
                pid);
        return 1;
    }
    size_t count = list_live(m, os, folder, &names, &lines, &last);
    int code = 0;
    if (count == 0) {
        fprintf(stderr, "horovodrun: you have no running job on this machine\n");
        code = 1;
    } else if (count == 1) {
        code = is_watching ? watch(m, os, folder, last) : tell(m, os, folder, last);
    } else {
        printf("%zu jobs run; choose one with: horovodrun --status%s PID\n%.*s", count,
               is_watching ? " --watch" : "", (int)bytes_used(&lines),
               (const char *)bytes_at(&lines));
    }
    bytes_free(os, &lines);
    return code;
}
