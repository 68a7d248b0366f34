/* SPDX-License-Identifier: Apache-2.0 */
/* cpu_linux.c - see cpu.h: reads what the kernel passes to every program at its start. */
#include "base/cpu.h"

#include <sys/auxv.h>

#define HWCAP_ARM_CRC32 (1ul << 7)

bool cpu_has_arm_crc32(void)
{
#if defined(__aarch64__)
    return (getauxval(AT_HWCAP) & HWCAP_ARM_CRC32) != 0;
#else
    return false;
#endif
}
