/* SPDX-License-Identifier: Apache-2.0 */
/* sim_adasum.h - the rule of Adasum for two whole vectors in double, for references in tests.
 *
 * Thread: any (pure). */
#ifndef HVD_SIM_ADASUM_H
#define HVD_SIM_ADASUM_H

#include <stdint.h>

#define SIM_ADASUM_TINY 1.4916681462400413e-154 /* sqrt(DBL_MIN): a norm that counts as none */

/* a = the sum of a and b, each without half of what it has in common with the other. */
static inline void sim_adasum_pair(double *a, const double *b, uint64_t count)
{
    double dot = 0, aa = 0, bb = 0;
    for (uint64_t i = 0; i < count; i++) {
        dot += a[i] * b[i];
        aa += a[i] * a[i];
        bb += b[i] * b[i];
    }
    double ca = aa < SIM_ADASUM_TINY ? 1 : 1 - dot / (2 * aa);
    double cb = bb < SIM_ADASUM_TINY ? 1 : 1 - dot / (2 * bb);
    for (uint64_t i = 0; i < count; i++)
        a[i] = ca * a[i] + cb * b[i];
}

#endif
