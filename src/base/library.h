/* SPDX-License-Identifier: Apache-2.0 */
/* library.h - what the loader knows about the shared libraries of this process. Loading one is in
 * os.h; these functions only read, and have no failures worth testing.
 *
 * Thread: any.  Start reading at library_each(). */
#ifndef HVD_BASE_LIBRARY_H
#define HVD_BASE_LIBRARY_H

#include <stdbool.h>

void library_each(void (*fn)(void *arg, const char *path), void *arg);
/* The file that this address belongs to, valid until it is unloaded; NULL: not known. */
const char *library_path_of(const void *address);
/* Does this address belong to the program itself rather than to a library? */
bool library_is_of_program(const void *address);

#endif
