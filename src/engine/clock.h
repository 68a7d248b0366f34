/* SPDX-License-Identifier: Apache-2.0 */
/* clock.h - how far this rank's clock is from rank 0's, so that traces of all ranks share one time.
 *
 * While a trace of all ranks is on, each rank asks rank 0 for its time over the ordinary control
 * link, CLOCK_ROUNDS times in a row, and again every CLOCK_AGAIN_NS, because clocks drift. The
 * answer with the shortest round trip counts:
 *
 *      this rank   sent ----------. . . . . . . ---- received      round trip = received - sent
 *      rank 0                 his time                             offset = his time - the middle
 *
 * The true offset differs from that by at most half of the round trip, which the trace states.
 * Thread: token holder.  Owner: struct engine.  Blocks: never.  Start reading at clock_tick(). */
#ifndef HVD_ENGINE_CLOCK_H
#define HVD_ENGINE_CLOCK_H

#include <stdbool.h>
#include <stdint.h>

#define CLOCK_ROUNDS   8
#define CLOCK_AGAIN_NS 10000000000LL

struct engine;
struct reader;

struct clock_sync {
    int64_t at_ns;     /* of this rank's clock: when it was measured */
    int64_t offset_ns; /* rank 0's time is this rank's time plus this */
    int64_t error_ns;  /* at most; -1: not measured */
};

struct clock {
    struct clock_sync best; /* of the rounds so far */
    int32_t rounds_left;
    int64_t sent_ns; /* the question that waits for its answer; 0: none */
    int64_t next_ns; /* when to measure again */
};

/* Asks if it is time to. */
void clock_tick(struct engine *engine);
/* A question or an answer; false: malformed. */
bool clock_message(struct engine *engine, int32_t peer, struct reader *r);
/* Takes an answer into account; true: it was the last round. */
static inline bool clock_take(struct clock *clock, int64_t peer_ns, int64_t now_ns)
{
    int64_t round_ns = now_ns - clock->sent_ns;
    if (clock->best.error_ns < 0 || round_ns / 2 < clock->best.error_ns)
        clock->best = (struct clock_sync){.at_ns = now_ns,
                                          .offset_ns = peer_ns - (clock->sent_ns + round_ns / 2),
                                          .error_ns = round_ns / 2};
    clock->sent_ns = 0;
    return --clock->rounds_left <= 0;
}

#endif
