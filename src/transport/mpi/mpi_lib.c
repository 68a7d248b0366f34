/* SPDX-License-Identifier: Apache-2.0 */
/* mpi_lib.c - see mpi_lib.h. */
#include "transport/mpi/mpi_lib.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/library.h"
#include "transport/mpi/mpi_find.h"
#include "transport/mpi/mpi_symbols.h"

#define REASON_MAX 256

static const char *const symbol_names[SYMBOL_COUNT] = {
#define MPI_SYMBOL_NAME(name) [SYMBOL_##name] = "MPI_" #name,
    MPI_SYMBOLS(MPI_SYMBOL_NAME)
#undef MPI_SYMBOL_NAME
};

/* ---- what is it? ---- */

/* The first words of the library's own version text, without tabs, up to a comma or the end of a
 * line. */
static void version_read(struct mpi_lib *lib)
{
    char text[MPI_TEXT_MAX + 1] = "";
    int length = 0;
    size_t used = 0;
    ((int (*)(char *, int *))lib->symbols[SYMBOL_Get_library_version])(text, &length);
    for (const char *c = text; *c != '\0' && *c != ',' && *c != '\n'; c++) {
        bool is_space = isspace((unsigned char)*c) != 0;
        if ((is_space && (used == 0 || lib->version[used - 1] == ' ')) ||
            used + 1 >= sizeof lib->version)
            continue;
        lib->version[used++] = is_space ? ' ' : *c;
    }
    lib->version[used] = '\0';
    char *word = strstr(lib->version, " Version:");
    if (word != NULL)
        memmove(word, word + 9, strlen(word + 9) + 1);
}

static const struct mpi_abi *abi_of(const struct mpi_lib *lib)
{
    const char *name = strrchr(lib->path, '/');
    name = name != NULL ? name + 1 : lib->path;
    if (strncmp(name, "libmpi_abi.so", 13) == 0)
        return &mpi_abi_standard;
    if (mpi_symbol(lib, "ompi_mpi_comm_world") != NULL)
        return &mpi_abi_open_mpi;
    /* These libraries agree on the integer handles; no symbol identifies them. */
    static const char *const kin[] = {"MPICH", "Intel",       "MVAPICH",
                                      "CRAY",  "ParaStation", "FUJITSU"};
    for (size_t i = 0; i < sizeof kin / sizeof kin[0]; i++)
        if (strstr(lib->version, kin[i]) != NULL)
            return &mpi_abi_mpich;
    return NULL;
}

/* Where the loader found a library that was given by name only. */
static void path_read(struct mpi_lib *lib)
{
    const char *path = library_path_of(lib->symbols[SYMBOL_Get_library_version]);
    if (strchr(lib->path, '/') == NULL && path != NULL)
        snprintf(lib->path, sizeof lib->path, "%s", path);
}

static bool identify(struct mpi_lib *lib, char *ret_reason)
{
    const char *missing = NULL;
    for (int i = 0; i < SYMBOL_COUNT && missing == NULL; i++) {
        lib->symbols[i] = mpi_symbol(lib, symbol_names[i]);
        missing = lib->symbols[i] == NULL ? symbol_names[i] : NULL;
    }
    if (lib->symbols[SYMBOL_Get_library_version] != NULL) {
        version_read(lib);
        path_read(lib);
    }
    if (missing != NULL) {
        snprintf(ret_reason, REASON_MAX, "%.80s lacks %s: too old, MPI 3.0 is needed",
                 lib->version[0] != '\0' ? lib->version : "it", missing);
        return false;
    }
    lib->abi = abi_of(lib);
    if (lib->abi == NULL) {
        snprintf(ret_reason, REASON_MAX, "\"%.80s\" has a binary interface that is not known",
                 lib->version);
        return false;
    }
    if (!lib->abi->constants(lib, &missing)) {
        snprintf(ret_reason, REASON_MAX, "%.80s lacks %s", lib->version, missing);
        return false;
    }
    /* Open MPI's plug-ins look up its symbols among the global ones. */
    if (lib->abi->flavour == MPI_FLAVOUR_OPEN_MPI)
        lib->os->library_open(lib->os->ctx, lib->path, OS_LIBRARY_GLOBAL | OS_LIBRARY_LOADED, NULL,
                              0);
    return true;
}

static bool load(struct mpi_lib *lib, const struct mpi_candidate *candidate, char *ret_reason)
{
    memset(lib->symbols, 0, sizeof lib->symbols);
    lib->version[0] = '\0';
    snprintf(lib->path, sizeof lib->path, "%s", candidate->path);
    lib->origin = candidate->origin;
    lib->library =
        lib->os->library_open(lib->os->ctx, candidate->path,
                              candidate->is_loaded ? OS_LIBRARY_LOADED : 0, ret_reason, REASON_MAX);
    if (lib->library == NULL)
        return false;
    return identify(lib, ret_reason);
}

/* ---- choosing ---- */

/* Of several libraries in the process the one in use is chosen. */
static bool is_better(const struct mpi_lib *lib, const struct mpi_candidates *found, int i)
{
    bool is_up = false;
    if (!found->items[i].is_loaded || i + 1 >= found->count || !found->items[i + 1].is_loaded)
        return true;
    return lib->abi->initialized(lib, &is_up) == 0 && is_up;
}

