/* SPDX-License-Identifier: Apache-2.0 */
/* discovery.c - see discovery.h. The answer counts once the script has ended and its output has
 * been read to the end, whichever comes last; a grandchild that keeps the pipe open is ended with
 * the script's process group. */
#include "discovery.h"

#include <errno.h>
#include <signal.h>
#include <string.h>

#include "spawn.h"

static void close_output(struct discovery *d)
{
    if (d->out_fd < 0)
        return;
    d->os->poll_remove(d->os->ctx, d->poll_fd, d->out_fd);
    d->os->close(d->os->ctx, d->out_fd);
    d->out_fd = -1;
}

static int start(struct discovery *d, int64_t now_ns)
{
    int out[2] = {-1, -1}, pidfd = -1;
    int rc = spawn_pipe(out);
    if (rc < 0)
        return rc;
    char *argv[] = {(char *)"/bin/sh", (char *)"-c", (char *)(uintptr_t)d->script, NULL};
    struct spawn s = {.path = "/bin/sh",
                      .argv = argv,
                      .fds = {-1, out[1], 2},
                      .kept_fd = -1,
                      .death_signal = SIGKILL};
    rc = spawn_start(&s, &d->pid, &pidfd);
    d->os->close(d->os->ctx, out[1]);
    if (pidfd >= 0)
        d->os->close(d->os->ctx, pidfd);
    if (rc < 0) {
        d->os->close(d->os->ctx, out[0]);
        d->pid = 0;
        return rc;
    }
    d->out_fd = out[0];
    d->started_ns = now_ns;
    d->is_late = d->has_ended = false;
    bytes_drop(&d->text, bytes_used(&d->text));
    spawn_nonblocking(d->out_fd);
    d->os->poll_add(d->os->ctx, d->poll_fd, d->out_fd, d->tag, false);
    return 0;
}

void discovery_read(struct discovery *d)
{
    uint8_t chunk[4096];
    while (d->out_fd >= 0) {
        int64_t n = d->os->read(d->os->ctx, d->out_fd, chunk, sizeof chunk);
        if (n == -EAGAIN || n == -EINTR)
            return;
        if (n <= 0) {
            close_output(d);
            return;
        }
        if (bytes_used(&d->text) + (size_t)n <= DISCOVERY_TEXT_MAX)
            bytes_add(d->os, &d->text, chunk, (size_t)n);
    }
}

bool discovery_reaped(struct discovery *d, pid_t pid, int code)
{
    if (d->pid == 0 || pid != d->pid)
        return false;
    d->has_ended = true;
    d->code = code;
    discovery_read(d); /* what is in the pipe is all that counts */
    spawn_signal_group(d->pid, SIGKILL);
    close_output(d);
    return true;
}

static enum discovery_result finish(struct discovery *d, struct mem *m, int64_t now_ns,
                                    struct hosts *ret_hosts, const char **ret_twice,
                                    struct error *error)
{
    d->pid = 0;
    d->next_ns = now_ns + d->period_ns;
    if (d->is_late)
        error_set(error, HVD_ERR_TIMEOUT,
                  "the discovery script was ended after %lld s without an answer: %s",
                  (long long)(d->limit_ns / 1000000000), d->script);
    else if (d->code != 0)
        error_set(error, HVD_ERR_INVALID, "Failed to execute discovery script: %s. Exit code: %d",
                  d->script, d->code);
    if (error->status != HVD_OK)
        return DISCOVERY_FAILED;
    struct error trouble = {0};
    if (hosts_parse_found(m, (const char *)bytes_at(&d->text), bytes_used(&d->text),
                          d->default_slots, ret_hosts, ret_twice, &trouble) == HVD_OK)
        return DISCOVERY_HOSTS;
    error_set(error, trouble.status, "the output of the discovery script %s can't be used: %s",
              d->script, trouble.text);
    return DISCOVERY_FAILED;
}

enum discovery_result discovery_tick(struct discovery *d, struct mem *m, int64_t now_ns,
                                     struct hosts *ret_hosts, const char **ret_twice,
                                     struct error *error)
{
    if (d->pid == 0 && now_ns >= d->next_ns) {
        int rc = start(d, now_ns);
        if (rc == 0)
            return DISCOVERY_NONE;
        d->next_ns = now_ns + d->period_ns;
        error_set_os(error, rc, "the discovery script can't be started");
        return DISCOVERY_FAILED;
    }
    if (d->pid == 0)
        return DISCOVERY_NONE;
    if (d->has_ended)
        return finish(d, m, now_ns, ret_hosts, ret_twice, error);
    if (!d->is_late && now_ns >= d->started_ns + d->limit_ns) {
        d->is_late = true;
        spawn_signal_group(d->pid, SIGKILL);
    }
    return DISCOVERY_NONE;
}

int64_t discovery_next_ns(const struct discovery *d)
{
    if (d->pid == 0)
        return d->next_ns;
    return d->is_late ? INT64_MAX : d->started_ns + d->limit_ns;
}

void discovery_destroy(struct discovery *d)
{
    if (d->os == NULL)
        return;
    if (d->pid != 0 && !d->has_ended)
        spawn_signal_group(d->pid, SIGKILL);
    close_output(d);
    bytes_free(d->os, &d->text);
}
