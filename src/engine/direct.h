/* SPDX-License-Identifier: Apache-2.0 */
/* direct.h - messages from one rank to another, without an agreement of all.
 *
 *      sender                        receiver
 *      OFFER(number, channel, tag, bytes) ->   kept until a receive of this channel and tag is
 * there
 *                                <-  TAKE(number)
 *      PIECE(number, bytes) ... ->             copied to where the receive wants them
 *
 * A sender's bytes leave its memory only when the receiver has said where they go, so nothing is
 * buffered but offers. A receive may name its sender or take the first offer of any rank. Offers of
 * one rank, and receives, are matched in their order within a channel and tag; a message is never
 * matched with another's bytes, because pieces carry the number of their offer. Lengths must be
 * equal, else both sides fail and the job goes on. When the job breaks, all of them end with it.
 *
 * Thread: token holder.  Owner: struct engine.  Blocks: never.
 * Start reading at direct_op() and direct_message(). */
#ifndef HVD_ENGINE_DIRECT_H
#define HVD_ENGINE_DIRECT_H

#include "base/status.h"
#include "engine/message.h"

#define DIRECT_PIECE_BYTES (64u << 10)
#define DIRECT_OFFERS_MAX  1000000 /* of all peers, without a receive */

struct engine;
struct op;
struct ticket;

struct direct_offer { /* of a peer, no receive takes it yet */
    struct direct_offer *next;
    int32_t peer;
    uint64_t number, channel, tag, bytes;
};

struct direct {
    struct op *head, *tail; /* all that have not ended, oldest first */
    struct direct_offer *offers, *offers_tail;
    int32_t offer_count;
    int32_t moving_count; /* sends that were taken and are not all sent */
    uint64_t next_number;
    uint8_t *piece; /* room for one message; made when the first is sent */
};

void direct_op(struct engine *engine, struct op *op); /* a new local one */
void direct_unlink(struct engine *engine, struct op *op);
bool direct_is_message(const struct message_head *head);
void direct_message(struct engine *engine, int32_t peer, const struct message_head *head,
                    struct reader *r);
bool direct_progress(struct engine *engine); /* sends what there is room for */
void direct_fail(struct engine *engine, hvd_status_t status, const char *text);
/* What a ticket waits for, for people; "": it is not of this kind. */
void direct_missing(const struct engine *engine, const struct ticket *ticket, int64_t now_ns,
                    char *ret, size_t bytes);
void direct_destroy(struct engine *engine);

#endif
