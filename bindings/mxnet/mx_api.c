/* SPDX-License-Identifier: Apache-2.0 */
/* mx_api.c - find MXNet's C functions in the process that has MXNet loaded.
 *
 * Python loads libmxnet without adding it to the global scope, so it is opened again by its path,
 * which loads nothing. */
#include "mx_api.h"

#include <dlfcn.h>
#include <stddef.h>

#include "../common/symbols.h"

struct mx_api mx;

static const char chunk_lay_out_name[] = "_ZN5mxnet7NDArray5Chunk15Reorder2DefaultEv";
static const char runtime_name[] = "libstdc++.so.6";
static const char error_create_name[] = "_ZNSt13runtime_errorC1EPKc";
static const char error_destroy_name[] = "_ZNSt13runtime_errorD1Ev";

static const struct symbol required[] = {
#define X(result, name, arguments) {"MX" #name, offsetof(struct mx_api, name)},
    MX_API_REQUIRED(X)
#undef X
};

static const char *load_errors(void)
{
    void *runtime = dlopen(runtime_name, RTLD_NOLOAD | RTLD_NOW);
    if (runtime == NULL)
        return runtime_name;
    bool is_found = symbol_find(runtime, error_create_name, &mx.error_create) &&
                    symbol_find(runtime, error_destroy_name, &mx.error_destroy);
    dlclose(runtime); /* it stays: MXNet holds it */
    return is_found ? NULL : error_create_name;
}

const char *mx_api_load(const char *path)
{
    void *library = dlopen(path, RTLD_NOLOAD | RTLD_NOW);
    if (library == NULL)
        return "libmxnet.so";
    const char *missing = symbols_load(library, required, sizeof required / sizeof *required, &mx);
    symbol_find(library, chunk_lay_out_name, &mx.chunk_lay_out);
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
