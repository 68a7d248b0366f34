/* SPDX-License-Identifier: Apache-2.0 */
/* status.c - error records, and the names and classes of statuses and dtypes.
 *
 * Thread: any; a struct error belongs to its holder.  Blocks: never. Invariant: the first cause
 * written to a record is kept; callers further out cannot overwrite it. Bindings raise exceptions
 * by the four classes: the caller's argument, a rank that disagrees, an abandoned op, and
 * everything else that broke.  Start reading at error_set(). */
#undef _GNU_SOURCE /* the POSIX strerror_r(), whatever the build defines */
#define _POSIX_C_SOURCE 200809L

#include "base/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static bool error_is_open(const struct error *error, hvd_status_t status)
{
    return error != NULL && error->status == HVD_OK && status != HVD_OK;
}

hvd_status_t error_set(struct error *error, hvd_status_t status, const char *format, ...)
{
    if (!error_is_open(error, status))
        return status;
    va_list args;
    va_start(args, format);
    (void)vsnprintf(error->text, sizeof error->text, format, args);
    va_end(args);
    error->status = status;
    return status;
}

hvd_status_t error_set_os(struct error *error, int neg_errno, const char *format, ...)
{
    if (!error_is_open(error, HVD_ERR_OS))
        return HVD_ERR_OS;
    char cause[96];
    if (strerror_r(-neg_errno, cause, sizeof cause) != 0)
        (void)snprintf(cause, sizeof cause, "error %d", -neg_errno);

    /* The cause is the part that must survive truncation, so its room is kept free. */
    size_t room = sizeof error->text - strlen(cause) - 2;
    va_list args;
    va_start(args, format);
    (void)vsnprintf(error->text, room, format, args);
    va_end(args);
    size_t used = strlen(error->text);
    (void)snprintf(error->text + used, sizeof error->text - used, ": %s", cause);
    error->status = HVD_ERR_OS;
    return HVD_ERR_OS;
}

void error_append(struct error *error, const char *text)
{
    size_t used = strlen(error->text), bytes = strlen(text) + 1;
    if (error->status != HVD_OK && used + bytes <= sizeof error->text)
        memcpy(error->text + used, text, bytes);
}

const char *hvd_status_name(hvd_status_t status)
{
    switch (status) {
    case HVD_OK: return "ok";
    case HVD_IN_PROGRESS: return "in progress";
    case HVD_AGAIN: return "again";
    case HVD_ERR_INVALID: return "invalid argument";
    case HVD_ERR_DUPLICATE: return "duplicate name";
    case HVD_ERR_MISMATCH: return "mismatch";
    case HVD_ERR_UNSUPPORTED: return "unsupported";
    case HVD_ERR_ABORTED: return "aborted";
    case HVD_ERR_NOT_INITIALIZED: return "not initialized";
    case HVD_ERR_LIMIT: return "limit reached";
    case HVD_ERR_NO_MEMORY: return "no memory";
    case HVD_ERR_TIMEOUT: return "timeout";
    case HVD_ERR_CONFIG: return "bad configuration";
    case HVD_ERR_OS: return "system call failed";
    case HVD_ERR_LINK: return "link lost";
    case HVD_ERR_AUTH: return "authentication failed";
    case HVD_ERR_CORRUPT: return "corrupt frame";
    case HVD_ERR_STALE: return "stale epoch";
    case HVD_ERR_PEER_DEAD: return "peer dead";
    case HVD_ERR_PEER_HUNG: return "peer hung";
    case HVD_ERR_SHUTDOWN: return "shut down";
    case HVD_ERR_INTERNAL: return "internal error";
    case HVD_ERR_REMOVED: return "removed";
    }
    return "unknown status";
}

hvd_status_class_t hvd_status_class(hvd_status_t status)
{
    switch (status) {
    case HVD_OK: return HVD_CLASS_OK;
    case HVD_IN_PROGRESS:
    case HVD_AGAIN: return HVD_CLASS_IN_PROGRESS;
    case HVD_ERR_INVALID:
    case HVD_ERR_DUPLICATE:
    case HVD_ERR_LIMIT:
    case HVD_ERR_CONFIG: return HVD_CLASS_INVALID_ARGUMENT;
    case HVD_ERR_MISMATCH:
    case HVD_ERR_NOT_INITIALIZED: return HVD_CLASS_PRECONDITION;
    case HVD_ERR_ABORTED: return HVD_CLASS_ABORTED;
    case HVD_ERR_UNSUPPORTED:
    case HVD_ERR_NO_MEMORY:
    case HVD_ERR_TIMEOUT:
    case HVD_ERR_OS:
    case HVD_ERR_LINK:
    case HVD_ERR_AUTH:
    case HVD_ERR_CORRUPT:
    case HVD_ERR_STALE:
    case HVD_ERR_PEER_DEAD:
    case HVD_ERR_PEER_HUNG:
    case HVD_ERR_SHUTDOWN:
    case HVD_ERR_INTERNAL: return HVD_CLASS_UNKNOWN;
    case HVD_ERR_REMOVED: return HVD_CLASS_ABORTED;
    }
    return HVD_CLASS_UNKNOWN;
}

size_t hvd_dtype_bytes(hvd_dtype_t dtype)
{
    switch (dtype) {
    case HVD_UINT8:
    case HVD_INT8:
    case HVD_BOOL: return 1;
    case HVD_UINT16:
    case HVD_INT16:
    case HVD_FLOAT16:
    case HVD_BFLOAT16: return 2;
    case HVD_INT32:
    case HVD_FLOAT32: return 4;
    case HVD_INT64:
    case HVD_FLOAT64: return 8;
    case HVD_DTYPE_COUNT: break;
    }
    return 0;
}

const char *hvd_dtype_name(hvd_dtype_t dtype)
{
    switch (dtype) {
    case HVD_UINT8: return "uint8";
    case HVD_INT8: return "int8";
    case HVD_UINT16: return "uint16";
    case HVD_INT16: return "int16";
    case HVD_INT32: return "int32";
    case HVD_INT64: return "int64";
    case HVD_FLOAT16: return "float16";
    case HVD_FLOAT32: return "float32";
    case HVD_FLOAT64: return "float64";
    case HVD_BOOL: return "bool";
    case HVD_BFLOAT16: return "bfloat16";
    case HVD_DTYPE_COUNT: break;
    }
    return "unknown dtype";
}
