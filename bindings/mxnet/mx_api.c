/* SPDX-License-Identifier: Apache-2.0 */
/* mx_api.c - find MXNet's C functions in the process that has MXNet loaded.
 *
 * Python loads libmxnet without adding it to the global scope, so it is opened again by its path,
 * which loads nothing. */
#include "mx_api.h"

#include <dlfcn.h>
#include <string.h>

struct mx_api mx;

static const char chunk_lay_out_name[] = "_ZN5mxnet7NDArray5Chunk15Reorder2DefaultEv";
static const char runtime_name[] = "libstdc++.so.6";
static const char error_create_name[] = "_ZNSt13runtime_errorC1EPKc";
static const char error_destroy_name[] = "_ZNSt13runtime_errorD1Ev";

/* A function pointer is copied as bytes: C has no conversion from an object pointer to it. */
static bool find(void *library, const char *name, void *ret_function)
{
    void *symbol = dlsym(library, name);
    memcpy(ret_function, &symbol, sizeof symbol);
    return symbol != NULL;
}

static const char *load_errors(void)
{
    void *runtime = dlopen(runtime_name, RTLD_NOLOAD | RTLD_NOW);
    if (runtime == NULL)
        return runtime_name;
    bool is_found = find(runtime, error_create_name, &mx.error_create) &&
                    find(runtime, error_destroy_name, &mx.error_destroy);
    dlclose(runtime); /* it stays: MXNet holds it */
    return is_found ? NULL : error_create_name;
}

const char *mx_api_load(const char *path)
{
    void *library = dlopen(path, RTLD_NOLOAD | RTLD_NOW);
    if (library == NULL)
        return "libmxnet.so";
    const char *missing = NULL;
#define X(result, name, arguments)                                                                 \
    if (!find(library, "MX" #name, &mx.name) && missing == NULL)                                   \
        missing = "MX" #name;
    MX_API_REQUIRED(X)
#undef X
    find(library, chunk_lay_out_name, &mx.chunk_lay_out);
    dlclose(library); /* it stays: Python holds it */
    return missing != NULL ? missing : load_errors();
}

void mx_complete(const struct mx_done *done, const char *text)
{
    /* Larger than any std::runtime_error, which holds two pointers. MXNet copies the object. */
    union {
        void *align;
        char bytes[64];
    } error;
    if (text == NULL) {
        done->run(done->engine, done->param, NULL);
        return;
    }
    mx.error_create(&error, text);
    done->run(done->engine, done->param, &error);
    mx.error_destroy(&error);
}
