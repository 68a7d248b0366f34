/* SPDX-License-Identifier: Apache-2.0 */
/* cause.h - why a rank's job broke, as the record that the rank sends to its launcher.
 *
 * A rank whose engine breaks writes one record into a named pipe of its agent before any of its
 * operations fail. So the launcher knows which exits are consequences, and whose exit to wait for.
 * A pipe with a name reaches ranks behind wrappers that close descriptors; it lies in the folder of
 * the key file, which only the job's user can enter. Records have one size, below PIPE_BUF: writes
 * of several ranks never mix, and a reader never sees half of one.
 *
 * Thread: any.  Blocks: never.  Start reading at cause_send(). */
#ifndef HVD_WIRE_CAUSE_H
#define HVD_WIRE_CAUSE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/os.h"
#include "wire/store.h"

#define CAUSE_BYTES    512u
#define CAUSE_TEXT_MAX 396u

/* CAUSE_STALL to CAUSE_LOOK report one stall, in this order. */
enum cause_kind {
    CAUSE_BROKE = 0, /* the rank's engine broke; also: what it broke by is over (culprit -1) */
    CAUSE_LEAVE,     /* the worker asks to be left out of the next generation */
    CAUSE_STALL,     /* text: the op that has waited longest; count: how many ops wait */
    CAUSE_WAITS,     /* text: the ranks that have submitted it, as "0-2,5" */
    CAUSE_MISSING,   /* culprit has not submitted `count` ops that others have; text: the first.
                        count -1: it sends nothing at all */
    CAUSE_AHEAD,     /* culprit has submitted `count` ops that others have not; text: the first */
    CAUSE_LOOK,      /* the report is complete: what are these ranks doing? */
    CAUSE_WORDS,     /* text: the exception that ends this rank */
    CAUSE_SUMMARY    /* text: a part of rank 0's closing paragraph; count: its number, from 0 on */
};

struct cause {
    enum cause_kind kind;
    uint64_t epoch; /* of the generation in which the ranks are numbered; 0: a static job's */
    char worker[STORE_WORKER_MAX + 1]; /* the worker that reports; "": ranks tell it all */
    int32_t rank;                      /* the rank that reports */
    int32_t culprit;                   /* the rank that it blames; -1: none, or none any longer */
    int64_t count, waited_ms;          /* of a stall */
    char text[CAUSE_TEXT_MAX];
};

void cause_encode(const struct cause *cause, uint8_t ret_record[CAUSE_BYTES]);
/* False: these bytes are not a record. Control characters in the text become blanks. */
bool cause_decode(const uint8_t record[CAUSE_BYTES], struct cause *ret);

/* The rank's end. Negative errno: `path` is "" or not a pipe. */
int cause_open(const struct os *os, const char *path);
/* fd < 0: nobody wants to know. A pipe that is full loses the record: its reader is stuck. */
void cause_send(const struct os *os, int fd, const struct cause *cause);

#endif
