/* SPDX-License-Identifier: Apache-2.0 */
/* discovery.h - which hosts are there now? Runs --host-discovery-script once a second, beside the
 * launcher's loop: the script is a child whose output is read when there is some, and which is
 * killed when it takes too long.
 *
 * Thread: the launcher's loop.  Owner: struct elastic.  Blocks: never.
 * Start reading at discovery_tick(). */
#ifndef HVD_LAUNCHER_DISCOVERY_H
#define HVD_LAUNCHER_DISCOVERY_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/os.h"
#include "base/status.h"
#include "hosts.h"
#include "mem.h"

#define DISCOVERY_TEXT_MAX (4u << 20)

struct discovery {
    const struct os *os;
    const char *script;    /* for /bin/sh -c */
    int32_t default_slots; /* of a line without a number */
    int64_t period_ns, limit_ns;
    void *tag; /* of its output, in the poller */
    int poll_fd;

    pid_t pid; /* 0: not running */
    int out_fd;
    struct bytes text;
    int64_t started_ns, next_ns;
    bool is_late;   /* killed by us */
    bool has_ended; /* `code` is known */
    int code;
};

enum discovery_result {
    DISCOVERY_NONE,   /* nothing new */
    DISCOVERY_HOSTS,  /* *ret_hosts, in the arena given */
    DISCOVERY_FAILED, /* *error */
};

void discovery_read(struct discovery *d);                        /* when out_fd polls readable */
bool discovery_reaped(struct discovery *d, pid_t pid, int code); /* false: not ours */
/* Starts the script when it is time, and tells what it has found when it is done. *ret_twice: a
 * host that was printed more than once, or NULL. */
enum discovery_result discovery_tick(struct discovery *d, struct mem *m, int64_t now_ns,
                                     struct hosts *ret_hosts, const char **ret_twice,
                                     struct error *error);
int64_t discovery_next_ns(const struct discovery *d);
void discovery_destroy(struct discovery *d); /* kills the script; safe on a zeroed one */

#endif
