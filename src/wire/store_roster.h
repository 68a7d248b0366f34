/* SPDX-License-Identifier: Apache-2.0 */
/* store_roster.h - the members of a generation, its number and its salt.
 *
 * A generation is one world of ranks, from its meeting to its end; its number is the epoch that
 * every link and every exchange of it carries. Two kinds of rosters:
 *   static  as many ranks as the first one counts. The roster advances by itself: once a generation
 *           has met, a process that joins anew begins the next one.
 *   driven  the process that serves names the members by worker id (store_server_generation()).
 *           Whoever is not on the list is refused; whoever is early for a later one waits. With a
 *           judge (store_server_judge()) it is the judge that refuses, and everybody else waits.
 * A process joins with a random number, its life, so that a repeated request is told from a new
 * process with the same rank or worker id.
 *
 * Thread: the server's loop.  Owner: a scope of store_table.c.  Blocks: never.
 * Invariant: the epoch never falls.  Start reading at roster_join(). */
#ifndef HVD_WIRE_STORE_ROSTER_H
#define HVD_WIRE_STORE_ROSTER_H

#include "wire/budget.h"
#include "wire/store_message.h"

struct roster {
    uint64_t epoch; /* 0: nobody has joined yet */
    bool is_driven;
    bool is_over; /* broken before another one was named: whoever joins waits for that */
    uint32_t count;
    uint64_t *lives;              /* by rank; 0: has not joined this generation */
    struct store_member *members; /* by rank; NULL unless driven */
    uint8_t salt[STORE_SALT_BYTES];
    uint64_t notice;          /* of a driven roster: see store_server_generation() */
    struct store_judge judge; /* kept from one generation to the next */
};

enum roster_verdict {
    ROSTER_IN,    /* a member of the generation that stands */
    ROSTER_EARLY, /* it asks for one that has not begun */
    ROSTER_OUT,   /* refused; *ret_refusal says why */
    ROSTER_FULL   /* no memory, or no random bytes */
};

struct roster_refusal {
    hvd_status_t status;
    char why[STORE_WHY_MAX];
};

/* `is_met`: all members of the generation that stands have exchanged their addresses. */
enum roster_verdict roster_join(struct roster *r, struct budget *budget,
                                const struct store_request *request, bool is_met,
                                struct roster_refusal *ret_refusal);
/* HVD_ERR_INVALID: this epoch has passed, or two members have one id. */
hvd_status_t roster_drive(struct roster *r, struct budget *budget, uint64_t epoch,
                          const struct store_member *members, uint32_t count, uint64_t notice);
/* The answer to a member; NULL: no memory. */
struct reply *roster_reply(const struct roster *r, struct budget *budget);
void roster_reset(struct roster *r, struct budget *budget);

#endif
