/* SPDX-License-Identifier: Apache-2.0 */
/* blame.h - which rank began a failure: follows what the ranks say about each other.
 *
 * A rank whose operations failed because of another one has said so before it exits. The rank that
 * exits first may therefore be a victim: the chain of blame leads to the rank that blames nobody.
 * Ranks that blame each other in a circle tell nothing, so the first to exit counts.
 *
 * Pure. Thread: any.  Start reading at blame_choose(). */
#ifndef HVD_LAUNCHER_BLAME_H
#define HVD_LAUNCHER_BLAME_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct rank_run {
    bool is_ended, is_oom;
    int code, signal;
    pid_t pid;
    int64_t ended_ns;
    int32_t blamed;    /* 1 + the rank that this one blames; 0: none */
    const char *cause; /* what it said about that; NULL: nothing */
    const char *words; /* the exception that ended it; NULL: none is known */
};

struct blame {
    int32_t failed;  /* the first rank that failed by itself */
    int32_t culprit; /* the rank that began it, maybe the same */
    bool is_ended;   /* the culprit's own end is known */
};

/* Ends from `stopped_ns` on are the launcher's doing. False: no rank has failed. */
bool blame_choose(const struct rank_run *ranks, int32_t count, int64_t stopped_ns,
                  struct blame *ret);
bool blame_is_own_end(const struct rank_run *rank, int64_t stopped_ns);

#endif
