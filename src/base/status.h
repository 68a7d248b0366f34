/* SPDX-License-Identifier: Apache-2.0 */
/* status.h - error records: the function that detects a failure records its cause; others pass it
 * on unchanged.
 *
 * Thread: the record's owner.  Start reading at error_set(). */
#ifndef HVD_BASE_STATUS_H
#define HVD_BASE_STATUS_H

#include <stddef.h>

#include "horovod/hvd.h"

struct error {
    hvd_status_t status; /* HVD_OK: no error recorded */
    char text[HVD_ERROR_MAX];
};

/* No error recorded. Use it for a record on the stack of a function that runs per op: `= {0}` would
 * write the whole text. */
static inline void error_clear(struct error *error)
{
    if (error == NULL)
        return;
    error->status = HVD_OK;
    error->text[0] = '\0';
}

/* Records the first cause and keeps it: a second call changes nothing. `error` may be NULL. Returns
 * `status`, so that `return error_set(err, HVD_ERR_X, "...")` fits on one line. */
hvd_status_t error_set(struct error *error, hvd_status_t status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* The same with ": <strerror(-neg_errno)>" after the text and status HVD_ERR_OS. */
hvd_status_t error_set_os(struct error *error, int neg_errno, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Adds to the text of a recorded error, whole or not at all. */
void error_append(struct error *error, const char *text);

#endif
