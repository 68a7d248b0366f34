/* SPDX-License-Identifier: Apache-2.0 */
/* inspect.h - what workers of this machine are doing, seen from outside: the state of the process,
 * and the Python stacks that it writes when it gets the signal that it has announced (stack.h).
 *
 * Works while the worker is stuck: the stacks are written by a C function inside a signal handler,
 * which needs neither the interpreter's lock nor a thread that runs. So does what its core reports
 * (wire/ask.h), which a thread of the core answers. A process that does not catch
 * the signal does not get it, nor does one that is stopped: it could not answer.
 * Thread: the agent's loop.  Owner: struct agent.  Blocks: never.
 * Start reading at inspect_add() and inspect_turn(). */
#ifndef HVD_LAUNCHER_INSPECT_H
#define HVD_LAUNCHER_INSPECT_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/os.h"
#include "stack.h"
#include "wire/ask.h"

#define INSPECT_STATE_MAX 160u

struct link;

struct inspect {
    struct inspect *next;
    uint32_t number, index; /* of the question, and of the worker */
    char path[512];         /* where the worker announces itself and writes; "": nowhere */
    pid_t pid;     /* of the process that was started; then of the one that announced itself */
    bool is_asked; /* it got the signal */
    bool is_done;
    struct stack_head head;
    uint64_t from;    /* where the stacks begin */
    uint64_t seen;    /* bytes that were there at the last turn */
    int64_t until_ns; /* it has until then */
    int64_t quiet_ns; /* since when no byte has come */

    char state[INSPECT_STATE_MAX]; /* "is stopped", "is sleeping" ...; "": not known */
    bool has_stack;
    struct stack stack;

    int status_fd; /* to its socket; -1: it is not asked, or has answered */
    uint8_t status[ASK_STATUS_MAX];
    size_t status_bytes;
};

struct inspect_question {
    uint32_t number, index;
    pid_t pid;
    const char *stack_path; /* NULL: nowhere */
    bool wants_stack;
    const char *status_path; /* the worker's socket (wire/ask.h); NULL: it is not asked */
};

/* Begins to look at a worker; out of memory: it is not looked at. */
void inspect_add(struct inspect **list, const struct os *os, const struct inspect_question *q);
/* Sends LOOKED for each worker of which everything is known, and drops it; when to call again,
 * INT64_MAX: no other is left. */
int64_t inspect_turn(struct inspect **list, const struct os *os, struct link *link);
void inspect_clear(struct inspect **list, const struct os *os);

#endif
