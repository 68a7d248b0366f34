/* SPDX-License-Identifier: Apache-2.0 */
/* shm_row.c - shared memory as a row of transport_table, and its arena as transport_memory.
 *
 * Two ranks can share memory if their host ids are equal: same boot, network namespace and user.
 *
 * Thread: the one inside hvd_init(); memory: any.  Start reading at shm_row. */
#include <stdio.h>
#include <string.h>

#include "transport/shm/shm_internal.h"

#define SCORE 100 /* nothing is faster than the memory itself */

/* ---- the row ---- */

static bool probe(const struct transport_place *place, char *ret_why)
{
    if (place->config->shm_disable)
        snprintf(ret_why, WHY_MAX, "HOROVOD_SHM_DISABLE is set.");
    return !place->config->shm_disable;
}

static bool is_enough(const struct transport_place *place)
{
    return place->is_one_host;
}

static hvd_status_t row_open(const struct transport_place *place, struct endpoint *self,
                             struct transport **ret, struct error *error)
{
    struct shm *shm = NULL;
    hvd_status_t status = shm_create(place->os, place->config, place->rank, self, &shm, error);
    if (status == HVD_OK)
        *ret = &shm->base;
    return status;
}

static bool is_offer(const uint8_t *bytes, size_t n)
{
    return n > 0 && n < SHM_NAME_MAX && memchr(bytes, '\0', n) == NULL;
}

static int32_t score(const struct endpoint *a, const struct endpoint *b)
{
    return a->host_id[0] != '\0' && strcmp(a->host_id, b->host_id) == 0 ? SCORE : -1;
}

/* A link may be missing for any reason: a rank that died or has another key, strangers at the
 * socket, containers that are isolated from each other. */
static hvd_status_t row_connect(struct transport *t, const struct transport_meeting *m,
                                const bool *wanted, struct error *error)
{
    struct shm *shm = (struct shm *)t;
    hvd_status_t status =
        shm_connect(shm, m->all, m->count, wanted, m->key, m->epoch, m->poll_fd, m->events, error);
    for (int32_t i = 0; status == HVD_OK && i < m->count; i++) {
        struct error cause = {0};
        if (!wanted[i] || t->ops->reaches(t, i))
            continue;
        shm_peer_error(shm, i, &cause);
        status = error_set(error, HVD_ERR_LINK,
                           "rank %d (pid %d on %.48s) is on this host, but no link to it could be "
                           "made: %.400s. %s",
                           i, m->all[i].pid, m->all[i].host_name, cause.text, shm_row.hint);
    }
    return status;
}

const struct transport_row shm_row = {
    .name = "shm",
    .hint = "If the ranks are in containers that can't share memory, set HOROVOD_SHM_DISABLE=1 to "
            "use TCP instead.",
    .is_sight = true,
    .probe = probe,
    .is_enough = is_enough,
    .open = row_open,
    .is_offer = is_offer,
    .score = score,
    .connect = row_connect,
};

/* ---- the arena ---- */

static void *memory_alloc(struct transport *t, size_t bytes)
{
    return shm_heap_alloc((struct shm *)t, bytes);
}

static void memory_free(struct transport *t, void *ptr)
{
    shm_heap_free((struct shm *)t, ptr);
}

static hvd_status_t memory_add(struct transport *t, void *ptr, uint64_t bytes, struct error *error)
{
    return shm_register((struct shm *)t, ptr, bytes, error);
}

static hvd_status_t memory_remove(struct transport *t, void *ptr, struct error *error)
{
    return shm_unregister((struct shm *)t, ptr, error);
}

static bool memory_holds(struct transport *t, const void *ptr, size_t bytes)
{
    return shm_offset((struct shm *)t, ptr, bytes) != UINT64_MAX;
}

const struct transport_memory shm_memory = {.alloc = memory_alloc,
                                            .free = memory_free,
                                            .add = memory_add,
                                            .remove = memory_remove,
                                            .holds = memory_holds};
