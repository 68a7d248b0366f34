/* SPDX-License-Identifier: Apache-2.0 */
/* key.h - the job key: 32 random bytes made by the launcher, one set per job.
 *
 * Looked for in this order, the first that is set counts:
 *   HOROVOD_KEY_FD    an inherited descriptor (pipe, memfd); read once and closed
 *   HOROVOD_KEY_FILE  a regular file that only its owner may read, no symbolic link
 *   HOROVOD_KEY       64 hex digits in the environment, emptied after reading; the last resort,
 *                     since other processes of the same user can read it until then
 * Our launcher sets the first two: wrappers that start programs from Python (`conda run`,
 * subprocess) close descriptors or have others under the same number, and then the file counts.
 * A descriptor or file holds 32 raw bytes or 64 hex digits with an optional line end. It can be
 * read only once: whoever initialises again in one process keeps the key.
 *
 * Thread: the one that initialises.  Blocks: 5 s at most, on a descriptor.  Start at key_load(). */
#ifndef HVD_WIRE_KEY_H
#define HVD_WIRE_KEY_H

#include <stdbool.h>
#include <stdint.h>

#include "base/config.h"
#include "base/os.h"
#include "base/status.h"

#define KEY_BYTES     32
#define KEY_HEX_BYTES 65 /* with the NUL */

/* *ret_has false: none of the three is set, ret_key is left alone. No text ever holds key bytes. */
hvd_status_t key_load(const struct os *os, const struct config *config, uint8_t ret_key[KEY_BYTES],
                      bool *ret_has, struct error *error);
hvd_status_t key_generate(const struct os *os, uint8_t ret_key[KEY_BYTES], struct error *error);
/* The key of one generation's links. Only a member is told its salt (wire/store.h), so a process of
 * an earlier generation that still has the job key can't make it. */
void key_derive(const uint8_t job_key[KEY_BYTES], uint64_t epoch, const uint8_t salt[KEY_BYTES],
                uint8_t ret_key[KEY_BYTES]);
void key_hex(const uint8_t key[KEY_BYTES], char ret_hex[KEY_HEX_BYTES]);

#endif
