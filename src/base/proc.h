/* SPDX-License-Identifier: Apache-2.0 */
/* proc.h - what the system tells about a process: its files in /proc and its parent.
 *
 * For those who look upwards for the program that started this one. Nothing here may be relied on:
 * a process may be another user's, or gone; then there is no text and no parent.
 *
 * Thread: any.  Start reading at proc_read(). */
#ifndef HVD_BASE_PROC_H
#define HVD_BASE_PROC_H

#include "base/os.h"

/* /proc/PID/WHAT, at most bytes - 1 of it, ended by a 0; returns how many. */
size_t proc_read(const struct os *os, int32_t pid, const char *what, char *ret_text, size_t bytes);
int32_t proc_parent(const struct os *os, int32_t pid); /* -1: not known */

#endif
