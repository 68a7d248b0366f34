/* SPDX-License-Identifier: Apache-2.0 */
/* hvd_status.h - the one status enum, grouped by the scope of the failure: the call or op, a link,
 * a peer, the job. Zero is success, positive means "not yet", negative is an error. */
#ifndef HOROVOD_HVD_STATUS_H
#define HOROVOD_HVD_STATUS_H

#ifdef __cplusplus
extern "C" {
#endif

typedef enum hvd_status {
    HVD_OK = 0,
    HVD_IN_PROGRESS = 1, /* not finished yet; poll or wait again */
    HVD_AGAIN = 2,       /* no room or no data right now; try later */

    /* the call or the op: nothing else is affected, the next call works */
    HVD_ERR_INVALID = -1,   /* bad argument, unknown or foreign process set, bad splits or root */
    HVD_ERR_DUPLICATE = -2, /* an op of this name is still in flight */
    HVD_ERR_MISMATCH = -3,  /* ranks submitted different dtype, shape, op, root, scale or device */
    HVD_ERR_UNSUPPORTED = -4,     /* this combination of op and dtype does not exist */
    HVD_ERR_ABORTED = -5,         /* the op was abandoned: its process set was removed */
    HVD_ERR_NOT_INITIALIZED = -6, /* hvd_init() has not been called, or this is a forked child */
    HVD_ERR_LIMIT = -7, /* a documented maximum was reached (ops in flight, sets, name length) */
    HVD_ERR_NO_MEMORY = -8,
    HVD_ERR_TIMEOUT = -9, /* the caller's time limit passed; the op continues */
    HVD_ERR_CONFIG = -10, /* wrong or incomplete environment or config */
    HVD_ERR_OS = -11,     /* a system call failed; the text has its name and errno */

    /* a link: it is closed; the job fails or continues without it */
    HVD_ERR_LINK = -20,    /* closed, reset or unreachable */
    HVD_ERR_AUTH = -21,    /* handshake failed: wrong key, job or version */
    HVD_ERR_CORRUPT = -22, /* checksum, length or sequence of a frame is wrong */
    HVD_ERR_STALE = -23,   /* the frame belongs to another epoch */

    /* a peer: every pending op of every survivor fails with this */
    HVD_ERR_PEER_DEAD = -30,
    HVD_ERR_PEER_HUNG = -31,

    /* the job */
    HVD_ERR_SHUTDOWN = -40, /* this or another rank shut down */
    HVD_ERR_INTERNAL = -41, /* a bug in this library */
    HVD_ERR_REMOVED = -42   /* this process was removed from its elastic job: it should exit */
} hvd_status_t;

/* The four classes that bindings turn into exceptions (see docs/c_api.md). */
typedef enum hvd_status_class {
    HVD_CLASS_OK = 0,
    HVD_CLASS_UNKNOWN = 1,
    HVD_CLASS_PRECONDITION = 2,
    HVD_CLASS_ABORTED = 3,
    HVD_CLASS_INVALID_ARGUMENT = 4,
    HVD_CLASS_IN_PROGRESS = 5
} hvd_status_class_t;

#ifdef __cplusplus
}
#endif
#endif
