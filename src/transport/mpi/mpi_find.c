/* SPDX-License-Identifier: Apache-2.0 */
/* mpi_find.c - see mpi_find.h. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE 1 /* memmem() */
#endif
#include "transport/mpi/mpi_find.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/library.h"
#include "base/proc.h"

#define ANCESTORS_MAX    64
#define PARENTS_MAX      6 /* folders above this library that may be an environment's lib */
#define LOADER_CACHE     "/etc/ld.so.cache"
#define LOADER_CACHE_MAX (16u << 20)

enum hint { HINT_NONE, HINT_OPEN_MPI, HINT_MPICH, HINT_COUNT };

#define NAMES_MAX 6

/* Names of the library, best first, by what the launcher is. */
static const char *const names[HINT_COUNT][NAMES_MAX] = {
    [HINT_NONE] = {"libmpi.so.40", "libmpich.so.12", "libmpi.so.12", "libmpi_abi.so.1"},
    [HINT_OPEN_MPI] = {"libmpi.so.40", "libmpi.so.20", "libmpi_ibm.so.3"},
    [HINT_MPICH] = {"libmpich.so.12", "libmpi.so.12", "libmpi_cray.so.12", "libmpi_abi.so.1"},
};

/* Where libraries are relative to a launcher's bin; the third is Debian's layout. */
static const char *const folders[] = {"lib", "lib64",
#if defined(__x86_64__)
                                      "lib/x86_64-linux-gnu",
#elif defined(__aarch64__)
                                      "lib/aarch64-linux-gnu",
#endif
                                      "lib/release"};
#define FOLDER_COUNT (sizeof folders / sizeof folders[0])

static const struct {
    const char *program;
    enum hint hint;
} launchers[] = {
    {"orterun", HINT_OPEN_MPI},         {"orted", HINT_OPEN_MPI},
    {"prterun", HINT_OPEN_MPI},         {"prte", HINT_OPEN_MPI},
    {"prted", HINT_OPEN_MPI},           {"hydra_pmi_proxy", HINT_MPICH},
    {"mpiexec.hydra", HINT_MPICH},      {"mpiexec.gforker", HINT_MPICH},
    {"hydra_bstrap_proxy", HINT_MPICH},
};

static const char *value_of(const struct os *os, const char *name)
{
    const char *value = os->env(os->ctx, name);
    return value != NULL && value[0] != '\0' ? value : NULL;
}

static bool is_file(const struct os *os, const char *path)
{
    int fd = os->open(os->ctx, path, O_RDONLY | O_CLOEXEC, 0);
    if (fd >= 0)
        os->close(os->ctx, fd);
    return fd >= 0;
}

static void add(struct mpi_candidates *c, const char *path, const char *origin, bool is_loaded)
{
    for (int i = 0; i < c->count; i++)
        if (strcmp(c->items[i].path, path) == 0)
            return;
    if (c->count == MPI_CANDIDATES_MAX || strlen(path) >= MPI_PATH_MAX)
        return;
    struct mpi_candidate *item = &c->items[c->count++];
    snprintf(item->path, sizeof item->path, "%s", path);
    item->origin = origin;
    item->is_loaded = is_loaded;
}

/* ---- in this process already ---- */

static bool is_library_name(const char *path)
{
    static const char *const starts[] = {"libmpi.so", "libmpich.so", "libmpi_abi.so",
                                         "libmpi_ibm.so", "libmpi_cray.so"};
    const char *name = strrchr(path, '/');
    name = name != NULL ? name + 1 : path;
    for (size_t i = 0; i < sizeof starts / sizeof starts[0]; i++)
        if (strncmp(name, starts[i], strlen(starts[i])) == 0)
            return true;
    return false;
}

static void see_library(void *arg, const char *path)
{
    if (is_library_name(path))
        add(arg, path, "already in the process", true);
}

/* ---- the launcher ---- */

static enum hint launcher_find(const struct os *os, char ret_path[MPI_PATH_MAX])
{
    int32_t pid = os->pid(os->ctx);
    for (int i = 0; i < ANCESTORS_MAX; i++) {
        pid = proc_parent(os, pid);
        if (pid <= 1)
            break;
        if (!proc_program(os, pid, ret_path, MPI_PATH_MAX))
            continue;
        const char *name = strrchr(ret_path, '/') + 1;
        for (size_t k = 0; k < sizeof launchers / sizeof launchers[0]; k++)
            if (strcmp(name, launchers[k].program) == 0)
                return launchers[k].hint;
    }
    ret_path[0] = '\0';
    return HINT_NONE;
}

/* Under Slurm no ancestor identifies the library, but variables may. */
static enum hint environment_hint(const struct os *os)
{
    if (value_of(os, "OMPI_COMM_WORLD_SIZE") != NULL || value_of(os, "PMIX_NAMESPACE") != NULL)
        return HINT_OPEN_MPI;
    if (value_of(os, "PMI_RANK") != NULL || value_of(os, "PMI_FD") != NULL)
        return HINT_MPICH;
    return HINT_NONE;
}

/* ---- folders ---- */

