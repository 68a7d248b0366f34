/* SPDX-License-Identifier: Apache-2.0 */
/* kernels_scalar.c - the kernels for any CPU: no instruction beyond what the compiler may use
 * anyway. On x86-64 that includes SSE2, on a machine without vectors it is scalar code.
 *
 * Thread: any.  Owner: a constant table.  Start reading at isa.inc. */
#if defined(__x86_64__)
#define REG "x"
#elif defined(__aarch64__)
#define REG "w"
#else
#define REG "m"
#endif
#define VBYTES 16
#define ISA_FN
#define F16_BY_INTEGER

#include "reduce/isa.inc"

const struct reduce_kernels *reduce_kernels_scalar(void)
{
    return &table;
}
