/* SPDX-License-Identifier: Apache-2.0 */
/* sim_reference.h - the inputs of the ranks of a simulated program, and the expected results.
 *
 * Inputs are small whole numbers made from the seed, so that sums are exact in every type and any
 * order, and results can be compared bit by bit (Adasum: within a tolerance).
 *
 * Thread: any (pure).  Start reading at sim_reference_check(). */
#ifndef HVD_SIM_REFERENCE_H
#define HVD_SIM_REFERENCE_H

#include "sim_program.h"

/* The op as `rank` submits it, its oddity applied; shape[0] is the rank's own. */
void sim_reference_spec(const struct sim_program *program, int32_t call, int32_t op, int32_t rank,
                        struct sim_spec *ret);
int64_t sim_reference_count(const struct sim_spec *spec); /* elements */
/* Writes the input of `rank`, which has sim_reference_count() elements. */
void sim_reference_fill(const struct sim_program *program, int32_t call, int32_t op, int32_t rank,
                        const struct sim_spec *spec, void *ret_bytes);
/* Is this what `rank` must get? `out` has `out_rows` rows where the size is known only afterwards.
 * `cache` keeps what is equal for all ranks between calls; see sim_reference_free(). */
bool sim_reference_check(const struct sim_program *program, int32_t call, int32_t op, int32_t rank,
                         const void *out, int64_t out_rows, const int32_t *recv_splits,
                         void **cache);
void sim_reference_free(const struct sim_program *program, void *cache);

#endif
