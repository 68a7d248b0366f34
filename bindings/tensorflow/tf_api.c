/* SPDX-License-Identifier: Apache-2.0 */
/* tf_api.c - find TensorFlow's C functions in the process that has TensorFlow loaded.
 *
 * They are taken from libtensorflow_framework alone: another library of the wheel exports second
 * copies of some, and the wheel's libraries are not always in the global scope. */
#include "tf_api.h"

#include <dlfcn.h>
#include <string.h>

struct tf_api tf;

static const char framework_name[] = "libtensorflow_framework.so.2";

/* A function pointer is copied as bytes: C has no conversion from an object pointer to it. */
static bool find(void *library, const char *name, void *ret_function)
{
    void *symbol = dlsym(library, name);
    memcpy(ret_function, &symbol, sizeof symbol);
    return symbol != NULL;
}

const char *tf_api_load(void)
{
    void *library = dlopen(framework_name, RTLD_NOLOAD | RTLD_NOW);
    if (library == NULL)
        return framework_name;
    const char *missing = NULL;
#define X(result, name, arguments)                                                                 \
    if (!find(library, "TF_" #name, &tf.name) && missing == NULL)                                  \
        missing = "TF_" #name;
    TF_API_REQUIRED(X)
#undef X
#define X(result, name, arguments) find(library, "TF_" #name, &tf.name);
    TF_API_OPTIONAL(X)
#undef X
    dlclose(library); /* it stays: Python holds it */
    return missing;
}
