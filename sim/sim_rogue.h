/* SPDX-License-Identifier: Apache-2.0 */
/* sim_rogue.h - a rank with the right key that violates the protocol: a simulated job in which one
 * rank's outgoing control messages are mutated, and limits on what that may do to the others.
 *
 * The mutations know the messages: header fields, ids and counts of announcements, every field of a
 * request, items of a response changed, duplicated, left out or invented; also raw bytes,
 * duplicated messages, and unsolicited messages. Links deliver them as authentic.
 *
 * Checked: no crash (run it under a sanitizer too), every op of every honest rank completes, and an
 * error about the protocol names a rank: the rogue one, if no other rank's messages pass through
 * it.
 *
 * Thread: one.  Start reading at sim_rogue_run() in sim_rogue.c. */
#ifndef HVD_SIM_ROGUE_H
#define HVD_SIM_ROGUE_H

#include "base/os.h"
#include "base/status.h"
#include "sim_verdict.h"

struct request;

struct sim_rogue_report {
    struct sim_verdict verdict;
    uint64_t messages, mutated, ops, errors, refused; /* refused: errors about the protocol */
    uint64_t silent; /* trials that a rogue ended by saying nothing; see sim_rogue.c */
    int32_t ranks, rogue;
};

struct sim_rogue_options {
    uint64_t seed;
    void (*trace)(const char *line); /* every mutation and every error; may be NULL */
};

/* What an honest rank 0 would send for an allreduce of so many floats. */
struct request sim_rogue_request(const char *name, int64_t count);
/* Adds what was counted. */
void sim_rogue_add(struct sim_rogue_report *sum, const struct sim_rogue_report *report);
/* true: nothing was violated. */
bool sim_rogue_run(const struct os *os, const struct sim_rogue_options *options,
                   struct sim_rogue_report *ret);

#endif
