/* SPDX-License-Identifier: Apache-2.0 */
/* allocation.h - the hosts of a job: from -H, from a host file, from the batch system around us
 * (LSF, Slurm, PBS), else this machine.
 *
 * Thread: the launcher's.  Blocks: on reading files.  Start reading at allocation_find(). */
#ifndef HVD_LAUNCHER_ALLOCATION_H
#define HVD_LAUNCHER_ALLOCATION_H

#include "args.h"
#include "hosts.h"

/* Reads a whole file of at most FILE_MAX bytes; the text ends with a NUL behind its n bytes. */
hvd_status_t allocation_read_file(struct mem *m, const struct os *os, const char *path,
                                  char **ret_text, size_t *ret_n, struct error *error);
/* *ret_source: what the hosts came from, for messages. */
hvd_status_t allocation_find(struct mem *m, const struct os *os, const struct args *args,
                             struct hosts *ret, const char **ret_source, struct error *error);
/* Are we inside a batch job that says how many processes to start? */
bool allocation_is_batch(const struct os *os);
bool allocation_is_lsf(const struct os *os);

#endif
