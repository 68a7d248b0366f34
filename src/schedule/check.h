/* SPDX-License-Identifier: Apache-2.0 */
/* check.h - the prover used by schedule_check(), exposed to tests: it accepts any set of schedules,
 * also broken ones, and any collective.
 *
 * Thread: any.  Blocks: never.  Start reading at schedule_prove() in check.c. */
#ifndef HVD_SCHEDULE_CHECK_H
#define HVD_SCHEDULE_CHECK_H

#include "schedule/schedule.h"

enum proof_goal { PROOF_ALLREDUCE, PROOF_BROADCAST, PROOF_ALLGATHER, PROOF_REDUCESCATTER };

struct proof {
    enum proof_goal goal;
    const struct topology *topology;
    const struct schedule *schedules; /* one per rank */
    uint64_t count;                   /* elements of WORK */
    int32_t root;                     /* broadcast */
    const uint64_t *offsets, *counts; /* allgather, reducescatter: each rank's part */
    uint64_t seed;                    /* of the inputs and of the interleaving */
    int32_t rounds; /* how often to run the collective, back to back (1 .. PROOF_ROUNDS_MAX) */
};
#define PROOF_ROUNDS_MAX 3

/* HVD_OK, HVD_ERR_INTERNAL with the defect in `error`, or HVD_ERR_NO_MEMORY. */
hvd_status_t schedule_prove(const struct os *os, const struct proof *proof, struct error *error);
/* Builds all ranks' allreduce schedules and proves them under `seeds` interleavings. */
hvd_status_t schedule_check_sized(const struct os *os, enum schedule_algorithm algorithm,
                                  uint64_t count, size_t element_bytes, int32_t seeds,
                                  const struct topology *topology, struct error *error);

#endif
