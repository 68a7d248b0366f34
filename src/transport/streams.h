/* SPDX-License-Identifier: Apache-2.0 */
/* streams.h - the numbers of bulk streams, and which of them have ended.
 *
 *     63          48 47      32 31             5 4       0
 *     | life (16)   | turn (16) | sequence (27) | channel |
 *
 * A life is one process set from its addition to its removal; sets begin in the same order on every
 * rank, so lives do too. A turn begins when the members start counting from 0 again (a broken plan,
 * a join); the sequence number counts the collectives of a turn. Hence transfers of two different
 * collectives never have the same stream and can't be matched with each other.
 *
 * A peer may still send for a life or turn that has ended here: it sent before it learned of the
 * end. No receive will match such bytes and they must be dropped. Bytes for a life or turn that has
 * not begun here yet must be kept. Numbers are compared as differences, so that they may wrap.
 *
 * Thread: token holder.  Owner: a transport.  Start reading at streams_is_over(). */
#ifndef HVD_TRANSPORT_STREAMS_H
#define HVD_TRANSPORT_STREAMS_H

#include <stdbool.h>
#include <stdint.h>

#define STREAM_CHANNEL_BITS  5
#define STREAM_SEQUENCE_BITS 27
#define STREAM_LIFE_AT       48
#define STREAM_LIVES_MAX     256 /* process sets that can exist at one time */

struct streams {
    struct {
        uint64_t first; /* all below it in this life have ended */
        int32_t slot;   /* the process set's id */
    } open[STREAM_LIVES_MAX];
    int32_t count;
    bool has_begun;
    uint64_t over; /* all below it have ended, except those in `open` */
};

/* `base` has zeros below the turn. */
uint64_t stream_number(uint64_t base, uint64_t sequence, uint32_t channel);

/* The life of `first` begins, or continues with the turn of `first`. */
void streams_open(struct streams *streams, int32_t slot, uint64_t first);
void streams_close(struct streams *streams, uint64_t first);
bool streams_is_over(const struct streams *streams, uint64_t stream);
/* The slot and the first stream of the open life of `stream`; -1 and 0: there is none. */
int32_t streams_slot(const struct streams *streams, uint64_t stream);
uint64_t streams_first(const struct streams *streams, uint64_t stream);

#endif
