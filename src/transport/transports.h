/* SPDX-License-Identifier: Apache-2.0 */
/* transports.h - the transports of this build, one row each, and which of them links two ranks.
 *
 *     probe      is it usable here? if not, a sentence says why
 *     open       before the ranks meet: listens, and puts its address into the endpoint
 *     score      after they met: how suitable is it for these two? the same on both sides
 *     connect    links this rank to the peers for which its score was the best
 *
 * To add one: a folder with a `struct transport_row`, and its line in transports.c. It must pass
 * tests/unit/transport_conformance.h. No other code names a transport.
 *
 * Invariant: every rank picks the same row for a pair of ranks. So a score depends only on the two
 * endpoints, and a row counts only if both ranks offer it.
 *
 * Thread: the one inside hvd_init().  Start reading at transport_table. */
#ifndef HVD_TRANSPORT_TRANSPORTS_H
#define HVD_TRANSPORT_TRANSPORTS_H

#include "base/config.h"
#include "transport/transport.h"

#define TRANSPORTS_MAX OFFERS_MAX
#define WHY_MAX        256 /* bytes of a sentence for messages */

struct mpi_job;

struct transport_place { /* the job a transport would work in */
    const struct os *os;
    const struct config *config;
    int32_t rank, size;        /* rank -1: no job; probes what this machine supports */
    bool is_one_host;          /* according to the launcher all ranks are on this machine */
    const struct mpi_job *mpi; /* NULL: the ranks did not meet through MPI */
};

struct transport_meeting {      /* what is known when links are made; valid during connect() */
    const struct endpoint *all; /* by world rank */
    int32_t count;
    const uint8_t *key; /* 32 bytes: the job key */
    uint64_t epoch;
    int poll_fd; /* rings when progress() has something to do */
    const struct transport_events *events;
};

struct transport_row {
    const char *name; /* as in offers: OFFER_NAME_MAX */
    /* What a user can do if ranks that it should link can't be linked; NULL: nothing special. */
    const char *hint;
    /* It maps the memory of the ranks that it links (transport_ops.memory). */
    bool is_sight;
    /* It listens on the network. Not opened if another open row is enough. */
    bool is_exposed;
    /* connect() needs all ranks: it is called on all of them if any two are linked by it, else on
     * none. Without this it is called on every rank that has it open. */
    bool is_collective;

    /* false: `ret_why` says why, in WHY_MAX bytes. Loads and opens nothing. */
    bool (*probe)(const struct transport_place *place, char *ret_why);
    /* Is it certain to reach every rank of this job, once it is open? NULL: no. */
    bool (*is_enough)(const struct transport_place *place);
    /* Creates the transport and its offer in `self`. Does not need the other ranks. */
    hvd_status_t (*open)(const struct transport_place *place, struct endpoint *self,
                         struct transport **ret, struct error *error);
    /* Are these bytes, which a peer sent, an offer of this transport? */
    bool (*is_offer)(const uint8_t *bytes, size_t n);
    /* Between two ranks that both offer it; the highest wins, below 0: it can't. */
    int32_t (*score)(const struct endpoint *a, const struct endpoint *b);
    /* Links with every rank r for which wanted[r]. Blocks at most config->timeout_s. The error
     * names the rank that could not be reached. transport_ops.destroy undoes open and this. */
    hvd_status_t (*connect)(struct transport *t, const struct transport_meeting *meeting,
                            const bool *wanted, struct error *error);
    /* The network addresses (IPv6, or IPv4 mapped) that it listens on; NULL: none. */
    int32_t (*addresses)(const struct endpoint *self, uint8_t (*ret)[16], int32_t max);
};

/* All of them, terminated by NULL, in the order of opening and connecting; not a preference. */
extern const struct transport_row *const transport_table[];

/* The row of `rows` that links these two ranks; NULL: none does. Equal scores: the first name in
 * the alphabet. The same for (a, b) and (b, a). */
const struct transport_row *transports_choose(const struct transport_row *const *rows,
                                              const struct endpoint *a, const struct endpoint *b);
/* The addresses that the offers of `self` listen on, for a rendezvous on the same ones. */
int32_t transports_addresses(const struct transport_row *const *rows, const struct endpoint *self,
                             uint8_t (*ret)[16], int32_t max);
/* For transport_row.is_enough of a transport that reaches every rank. */
bool transports_always(const struct transport_place *place);
/* HVD_ERR_CORRUPT: an offer of `e` is not what a row of that name understands; names the rank. */
hvd_status_t transports_check(const struct transport_row *const *rows, const struct endpoint *e,
                              struct error *error);

#endif
