/* SPDX-License-Identifier: Apache-2.0 */
/* proc.h - what the system knows about a process: its parent, its program, its environment, its
 * open files, its processor time.
 *
 * For code that searches its ancestors for the program that started this one, and for metrics. The
 * results are best effort: a process may belong to another user or have exited; then there is no
 * text and no parent.
 *
 * Thread: any.  Start reading at proc_parent(). */
#ifndef HVD_BASE_PROC_H
#define HVD_BASE_PROC_H

#include "base/os.h"

int32_t proc_parent(const struct os *os, int32_t pid); /* -1: not known */
/* The path of the program that it runs; false: not known, or too long. */
bool proc_program(const struct os *os, int32_t pid, char *ret_path, size_t bytes);
/* The environment it was started with, NAME=VALUE after NAME=VALUE, each terminated by a 0; at most
 * bytes - 1 of it. Returns the length. */
size_t proc_environment(const struct os *os, int32_t pid, char *ret_text, size_t bytes);
/* Another descriptor of the same file of this process, positioned at its start; negative errno
 * value: it can't be opened again. */
int proc_reopen(const struct os *os, int fd);

struct proc_times {
    int64_t user_ns, system_ns; /* processor time of all its threads; steps of 10 ms */
    int64_t age_ns;             /* since it was started; 0: not known */
};
/* false: not known. */
bool proc_times(const struct os *os, int32_t pid, struct proc_times *ret);

#endif
