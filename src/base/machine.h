/* SPDX-License-Identifier: Apache-2.0 */
/* machine.h - what the system knows about the machine and the memory of this process.
 *
 * Thread: any.  Blocks: on small reads of kernel files.  Allocates: never.
 * Start reading at machine_boot_id(). */
#ifndef HVD_BASE_MACHINE_H
#define HVD_BASE_MACHINE_H

#include "base/os.h"

#define MACHINE_BOOT_ID_MAX 40

/* A text that is the same in all processes on this machine until it is rebooted, and unique to it;
 * "": not known. */
void machine_boot_id(const struct os *os, char ret_id[MACHINE_BOOT_ID_MAX]);
/* Processes that get different numbers do not see each other's local sockets (containers); 0: not
 * known. */
uint64_t machine_local_scope(const struct os *os);
void machine_name(const struct os *os, char *ret_name, size_t bytes); /* "": not known */
uint64_t machine_memory_bytes(const struct os *os);                   /* 0: not known */

/* Is all of this memory private, writable and anonymous? If not, *ret_what describes what is mapped
 * there, "" meaning nothing. Negative errno value: not known. */
int machine_memory_check(const struct os *os, const void *ptr, uint64_t bytes, bool *ret_is_private,
                         char *ret_what, size_t what_bytes);

#endif
