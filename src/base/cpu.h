/* SPDX-License-Identifier: Apache-2.0 */
/* cpu.h - instruction sets that only the system can report; x86 processors are queried directly.
 *
 * Thread: any.  Start reading at cpu_has_arm_crc32(). */
#ifndef HVD_BASE_CPU_H
#define HVD_BASE_CPU_H

#include <stdbool.h>

/* The CRC-32 instructions of 64-bit ARM; false on other processors. */
bool cpu_has_arm_crc32(void);

#endif
