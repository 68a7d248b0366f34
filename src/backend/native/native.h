/* SPDX-License-Identifier: Apache-2.0 */
/* native.h - our own collectives: in shared memory on one machine (host*.c), by schedules over
 * transports between machines (net*.c), and both together.
 *
 * Thread: token holder.  Start reading at native_create(). */
#ifndef HVD_BACKEND_NATIVE_H
#define HVD_BACKEND_NATIVE_H

#include "backend/backends.h"

struct shm;

extern const struct backend_row native_row;

/* One direction of the transfers with one rank; measured by net_exec.c. */
struct native_way {
    struct backend_load load; /* without the time since `since_ns` */
    uint32_t active;          /* transfers under way */
    int64_t since_ns;         /* when the first of them began */
};

struct native_link {
    struct native_way sent, received;
};

/* How to reach each world rank. routes[r] is the transport for rank r (NULL for oneself). `shm` may
 * be NULL (simulation, TCP only). */
struct native_routes {
    struct transport *const *routes;
    int32_t world_size;
    int32_t self_rank;
    struct shm *shm;
    struct native_link *links; /* by world rank; NULL: nothing is measured */
};

hvd_status_t native_create(const struct os *os, const struct config *config,
                           const struct native_routes *routes, struct backend **ret,
                           struct error *error);

/* --- the two halves behind native.c; each is a state machine for one collective at a time --- */

/* host.h: all members of the group share memory (group->is_one_host). */
struct host_coll;
hvd_status_t host_coll_create(const struct os *os, const struct config *config, struct shm *shm,
                              const struct group *group, struct host_coll **ret,
                              struct error *error);
void host_coll_destroy(struct host_coll *h);
hvd_status_t host_coll_start(struct host_coll *h, const struct coll *coll, struct error *error);
hvd_status_t host_coll_progress(struct host_coll *h, bool *ret_moved, struct error *error);
void host_coll_reset(struct host_coll *h, uint64_t base);
/* This member has published its wave, and the other one has not reached it. */
bool host_coll_awaits(const struct host_coll *h, int32_t index);
/* The collective whose memory other ranks may be writing to; NULL: none. */
const struct coll *host_coll_open_to_peers(const struct host_coll *h);
void host_coll_doom(struct host_coll *h, const char *why); /* it will fail with HVD_ERR_LINK */

/* net.h: any group, by schedules over the routes. */
struct net_coll;
hvd_status_t net_coll_create(const struct os *os, const struct config *config,
                             const struct native_routes *routes, const struct group *group,
                             struct net_coll **ret, struct error *error);
void net_coll_destroy(struct net_coll *n);
hvd_status_t net_coll_start(struct net_coll *n, const struct coll *coll, struct error *error);
hvd_status_t net_coll_progress(struct net_coll *n, bool *ret_moved, struct error *error);
void net_coll_reset(struct net_coll *n, uint64_t base);
const struct coll *net_coll_open_to_peers(const struct net_coll *n);
void net_coll_doom(struct net_coll *n, const char *why);

#endif
