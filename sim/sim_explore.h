/* SPDX-License-Identifier: Apache-2.0 */
/* sim_explore.h - exhaustive search of small worlds: every order in which two or three ranks can
 * submit, in which messages can arrive, in which a rank can crash and a time limit can pass.
 *
 * A program is a short text for each rank:
 *      a b c d   allreduce of that name        A B C D   the same name with another shape
 *      h         allgather, rank + 1 rows      z         broadcast from rank 0      y  barrier
 *      j         join, and wait for it         .         wait for all submitted so far
 *      s         ask for shutdown
 *
 * The explorer searches the tree of all choices, depth first, and replays a prefix to return to it.
 * Two prefixes that give every rank the same history (the same own steps and the same messages, in
 * the same order) lead to the same state, since an engine is a function of its history: of such
 * prefixes only one is continued. So orders of independent events are tried once, and a search
 * terminates.
 *
 * Checked at the end of every path: all ops of living ranks have completed; without a crash and a
 * timeout, the n-th op of a name has the same outcome on all ranks; a result without error is
 * right.
 *
 * Thread: one.  Start reading at sim_explore() in sim_explore.c. */
#ifndef HVD_SIM_EXPLORE_H
#define HVD_SIM_EXPLORE_H

#include "base/os.h"
#include "base/status.h"
#include "sim_verdict.h"

#define EXPLORE_RANKS_MAX 3

enum explore_plant { /* a planted fault, to see that the explorer finds it */
                     EXPLORE_PLANT_NONE,
                     EXPLORE_PLANT_LOSE, /* a response to the last rank is lost if another is still
                                            in transit */
                     EXPLORE_PLANT_SWAP /* two messages on a link change places, once, at any moment
                                         */
};

struct explore_options {
    int32_t ranks;
    const char *programs[EXPLORE_RANKS_MAX];
    int32_t crashes;     /* ranks that may crash, at any moment */
    int32_t timeouts;    /* times that a time limit may pass, at any moment */
    uint64_t states_max; /* 0: no limit */
    int32_t plan_warmup; /* steps; 0: no plans */
    enum explore_plant plant;
    void (*trace)(const char *line); /* the path of a violation; may be NULL */
};

struct explore_report {
    struct sim_verdict verdict;
    bool is_complete;              /* all states were visited */
    uint64_t states, paths, steps; /* distinct states; paths walked; choices replayed */
    int32_t depth;                 /* of the longest path */
};

bool sim_explore(const struct os *os, const struct explore_options *options,
                 struct explore_report *ret);

#endif
