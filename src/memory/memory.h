/* SPDX-License-Identifier: Apache-2.0 */
/* memory.h - the kinds of memory that a tensor can be in. The third of our tables.
 *
 * A row defines how memory of one kind is accessed: directly by the processor, or by asynchronous
 * copies to and from host memory. The engine copies tensors of the second sort to host memory, runs
 * the collective there and copies the results back (engine/stage.c). For host memory it never calls
 * this table.
 *
 * Every kind passes tests/unit/memory_conformance.h.
 *
 * Thread: as noted at each function.  Start reading at struct memory_ops. */
#ifndef HVD_MEMORY_MEMORY_H
#define HVD_MEMORY_MEMORY_H

#include <stdbool.h>

#include "base/os.h"
#include "base/status.h"

#define MEMORY_VERSION   1u
#define MEMORY_KINDS_MAX 8

struct memory_kind; /* one opened kind */
struct memory_mark; /* a point in a device's work: a position in a stream, the end of copies */

enum memory_direction { MEMORY_TO_HOST, MEMORY_FROM_HOST };

struct memory_copy {
    void *to;
    const void *from;
    size_t bytes;
    struct memory_mark *after; /* starts when this is reached; NULL: at once */
};

struct memory_ops {
    uint32_t version;
    const char *name;     /* "host" */
    int32_t kind;         /* HVD_MEMORY_*; equal in all processes of a job */
    bool is_host_visible; /* the processor accesses it directly: nothing is copied */
    /* Usable here? If not, `error` has the reason. Changes nothing; any thread. */
    hvd_status_t (*probe)(const struct os *os, struct error *error);
    hvd_status_t (*open)(const struct os *os, struct memory_kind **ret, struct error *error);
    void (*close)(struct memory_kind *m); /* after the last engine that uses it */
    int32_t (*device_count)(const struct memory_kind *m);

    void *(*alloc)(struct memory_kind *m, int32_t device,
                   size_t bytes); /* NULL: none left; any thread */
    void (*free)(struct memory_kind *m, int32_t device, void *ptr); /* NULL is fine; any thread */

    /* Marks the position of a caller's stream: reached when all work queued in it so far has
     * finished. A NULL stream is the device's default one. Any thread, never blocks. */
    hvd_status_t (*record)(struct memory_kind *m, int32_t device, void *stream,
                           struct memory_mark **ret, struct error *error);
    /* Starts copies between this memory and host memory and returns at once; `ret` is reached when
     * all of them have finished. `copies` is read during the call only. Token holder. */
    hvd_status_t (*copy)(struct memory_kind *m, int32_t device, enum memory_direction direction,
                         const struct memory_copy *copies, int32_t count, struct memory_mark **ret,
                         struct error *error);
    /* HVD_OK: reached; HVD_IN_PROGRESS; or an error: a copy failed, and none of them continues.
     * Never blocks; token holder. */
    hvd_status_t (*reached)(struct memory_kind *m, struct memory_mark *mark, struct error *error);
    /* Frees a mark, reached or not; NULL is fine; any thread. False: its copies continue, so the
     * memory on both sides of them must never be freed. */
    bool (*release)(struct memory_kind *m, struct memory_mark *mark);
};

struct memory_kind {
    const struct memory_ops *ops;
    const struct os *os;
};

/* All kinds of this build, host memory first, terminated by NULL. */
extern const struct memory_ops *const memory_kinds[];

extern const struct memory_ops memory_host;

/* Opens every kind that is usable here and not accessible to the processor, to pass to an engine.
 * Returns how many. */
int32_t memory_open(const struct os *os, struct memory_kind *ret[MEMORY_KINDS_MAX]);
void memory_close(struct memory_kind *const *memories, int32_t count);

#endif
