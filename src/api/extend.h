/* SPDX-License-Identifier: Apache-2.0 */
/* extend.h - structs of callers that were built with an older or a newer hvd.h.
 *
 * Public structs begin with struct_size and grow at their end only. A struct shorter than ours is
 * extended with zeros, which mean the defaults; a longer one is accepted if the fields that we do
 * not know are zero, because then it requests nothing that we lack.
 *
 * Thread: any (pure).  Start reading at extend_check(). */
#ifndef HVD_API_EXTEND_H
#define HVD_API_EXTEND_H

#include <stddef.h>

#include "base/status.h"

#define EXTEND_MAX 4096 /* a larger struct_size is uninitialised */

struct extend_kind {
    const char *name;
    size_t first_bytes; /* of the first header that was published */
    size_t bytes;       /* of ours */
};

/* Can we accept `theirs`, a struct of `struct_size` bytes according to its first member? */
hvd_status_t extend_check(const struct extend_kind *kind, const void *theirs, size_t struct_size,
                          struct error *error);
/* Converts a struct that passed extend_check() to ours, of kind->bytes. */
void extend_copy(const struct extend_kind *kind, void *ret, const void *theirs, size_t struct_size);

#endif
