/* SPDX-License-Identifier: Apache-2.0 */
/* tf_api.c - find TensorFlow's C functions in the process that has TensorFlow loaded.
 *
 * They are taken from libtensorflow_framework alone: another library of the wheel exports second
 * copies of some, and the wheel's libraries are not always in the global scope. */
#include "tf_api.h"

#include <dlfcn.h>
#include <stddef.h>

#include "../common/symbols.h"

struct tf_api tf;

static const char framework_name[] = "libtensorflow_framework.so.2";

#define X(result, name, arguments) {"TF_" #name, offsetof(struct tf_api, name)},
static const struct symbol required[] = {TF_API_REQUIRED(X)};
static const struct symbol optional[] = {TF_API_OPTIONAL(X)};
#undef X

const char *tf_api_load(void)
{
    void *library = dlopen(framework_name, RTLD_NOLOAD | RTLD_NOW);
    if (library == NULL)
        return framework_name;
    const char *missing = symbols_load(library, required, sizeof required / sizeof *required, &tf);
    (void)symbols_load(library, optional, sizeof optional / sizeof *optional, &tf);
    dlclose(library); /* it stays: Python holds it */
    return missing;
}