static void note(char *text, size_t bytes, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static void note(char *text, size_t bytes, const char *format, ...)
{
    size_t used = strlen(text);
    va_list args;
    va_start(args, format);
    vsnprintf(text + used, bytes - used, format, args);
    va_end(args);
}

static bool choose(struct mpi_lib *lib, const struct mpi_candidates *found, char *ret_seen,
                   size_t bytes)
{
    char reason[REASON_MAX];
    for (int i = 0; i < found->count; i++) {
        const struct mpi_candidate *c = &found->items[i];
        if (!mpi_find_is_there(lib->os, c) && strchr(c->path, '/') == NULL)
            continue;
        if (load(lib, c, reason)) {
            if (is_better(lib, found, i))
                return true;
            continue;
        }
        note(ret_seen, bytes, "%s%s (%s): %s.", ret_seen[0] != '\0' ? " " : "", c->path, c->origin,
             reason);
    }
    /* None of the libraries in the process was in use: then the first of them. */
    return found->count > 0 && found->items[0].is_loaded && load(lib, &found->items[0], reason);
}

hvd_status_t mpi_lib_open(const struct os *os, const char *wanted, struct mpi_lib **ret,
                          struct error *error)
{
    hvd_status_t status = HVD_OK;
    char seen[512] = "";
    struct mpi_lib *lib = os_alloc(os, sizeof *lib);
    struct mpi_candidates *found = os_alloc(os, sizeof *found);
    if (lib == NULL || found == NULL) {
        status = error_set(error, HVD_ERR_NO_MEMORY, "Out of memory.");
        goto done;
    }
    lib->os = os;
    mpi_find(os, wanted, found);
    if (!choose(lib, found, seen, sizeof seen))
        status = error_set(
            error, HVD_ERR_CONFIG, "No usable MPI library was found%s%s.%s%s%s",
            found->launcher[0] != '\0' ? ", although this process was started by " : "",
            found->launcher, seen[0] != '\0' ? " " : "", seen,
            wanted != NULL && wanted[0] != '\0'
                ? ""
                : " Looked for: in this process, beside the launcher, in LD_LIBRARY_PATH and PATH, "
                  "and libmpi.so.40 (Open MPI), libmpich.so.12, libmpi.so.12 (MPICH), "
                  "libmpi_abi.so.1 (MPI 5) by name. HOROVOD_MPI_LIBRARY can name its file.");
done:
    os_free(os, found);
    if (status == HVD_OK)
        *ret = lib;
    else
        os_free(os, lib);
    return status;
}

bool mpi_lib_probe(const struct os *os, const char *wanted, char *ret_path, size_t bytes)
{
    struct mpi_candidates *found = os_alloc(os, sizeof *found);
    bool is_there = false;
    if (found == NULL)
        return false;
    mpi_find(os, wanted, found);
    for (int i = 0; i < found->count && !is_there; i++) {
        is_there = mpi_find_is_there(os, &found->items[i]);
        if (is_there && ret_path != NULL)
            snprintf(ret_path, bytes, "%s", found->items[i].path);
    }
    os_free(os, found);
    return is_there;
}

void mpi_lib_close(struct mpi_lib *lib)
{
    if (lib != NULL)
        os_free(lib->os, lib);
}

/* ---- initialising and finalizing MPI ---- */

hvd_status_t mpi_lib_init(struct mpi_lib *lib, bool is_single, struct error *error)
{
    bool is_up = false, is_over = false;
    int code = lib->abi->initialized(lib, &is_up);
    if (code == 0)
        code = lib->abi->finalized(lib, &is_over);
    if (code != 0)
        return mpi_lib_error(lib, "MPI_Initialized", code, error);
    if (is_over)
        return error_set(error, HVD_ERR_CONFIG,
                         "MPI was finalized in this process (%s, %s) and can't start again. Call "
                         "MPI_Finalize after the last hvd.shutdown() only.",
                         lib->version, lib->path);
    if (is_up)
        return mpi_lib_error(lib, "MPI_Query_thread", lib->abi->query_thread(lib, &lib->level),
                             error);
    code =
        lib->abi->init_thread(lib, is_single ? MPI_LEVEL_SINGLE : MPI_LEVEL_MULTIPLE, &lib->level);
    lib->is_ours = code == 0;
    if (lib->is_ours) { /* some errors are of no communicator and go to one of these */
        lib->abi->comm_errors_return(lib, lib->comm_world);
        lib->abi->comm_errors_return(lib, lib->comm_self);
    }
    return mpi_lib_error(lib, "MPI_Init_thread", code, error);
}

void mpi_lib_finalize(struct mpi_lib *lib)
{
    bool is_over = true;
    if (lib == NULL || !lib->is_ours)
        return;
    lib->is_ours = false;
    if (lib->abi->finalized(lib, &is_over) == 0 && !is_over)
        lib->abi->finalize(lib);
}

hvd_status_t mpi_lib_comm_own(const struct mpi_lib *lib, mpi_handle_t comm, mpi_handle_t *ret,
                              struct error *error)
{
    int code = lib->abi->comm_dup(lib, comm, ret);
    if (code == 0)
        code = lib->abi->comm_errors_return(lib, *ret);
    return mpi_lib_error(lib, "MPI_Comm_dup", code, error);
}

hvd_status_t mpi_lib_error(const struct mpi_lib *lib, const char *call, int code,
                           struct error *error)
{
    char text[MPI_TEXT_MAX + 1] = "";
    if (code == 0)
        return HVD_OK;
    if (lib->abi->error_string(lib, code, text) != 0 || text[0] == '\0')
        snprintf(text, sizeof text, "code %d", code);
    text[strcspn(text, "\n")] = '\0';
    return error_set(error, HVD_ERR_LINK, "%s failed: %.400s (%s, %s)", call, text, lib->version,
                     lib->path);
}
