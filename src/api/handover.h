/* SPDX-License-Identifier: Apache-2.0 */
/* handover.h - the job key and the rendezvous where no launcher of ours hands them over.
 *
 * Rank 0 makes the key, begins to listen, and leaves both in a file that the other ranks, started
 * by the same user, find by name. The file is 0600 in a folder that is 0700 and ours: on one host
 * $XDG_RUNTIME_DIR or else /tmp/horovod-UID, across hosts ~/.horovod/keys (which then must be
 * shared). A folder or file of another kind, owner or mode is refused, not repaired. The name is a
 * hash of what tells this job from others (struct bootstrap, `identity`), so nothing can be guessed
 * into a path. The file is whole or absent (renamed into place), and goes once all ranks have met.
 *
 * What a job that was killed left behind is overwritten by rank 0 of the next of the same name;
 * whoever read it too early fails to authenticate and reads again.
 *
 * Thread: the one inside hvd_init().  Invariant: key bytes are in no error text.
 * Start reading at handover_path(). */
#ifndef HVD_API_HANDOVER_H
#define HVD_API_HANDOVER_H

#include "base/os.h"
#include "base/status.h"

#define HANDOVER_PATH_MAX    512
#define HANDOVER_ADDRESS_MAX 512

/* Makes the folder if need be and checks it. */
hvd_status_t handover_path(const struct os *os, const char *identity, uint64_t life,
                           bool is_one_host, char ret_path[HANDOVER_PATH_MAX], struct error *error);
hvd_status_t handover_write(const struct os *os, const char *path, const uint8_t key[32],
                            const char *address, struct error *error);
/* HVD_AGAIN: there is no such file (yet). */
hvd_status_t handover_read(const struct os *os, const char *path, uint8_t ret_key[32],
                           char ret_address[HANDOVER_ADDRESS_MAX], struct error *error);
void handover_remove(const char *path); /* "" is fine */

#endif
