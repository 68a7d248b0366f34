/* SPDX-License-Identifier: Apache-2.0 */
/* stack.h - reads the file in which a rank's Python writes the stacks of its threads
 * (python/horovod/common/stacks.py; the stacks themselves are faulthandler's).
 *
 * The file begins with a header:
 *
 *      pid 4711
 *      signal 46
 *      skip /usr/lib/python3/dist-packages/horovod/
 *      skip /usr/lib/python3.11/
 *      ready
 *
 * After the signal, the process appends one block for each of its threads, the main thread last:
 *
 *      Thread 0x00007f0c (most recent call first):
 *        File "/usr/lib/python3.11/threading.py", line 355 in wait
 *        File "/home/me/train.py", line 88 in step
 *
 * A frame under a skipped folder is a library's; the first of these folders is Horovod's own.
 * The file is the worker's: nothing in it is trusted.
 * Pure. Thread: any.  Start reading at stack_read(). */
#ifndef HVD_LAUNCHER_STACK_H
#define HVD_LAUNCHER_STACK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define STACK_SKIPS_MAX  16
#define STACK_PATH_MAX   512u
#define STACK_WHERE_MAX  256u
#define STACK_FRAMES_MAX 2048u
#define STACK_HEAD_MAX   8192u

struct stack_head {
    int32_t pid;
    int signal;
    size_t bytes; /* of the header: the stacks follow */
    char skips[STACK_SKIPS_MAX][STACK_PATH_MAX];
    int skip_count;
};

struct stack {
    char where[STACK_WHERE_MAX];   /* main thread: "train.py:88 in step", the innermost frame of the
                                      user's code; "": not known */
    char inner[STACK_WHERE_MAX];   /* main thread: its innermost frame, if that is a library's */
    char inside[STACK_WHERE_MAX];  /* `where` of the thread that is inside Horovod; "": none */
    char frames[STACK_FRAMES_MAX]; /* main thread: a line for each frame, innermost first */
    bool is_inside;                /* the main thread is inside Horovod */
};

/* False: the header is not complete, or not one. */
bool stack_head_read(const char *text, size_t n, struct stack_head *ret);
/* What was written after the signal; false: no frame of any thread. */
bool stack_read(const struct stack_head *head, const char *text, size_t n, struct stack *ret);

#endif
