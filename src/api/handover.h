/* SPDX-License-Identifier: Apache-2.0 */
/* handover.h - passes the job key and the rendezvous to the ranks if horovodrun does not.
 *
 * Rank 0 generates the key, begins to listen, and writes key and address to a file that the other
 * ranks, started by the same user, find by name. The file is 0600 in a directory that is 0700 and
 * owned by this user: on one machine the first usable one of $XDG_RUNTIME_DIR, ~/.horovod/keys and
 * /tmp/horovod-UID, across machines ~/.horovod/keys (which then must be shared). /tmp comes last
 * because other users may create the name first. A directory or file of another kind, owner or mode
 * is rejected, not repaired. The name is a hash of the job's identity (struct bootstrap,
 * `identity`), so no input can inject into the path. The file is complete or absent (renamed into
 * place), and is deleted once all ranks have met.
 *
 * Rank 0 of the next job of the same name overwrites the file of a killed job; a rank that read the
 * old file fails to authenticate and reads again.
 *
 * Thread: the one inside hvd_init().  Invariant: key bytes are in no error text.
 * Start reading at handover_path(). */
#ifndef HVD_API_HANDOVER_H
#define HVD_API_HANDOVER_H

#include "base/os.h"
#include "base/status.h"

#define HANDOVER_PATH_MAX    512
#define HANDOVER_ADDRESS_MAX 512

/* Creates the directory if necessary and checks it. */
hvd_status_t handover_path(const struct os *os, const char *identity, bool is_one_host,
                           char ret_path[HANDOVER_PATH_MAX], struct error *error);
hvd_status_t handover_write(const struct os *os, const char *path, const uint8_t key[32],
                            const char *address, struct error *error);
/* HVD_AGAIN: there is no such file (yet). */
hvd_status_t handover_read(const struct os *os, const char *path, uint8_t ret_key[32],
                           char ret_address[HANDOVER_ADDRESS_MAX], struct error *error);
void handover_remove(const struct os *os, const char *path); /* "" is fine */

#endif
