/* SPDX-License-Identifier: Apache-2.0 */
/* symbols.c - see symbols.h. */
#include "symbols.h"

#include <dlfcn.h>
#include <string.h>

/* A function pointer is copied as bytes: C has no conversion from an object pointer to it. */
bool symbol_find(void *library, const char *name, void *ret_function)
{
    void *symbol = dlsym(library, name);
    memcpy(ret_function, &symbol, sizeof symbol);
    return symbol != NULL;
}

const char *symbols_load(void *library, const struct symbol *symbols, size_t count, void *ret_table)
{
    const char *missing = NULL;
    for (size_t i = 0; i < count; i++)
        if (!symbol_find(library, symbols[i].name, (char *)ret_table + symbols[i].at) &&
            missing == NULL)
            missing = symbols[i].name;
    return missing;
}
