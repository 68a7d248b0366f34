/* SPDX-License-Identifier: Apache-2.0 */
/* symbols.h - the functions of a framework's C library, by name, as a table of function pointers.
 *
 * Thread: the one that loads the binding.  Start reading at symbols_load(). */
#ifndef HVD_BINDINGS_COMMON_SYMBOLS_H
#define HVD_BINDINGS_COMMON_SYMBOLS_H

#include <stdbool.h>
#include <stddef.h>

struct symbol {
    const char *name;
    size_t at; /* offset of its pointer in the table */
};

/* false: the library has none of that name, and the pointer is NULL. */
bool symbol_find(void *library, const char *name, void *ret_function);

/* Fills in the pointers of a table; returns the first name that is missing, or NULL. */
const char *symbols_load(void *library, const struct symbol *symbols, size_t count,
                         void *ret_table);

#endif
