/* SPDX-License-Identifier: Apache-2.0 */
/* client.c - see client.h. */
#include "client.h"

#include <errno.h>
#include <sys/uio.h>

#include "job.h"

void clients_open(struct job *job, struct clients *all, int listen_fd, struct job_tag *tag)
{
    *all = (struct clients){.listen_fd = listen_fd, .tag = tag};
    for (int i = 0; i < CLIENTS_MAX; i++)
        all->items[i].fd = -1;
    job->os->poll_add(job->os->ctx, job->poll_fd, listen_fd, tag, false);
}

void clients_close(struct job *job, struct clients *all)
{
    for (int i = 0; i < CLIENTS_MAX; i++)
        if (all->items[i].fd >= 0)
            client_close(job, &all->items[i]);
    job->os->poll_remove(job->os->ctx, job->poll_fd, all->listen_fd);
    job->os->close(job->os->ctx, all->listen_fd);
}

void client_close(struct job *job, struct client *c)
{
    const struct os *os = job->os;
    os->poll_remove(os->ctx, job->poll_fd, c->fd);
    os->close(os->ctx, c->fd);
    bytes_free(os, &c->in);
    bytes_free(os, &c->out);
    *c = (struct client){.fd = -1};
}

void client_accept(struct job *job, struct clients *all, int64_t now_ns,
                   bool (*is_welcome)(const struct os *os, int listener, int fd))
{
    const struct os *os = job->os;
    bool had_room = false;
    for (int i = 0; i < CLIENTS_MAX; i++) {
        struct client *c = &all->items[i];
        if (c->fd >= 0)
            continue;
        had_room = true;
        int fd = os->accept(os->ctx, all->listen_fd, NULL, NULL);
        if (fd < 0)
            return;
        if ((is_welcome != NULL && !is_welcome(os, all->listen_fd, fd)) ||
            os->poll_add(os->ctx, job->poll_fd, fd, all->tag, false) < 0)
            os->close(os->ctx, fd);
        else
            *c = (struct client){.fd = fd, .until_ns = now_ns + CLIENT_NS};
    }
    /* All were taken before: whoever else asks is turned away, so that the socket does not keep us
     * awake. Those that we have just accepted may have closed already, and get a turn first. */
    if (had_room)
        return;
    int fd = os->accept(os->ctx, all->listen_fd, NULL, NULL);
    if (fd >= 0)
        os->close(os->ctx, fd);
}

void client_flush(struct job *job, struct clients *all, struct client *c)
{
    const struct os *os = job->os;
    while (bytes_used(&c->out) > 0) {
        struct iovec iov = {.iov_base = (void *)bytes_at(&c->out), .iov_len = bytes_used(&c->out)};
        int64_t n = os->send(os->ctx, c->fd, &iov, 1);
        if (n == -EAGAIN) {
            if (!c->is_out_polled)
                os->poll_change(os->ctx, job->poll_fd, c->fd, all->tag, true);
            c->is_out_polled = true;
            return;
        }
        if (n <= 0)
            break;
        bytes_drop(&c->out, (size_t)n);
    }
    client_close(job, c);
}
