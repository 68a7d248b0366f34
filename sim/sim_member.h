/* SPDX-License-Identifier: Apache-2.0 */
/* sim_member.h - processes that join, leave, crash and hang while others meet: the state machine of
 * member/member.h against the real table of the store, in virtual time, from a seed.
 *
 * Three kinds of jobs: one whose launcher names the members of each generation and starts
 * replacements; a static one with the launcher's store; a static one whose rank 0 serves a separate
 * store in each life. Messages take a random time, connections to the store may break.
 *
 * Checked: members of a generation agree on its number, its list and its key; no process that is
 * not on the list ever runs in it; keys of generations differ; no attempt to meet outlasts its
 * deadline; once the faults stop, every remaining process runs in one generation, or has been
 * refused for good.
 *
 * Thread: one.  Start reading at sim_member_run() in sim_member.c. */
#ifndef HVD_SIM_MEMBER_H
#define HVD_SIM_MEMBER_H

#include "base/os.h"
#include "base/status.h"
#include "sim_verdict.h"

struct sim_member_options {
    uint64_t seed;
    void (*trace)(const char *line); /* may be NULL */
};

struct sim_member_report {
    struct sim_verdict verdict;
    uint64_t hash; /* of all events: equal seeds give equal hashes */
    int64_t end_ns;
    uint64_t events, generations, runs, crashes, hangs, refused, failed;
};

/* true: nothing was violated. */
bool sim_member_run(const struct os *os, const struct sim_member_options *options,
                    struct sim_member_report *ret);

#endif
