/* SPDX-License-Identifier: Apache-2.0 */
/* feature.c - hvd_feature(): what this build, this machine and this job can do; and
 * hvd_settings_json(): what can be set.
 *
 * Thread: any.  Start reading at hvd_feature(). */
#include <string.h>
#include <strings.h>

#include "api/instance.h"
#include "base/settings.h"

/* Is there an MPI library? The one in use counts first; nothing is loaded to find out. */
static int32_t has_mpi(void)
{
    const struct os *os = os_host();
    struct world *world = instance_enter();
    bool is_used = world != NULL && world->mpi_lib != NULL;
    if (world != NULL)
        instance_leave();
    return is_used || mpi_lib_probe(os, os->env(os->ctx, "HOROVOD_MPI_LIBRARY"), NULL, 0) ? 1 : 0;
}

static int32_t of_world(const char *name)
{
    struct world *world = instance_enter();
    int32_t answer = 0;
    if (world == NULL)
        return 0;
    bool has_library = world->mpi_lib != NULL;
    if (strcmp(name, "mpi_enabled") == 0)
        answer = has_library;
    else if (strcmp(name, "gloo_enabled") == 0)
        answer = !has_library || strcasecmp(world->config.cpu_operations, "gloo") == 0;
    else if (strcmp(name, "mpi_threads") == 0)
        answer = has_library && world->mpi_lib->level == MPI_LEVEL_MULTIPLE;
    instance_leave();
    return answer;
}

int32_t hvd_feature(const char *name)
{
    static const char *const present[] = {"gloo", "shm", "tcp"};
    for (size_t i = 0; i < sizeof present / sizeof present[0]; i++)
        if (strcmp(name, present[i]) == 0)
            return 1;
    return strcmp(name, "mpi") == 0 ? has_mpi() : of_world(name);
}

size_t hvd_settings_json(char *ret_text, size_t bytes)
{
    return settings_json(ret_text, bytes);
}
