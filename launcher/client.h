/* SPDX-License-Identifier: Apache-2.0 */
/* client.h - connections of people who look at the job: those of status.c and of dashboard.c.
 *
 * A client sends a question, gets one answer and is closed. The loop never waits for it: there are
 * at most CLIENTS_MAX at a listener, each with CLIENT_NS from connecting to having read its answer.
 * Thread: the launcher's loop.  Owner: whoever has the listener.  Start reading at client_accept().
 */
#ifndef HVD_LAUNCHER_CLIENT_H
#define HVD_LAUNCHER_CLIENT_H

#include <stdbool.h>
#include <stdint.h>

#include "mem.h"

#define CLIENTS_MAX 8
#define CLIENT_NS   (10 * 1000000000LL)

struct job;
struct job_tag;

struct client {
    int fd;   /* -1: none */
    int kind; /* of its question; 0: not known yet */
    int64_t until_ns;
    struct bytes in, out;
    bool is_out_polled;
};

struct clients {
    int listen_fd;
    struct job_tag *tag; /* of all sockets */
    struct client items[CLIENTS_MAX];
};

void clients_open(struct job *job, struct clients *all, int listen_fd, struct job_tag *tag);
void clients_close(struct job *job, struct clients *all); /* the listener too */
/* Takes those that wait. `is_welcome` may be NULL. */
void client_accept(struct job *job, struct clients *all, int64_t now_ns,
                   bool (*is_welcome)(const struct os *os, int listener, int fd));
/* Sends what there is of its answer, and closes it after that. */
void client_flush(struct job *job, struct clients *all, struct client *c);
void client_close(struct job *job, struct client *c);

#endif
