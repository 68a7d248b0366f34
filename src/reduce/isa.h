/* SPDX-License-Identifier: Apache-2.0 */
/* isa.h - which instruction sets may run here, and the kernels of each.
 *
 * A set counts only if this build has its kernels, the CPU has the instructions and the operating
 * system saves the registers.
 *
 * Thread: any.  Owner: one process-wide value, the choice; it describes the machine, not an
 * engine.  Start reading at isa_kernels_best(). */
#ifndef HVD_REDUCE_ISA_H
#define HVD_REDUCE_ISA_H

#include "reduce/kernels.h"
#include "reduce/reduce.h"

const struct reduce_kernels *isa_kernels(enum reduce_isa isa); /* NULL if it may not run here */
const struct reduce_kernels *isa_kernels_best(void);           /* never NULL */

#endif