static void add_from(const struct os *os, struct mpi_candidates *c, const char *folder,
                     size_t length, enum hint hint, const char *origin)
{
    char path[MPI_PATH_MAX];
    for (int i = 0; i < NAMES_MAX && names[hint][i] != NULL; i++) {
        int n = snprintf(path, sizeof path, "%.*s/%s", (int)length, folder, names[hint][i]);
        if (n > 0 && (size_t)n < sizeof path && is_file(os, path))
            add(c, path, origin, false);
    }
}

/* PREFIX/lib and similar, with `prefix` truncated to `length`. */
static void add_from_prefix(const struct os *os, struct mpi_candidates *c, const char *prefix,
                            size_t length, enum hint hint, const char *origin)
{
    char path[MPI_PATH_MAX];
    for (size_t i = 0; i < FOLDER_COUNT; i++) {
        int n = snprintf(path, sizeof path, "%.*s/%s", (int)length, prefix, folders[i]);
        if (n > 0 && (size_t)n < sizeof path)
            add_from(os, c, path, (size_t)n, hint, origin);
    }
}

static size_t parent_length(const char *path, size_t length)
{
    while (length > 0 && path[length - 1] != '/')
        length--;
    return length > 0 ? length - 1 : 0;
}

static void add_from_list(const struct os *os, struct mpi_candidates *c, const char *variable,
                          bool is_programs, enum hint hint)
{
    const char *list = value_of(os, variable);
    while (list != NULL && *list != '\0') {
        size_t length = strcspn(list, ":");
        size_t up = parent_length(list, length);
        if (length > 0 && !is_programs)
            add_from(os, c, list, length, hint, "in LD_LIBRARY_PATH");
        else if (up > 0)
            add_from_prefix(os, c, list, up, hint, "beside a folder of PATH");
        list += length + (list[length] == ':' ? 1 : 0);
    }
}

/* A wheel puts its libraries into the lib folder of the environment, above site-packages. */
static void add_from_environment(const struct os *os, struct mpi_candidates *c, enum hint hint)
{
    const char *path = library_path_of((const void *)(uintptr_t)mpi_find);
    if (path == NULL)
        return;
    size_t length = strlen(path);
    for (int i = 0; i < PARENTS_MAX && length > 0; i++) {
        length = parent_length(path, length);
        if (length > 0)
            add_from(os, c, path, length, hint, "in the environment of this library");
    }
}

void mpi_find(const struct os *os, const char *wanted, struct mpi_candidates *ret)
{
    memset(ret, 0, sizeof *ret);
    enum hint hint = launcher_find(os, ret->launcher);
    if (wanted != NULL && wanted[0] != '\0') {
        add(ret, wanted, "named by HOROVOD_MPI_LIBRARY", false);
        return;
    }
    library_each(see_library, ret);
    if (hint != HINT_NONE) {
        size_t bin = parent_length(ret->launcher, strlen(ret->launcher));
        add_from_prefix(os, ret, ret->launcher, parent_length(ret->launcher, bin), hint,
                        "of the launcher");
    }
    if (hint == HINT_NONE)
        hint = environment_hint(os);
    const char *prefix = hint != HINT_MPICH ? value_of(os, "OPAL_PREFIX") : NULL;
    if (prefix != NULL)
        add_from_prefix(os, ret, prefix, strlen(prefix), HINT_OPEN_MPI, "in OPAL_PREFIX");
    add_from_list(os, ret, "LD_LIBRARY_PATH", false, hint);
    add_from_list(os, ret, "PATH", true, hint);
    add_from_environment(os, ret, hint);
    for (int i = 0; i < NAMES_MAX && names[hint][i] != NULL; i++)
        add(ret, names[hint][i], "by its usual name", false);
    for (int i = 0; i < NAMES_MAX && names[HINT_NONE][i] != NULL; i++)
        add(ret, names[HINT_NONE][i], "by its usual name", false);
}

/* The loader's cache lists the names of all libraries that it finds without a path. */
static bool is_in_loader_cache(const struct os *os, const char *name)
{
    int fd = os->open(os->ctx, LOADER_CACHE, O_RDONLY | O_CLOEXEC, 0);
    bool is_found = false;
    size_t done = 0, capacity = 1u << 18;
    char *bytes = fd >= 0 ? os_alloc(os, capacity) : NULL;
    while (bytes != NULL && capacity <= LOADER_CACHE_MAX) {
        int64_t n = os->read(os->ctx, fd, bytes + done, capacity - done);
        if (n <= 0 && n != -EINTR)
            break;
        done += n > 0 ? (size_t)n : 0;
        if (done == capacity) {
            capacity *= 2;
            char *more = os->resize(os->ctx, bytes, capacity);
            if (more == NULL)
                break;
            bytes = more;
        }
    }
    if (bytes != NULL)
        is_found = memmem(bytes, done, name, strlen(name) + 1) != NULL;
    os_free(os, bytes);
    if (fd >= 0)
        os->close(os->ctx, fd);
    return is_found;
}

bool mpi_find_is_there(const struct os *os, const struct mpi_candidate *candidate)
{
    if (candidate->is_loaded)
        return true;
    return strchr(candidate->path, '/') != NULL ? is_file(os, candidate->path)
                                                : is_in_loader_cache(os, candidate->path);
}
