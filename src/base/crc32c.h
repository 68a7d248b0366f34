/* SPDX-License-Identifier: Apache-2.0 */
/* crc32c.h - CRC-32C (Castagnoli) of bytes, with the CPU's instruction if it has one.
 * crc32c(0, "123456789", 9) == 0xe3069283. Pass the last value to continue. Thread: any. */
#ifndef HVD_BASE_CRC32C_H
#define HVD_BASE_CRC32C_H
#include <stddef.h>
#include <stdint.h>
uint32_t crc32c(uint32_t crc, const void *bytes, size_t n);
uint32_t crc32c_portable(uint32_t crc, const void *bytes, size_t n); /* the reference, for tests */
/* Copies and computes the checksum in one pass over the source. */
uint32_t crc32c_copy(uint32_t crc, void *ret_bytes, const void *bytes, size_t n);
#endif
