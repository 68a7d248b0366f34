/* SPDX-License-Identifier: Apache-2.0 */
/* instance.c - see instance.h: hvd_init(), hvd_shutdown() and the pointer between them. */
#include "api/instance.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>

#include "api/extend.h"

#define DRAIN_NS 1000000

struct instance {
    pthread_mutex_t lock; /* init and shutdown, one at a time */
    struct world *_Atomic world;
    _Atomic int32_t users;
    struct tenure tenure;
    bool is_fork_watched;
    bool is_exit_watched;
    struct mpi_process mpi;
    struct memory memory; /* outlives worlds: results may be freed after shutdown */
};

static struct instance instance = {.lock = PTHREAD_MUTEX_INITIALIZER};
static _Thread_local struct error last_error;

struct error *instance_error(void)
{
    error_clear(&last_error);
    return &last_error;
}

const char *hvd_last_error(void)
{
    return last_error.text;
}

struct memory *instance_memory(void)
{
    return &instance.memory;
}

struct world *instance_enter(void)
{
    atomic_fetch_add(&instance.users, 1);
    struct world *world = atomic_load(&instance.world);
    if (world == NULL)
        atomic_fetch_sub(&instance.users, 1);
    return world;
}

void instance_leave(void)
{
    atomic_fetch_sub(&instance.users, 1);
}

static void on_fork_child(void)
{
    atomic_store(&instance.world, NULL);
    atomic_store(&instance.users, 0);
    pthread_mutex_init(&instance.lock, NULL);
    memory_forked(&instance.memory);
}

/* MPI must be finalized after the last world, and there may always be one more. */
static void on_exit_finalize(void)
{
    const struct os *os = os_host();
    if (instance.mpi.lib == NULL || instance.mpi.pid != os->pid(os->ctx))
        return;
    hvd_shutdown();
    mpi_process_end(os, &instance.mpi);
}

static const struct extend_kind config_kind = {
    "hvd_config", offsetof(hvd_config_t, mpi_comm_count) + sizeof(int32_t), sizeof(hvd_config_t)};

hvd_status_t hvd_init(const hvd_config_t *config)
{
    struct error *error = instance_error();
    hvd_status_t status = HVD_OK;
    hvd_config_t known;
    if (config != NULL) {
        status = extend_check(&config_kind, config, config->struct_size, error);
        if (status != HVD_OK)
            return status;
        extend_copy(&config_kind, &known, config, config->struct_size);
        config = &known;
    }
    pthread_mutex_lock(&instance.lock);
    if (!instance.is_fork_watched) {
        memory_init(&instance.memory, os_host());
        os_host_watch_forks();
        pthread_atfork(NULL, NULL, on_fork_child);
        instance.is_fork_watched = true;
    }
    if (atomic_load(&instance.world) == NULL) {
        struct world *world = NULL;
        status = world_create(os_host(), config, &instance.tenure, &instance.mpi, &world, error);
        if (instance.mpi.lib != NULL && instance.mpi.lib->is_ours && !instance.is_exit_watched)
            instance.is_exit_watched = atexit(on_exit_finalize) == 0;
        if (status == HVD_OK)
            atomic_store(&instance.world, world);
    }
    pthread_mutex_unlock(&instance.lock);
    return status;
}

void hvd_last_words(const char *text)
{
    struct world *world = instance_enter();
    if (world == NULL)
        return;
    world_last_words(world, text != NULL ? text : "");
    instance_leave();
}

void hvd_summary(const char *text)
{
    struct world *world = instance_enter();
    if (world == NULL)
        return;
    world_summary(world, text != NULL ? text : "");
    instance_leave();
}

void hvd_shutdown(void)
{
    const struct os *os = os_host();
    pthread_mutex_lock(&instance.lock);
    struct world *world = atomic_exchange(&instance.world, NULL);
    if (world != NULL) {
        driver_shutdown(&world->driver, 10000);
        while (atomic_load(&instance.users) >
               0) /* threads in a wait return when the ops they wait for fail */
            os->sleep_ns(os->ctx, DRAIN_NS);
        world_destroy(world);
    }
    pthread_mutex_unlock(&instance.lock);
}

bool hvd_is_initialized(void)
{
    return atomic_load(&instance.world) != NULL;
}
