/* SPDX-License-Identifier: Apache-2.0 */
/* links.h - this rank's transports, and which one links it to each peer.
 *
 *     links_open()      before the ranks meet: opens usable transports, fills this rank's endpoint
 *     links_choose()    after they met: one transport for each peer; which ranks share memory
 *     links_connect()   makes the links; links.routes is valid from now on
 *
 * No transport is named here: they all come from the table (transport/transports.h).
 *
 * Invariant: two ranks choose the same transport for each other, and all ranks number the machines
 * alike. Thread: the one inside hvd_init().  Owner: struct world.  Start reading at links_open().
 */
#ifndef HVD_API_LINKS_H
#define HVD_API_LINKS_H

#include "base/log.h"
#include "transport/transports.h"

struct links {
    struct transport_place place;
    const struct transport_row *const *rows;
    struct transport *open[TRANSPORTS_MAX]; /* by row; NULL: not open */
    /* By row: links_connect() connects it, if only to make it stop listening. */
    bool is_used[TRANSPORTS_MAX];
    bool has_peers[TRANSPORTS_MAX];    /* by row: it links this rank to a peer */
    char why[TRANSPORTS_MAX][WHY_MAX]; /* by row: why it is not open */
    struct transport *sight; /* the one whose arena contains this rank's memory; NULL: none */
    /* By world rank: */
    const struct transport_row **chosen; /* NULL: oneself */
    struct transport **routes;           /* NULL: oneself, or not connected yet */
    int32_t *host;                       /* equal numbers: they share memory */
    char (*names)[96];                   /* "rank 1 (pid 42 on b)" */
};

/* `rows` NULL: transport_table. Opens nothing for a world of one. */
hvd_status_t links_open(struct links *links, const struct transport_row *const *rows,
                        const struct transport_place *place, const struct log *log,
                        struct endpoint *self, struct error *error);
/* `all`: by world rank, of this and every other rank. */
hvd_status_t links_choose(struct links *links, const struct endpoint *all, struct error *error);
hvd_status_t links_connect(struct links *links, const struct transport_meeting *meeting,
                           struct error *error);
/* Those that link this rank to at least one peer, after links_choose(). */
int32_t links_list(const struct links *links, struct transport **ret, int32_t max);
/* Safe if nothing was opened. */
void links_destroy(struct links *links);

#endif
