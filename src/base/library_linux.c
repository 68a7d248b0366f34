/* SPDX-License-Identifier: Apache-2.0 */
/* library_linux.c - see library.h.  Start reading at library_each(). */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE 1 /* dladdr(), dl_iterate_phdr() */
#endif
#include "base/library.h"

#include <dlfcn.h>
#include <link.h>
#include <stddef.h>
#include <sys/auxv.h>

struct visit {
    void (*fn)(void *arg, const char *path);
    void *arg;
};

static int see_object(struct dl_phdr_info *object, size_t bytes, void *arg)
{
    struct visit *visit = arg;
    (void)bytes;
    if (object->dlpi_name != NULL)
        visit->fn(visit->arg, object->dlpi_name);
    return 0;
}

void library_each(void (*fn)(void *arg, const char *path), void *arg)
{
    struct visit visit = {fn, arg};
    (void)dl_iterate_phdr(see_object, &visit);
}

const char *library_path_of(const void *address)
{
    Dl_info where;
    return dladdr(address, &where) != 0 ? where.dli_fname : NULL;
}

bool library_is_of_program(const void *address)
{
    Dl_info where, program;
    return dladdr(address, &where) != 0 && dladdr((void *)getauxval(AT_ENTRY), &program) != 0 &&
           where.dli_fbase == program.dli_fbase;
}
