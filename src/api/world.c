/* SPDX-License-Identifier: Apache-2.0 */
/* world.c - see world.h. */
#include "api/world.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "backend/mpi/mpi_backend.h"
#include "base/codec.h"
#include "base/sha256.h"
#include "engine/timeline.h"
#include "transport/mpi/mpi.h"
#include "transport/shm/shm.h"
#include "transport/tcp/tcp.h"
#include "wire/key.h"
#include "wire/store.h"

#define BLOB_MAX       (64u << 10)
#define SHUTDOWN_MS    10000
#define SERVER_POLL_NS 100000000
#define HANDOVER_NS    20000000           /* between two looks for the file with the key */
#define DIAL_NS        (2LL * 1000000000) /* for what a file says, which may be out of date */

/* ---- what ranks tell each other at the start ---- */

static void endpoint_put(struct writer *w, const struct endpoint *e)
{
    put_u32(w, (uint32_t)e->rank);
    put_u32(w, (uint32_t)e->pid);
    put_text(w, e->host_id);
    put_text(w, e->host_name);
    put_text(w, e->unix_name);
    put_u16(w, e->tcp_port);
    put_u8(w, e->address_count);
    for (int i = 0; i < e->address_count; i++)
        put_bytes(w, e->addresses[i], 16);
}

static bool endpoint_get(struct reader *r, struct endpoint *ret)
{
    memset(ret, 0, sizeof *ret);
    ret->rank = (int32_t)get_u32(r);
    ret->pid = (int32_t)get_u32(r);
    get_text(r, ret->host_id, sizeof ret->host_id);
    get_text(r, ret->host_name, sizeof ret->host_name);
    get_text(r, ret->unix_name, sizeof ret->unix_name);
    ret->tcp_port = get_u16(r);
    ret->address_count = get_u8(r);
    if (r->bad || ret->address_count > sizeof ret->addresses / sizeof ret->addresses[0])
        return false;
    for (int i = 0; i < ret->address_count; i++)
        get_bytes(r, ret->addresses[i], 16);
    return !r->bad;
}

/* Settings that all ranks must share are rank 0's. */
static void tunables_put(struct writer *w, const struct config *c)
{
    put_i64(w, c->fusion_threshold_bytes);
    put_f64(w, c->cycle_time_ms);
    put_i64(w, c->cache_capacity);
    put_i64(w, c->tcp_flows);
    put_i64(w, c->cma);
    put_u8(w, c->disable_group_fusion);
    put_u8(w, c->plan_disable);
    put_u8(w, c->hierarchical_allreduce);
    put_text(w, c->algorithm);
    put_i64(w, c->stall_check_time_s);
    put_text(w, c->cpu_operations);
}

static bool tunables_get(struct reader *r, struct config *ret)
{
    ret->fusion_threshold_bytes = get_i64(r);
    ret->cycle_time_ms = get_f64(r);
    ret->cache_capacity = get_i64(r);
    ret->tcp_flows = get_i64(r);
    ret->cma = get_i64(r);
    ret->disable_group_fusion = get_u8(r) != 0;
    ret->plan_disable = get_u8(r) != 0;
    ret->hierarchical_allreduce = get_u8(r) != 0;
    get_text(r, ret->algorithm, sizeof ret->algorithm);
    ret->stall_check_time_s = get_i64(r);
    get_text(r, ret->cpu_operations, sizeof ret->cpu_operations);
    return !r->bad;
}

static void sets_put(struct writer *w, const hvd_config_t *e)
{
    int32_t count = e != NULL ? e->process_set_count : 0;
    put_u32(w, (uint32_t)count);
    for (int32_t i = 0; i < count; i++) {
        put_u32(w, (uint32_t)e->process_set_sizes[i]);
        for (int32_t k = 0; k < e->process_set_sizes[i]; k++)
            put_u32(w, (uint32_t)e->process_sets[i][k]);
    }
}

static size_t blob_write(const struct world *world, const struct endpoint *self,
                         const hvd_config_t *e, uint8_t *bytes)
{
    struct writer w;
    writer_init(&w, bytes, BLOB_MAX);
    endpoint_put(&w, self);
    put_u32(&w, (uint32_t)world->place.local_size);
    tunables_put(&w, &world->config);
    sets_put(&w, e);
    return w.bad ? 0 : w.used;
}

/* Compares this rank's process sets with another's; both are the tail of a blob. */
static hvd_status_t sets_compare(const uint8_t *mine, size_t mine_n, const uint8_t *theirs,
                                 size_t theirs_n, int32_t rank, struct error *error)
{
    struct reader a, b;
    reader_init(&a, mine, mine_n);
    reader_init(&b, theirs, theirs_n);
    uint32_t count = get_u32(&a), other = get_u32(&b);
    if (count != other)
        return error_set(error, HVD_ERR_INVALID,
                         "Different ranks tried to set up mismatching numbers of process sets: %u "
                         "here, %u on rank %d.",
                         count, other, rank);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t size = get_u32(&a), other_size = get_u32(&b);
        if (size != other_size)
            return error_set(error, HVD_ERR_INVALID,
                             "Attempted to register process set with mismatching size on different "
                             "ranks: set %u has %u "
                             "ranks here, %u on rank %d.",
                             i, size, other_size, rank);
        for (uint32_t k = 0; k < size; k++) {
            uint32_t x = get_u32(&a), y = get_u32(&b);
            if (x != y)
                return error_set(error, HVD_ERR_INVALID,
                                 "Attempted to register process set with mismatching values on "
                                 "different ranks: set %u "
                                 "has %u here, %u on rank %d.",
                                 i, x, y, rank);
        }
    }
    return a.bad || b.bad
               ? error_set(error, HVD_ERR_CORRUPT, "Rank %d sent a malformed introduction.", rank)
               : HVD_OK;
}

static hvd_status_t blobs_read(struct world *world, const uint8_t *blobs, const size_t *offsets,
                               struct error *error)
{
    int32_t self = world->place.rank;
    const uint8_t *sets = NULL;
    size_t sets_n = 0;
    world->is_homogeneous = true;
    for (int32_t pass = 0; pass < 2; pass++)
        for (int32_t i = 0; i < world->place.size; i++) {
            struct reader r;
            struct config ignored, *tunables = i == 0 && pass == 0 ? &world->config : &ignored;
            reader_init(&r, blobs + offsets[i], offsets[i + 1] - offsets[i]);
            bool is_sane = endpoint_get(&r, &world->endpoints[i]);
            int32_t local_size = (int32_t)get_u32(&r);
            is_sane = is_sane && tunables_get(&r, tunables) && world->endpoints[i].rank == i;
            if (!is_sane)
                return error_set(error, HVD_ERR_CORRUPT, "Rank %d sent a malformed introduction.",
                                 i);
            world->is_homogeneous = world->is_homogeneous && local_size == world->place.local_size;
            if (i == self) {
                sets = r.bytes + r.at;
                sets_n = r.size - r.at;
            }
            if (pass == 0)
                continue;
            hvd_status_t status =
                sets_compare(sets, sets_n, r.bytes + r.at, r.size - r.at, i, error);
            if (status != HVD_OK)
                return status;
        }
    return HVD_OK;
}

/* ---- the rendezvous ---- */

static void *serve(void *arg)
{
    struct world *world = arg;
    const struct os *os = world->os;
    int poll_fd = os->poll_create(os->ctx);
    os->poll_add(os->ctx, poll_fd, store_server_poll_fd(world->server), NULL, false);
    while (!atomic_load(&world->is_server_stopping)) {
        struct os_event event;
        os->poll_wait(os->ctx, poll_fd, &event, 1, SERVER_POLL_NS);
        store_server_progress(world->server, os_now_ns(os));
    }
    os->close(os->ctx, poll_fd);
    return NULL;
}

/* Rank 0's own addresses, as it offers them to its peers; one that fails is left out. */
static hvd_status_t listen_own(struct world *world, const struct endpoint *self, uint16_t port,
                               char *ret_list, size_t bytes, struct error *error)
{
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
    const char *range = world->config.port_range;
    struct error trouble;
    size_t used = 0;
    error_clear(&trouble);
    for (int i = 0; i < self->address_count; i++) {
        const uint8_t *raw = self->addresses[i];
        bool is_v4 = memcmp(raw, mapped, sizeof mapped) == 0;
        char text[INET6_ADDRSTRLEN] = "", ports[8], wanted[96], address[256];
        inet_ntop(is_v4 ? AF_INET : AF_INET6, is_v4 ? raw + 12 : raw, text, sizeof text);
        snprintf(ports, sizeof ports, "%d", port);
        snprintf(wanted, sizeof wanted, is_v4 ? "%s:%s" : "[%s]:%s", text,
                 port == 0 && range[0] != '\0' ? range : ports);
        hvd_status_t status = world->server == NULL
                                  ? store_server_create(world->os, wanted, world->key,
                                                        &world->server, address, &trouble)
                                  : store_server_listen(world->server, wanted, address, &trouble);
        if (status != HVD_OK || used + strlen(address) + 2 > bytes)
            continue;
        used +=
            (size_t)snprintf(ret_list + used, bytes - used, "%s%s", used > 0 ? "," : "", address);
    }
    if (world->server == NULL)
        return error_set(error, trouble.status != HVD_OK ? trouble.status : HVD_ERR_LINK,
                         "Rank 0 could not listen for the others: %.500s", trouble.text);
    return HVD_OK;
}

static hvd_status_t listen_here(struct world *world, struct error *error)
{
    uint8_t raw[16];
    char address[256];
    struct bootstrap *place = &world->place;
    /* Whoever finds the address in a file may find any; nobody else can have taken a random one. */
    if (world->handover[0] != '\0' && !place->is_rendezvous_own) {
        int rc = world->os->random(world->os->ctx, raw, sizeof raw);
        if (rc < 0)
            return error_set_os(error, rc, "No random bytes for a rendezvous");
        int n = snprintf(place->rendezvous, sizeof place->rendezvous, "unix:horovod-");
        for (size_t i = 0; i < sizeof raw; i++)
            snprintf(place->rendezvous + n + 2 * i, 3, "%02x", raw[i]);
    }
    return store_server_create(world->os, place->rendezvous, world->key, &world->server, address,
                               error);
}

static hvd_status_t serve_begin(struct world *world, const struct endpoint *self,
                                struct error *error)
{
    struct bootstrap *place = &world->place;
    if (!place->is_self_served || place->rank != 0 || place->size == 1)
        return HVD_OK;
    bool is_here = place->is_rendezvous_own || place->local_size == place->size;
    bool is_filed = world->handover[0] != '\0';
    hvd_status_t status = is_here ? listen_here(world, error)
                                  : listen_own(world, self, is_filed ? 0 : place->port,
                                               place->rendezvous, sizeof place->rendezvous, error);
    if (status == HVD_OK && is_filed)
        status = handover_write(world->os, world->handover, world->key, place->rendezvous, error);
    if (status != HVD_OK)
        return status;
    int started = world->os->thread_start(world->os->ctx, serve, world, "horovod-store",
                                          &world->server_thread);
    return started < 0
               ? error_set_os(error, started, "Could not start the thread of the rendezvous")
               : HVD_OK;
}

static hvd_status_t dial_by_file(struct world *world, int64_t deadline_ns,
                                 struct store_client **ret, struct error *error)
{
    const struct os *os = world->os;
    char address[HANDOVER_ADDRESS_MAX];
    bool was_found = false;
    struct error trouble;
    while (os_now_ns(os) < deadline_ns) {
        error_clear(&trouble);
        hvd_status_t status = handover_read(os, world->handover, world->key, address, &trouble);
        if (status != HVD_OK && status != HVD_AGAIN)
            return error_set(error, status, "%s", trouble.text);
        if (status == HVD_OK) {
            int64_t limit_ns = os_now_ns(os) + DIAL_NS;
            was_found = true;
            status =
                store_client_open(os, address, world->key, world->epoch, world->place.rank,
                                  limit_ns < deadline_ns ? limit_ns : deadline_ns, ret, &trouble);
            if (status == HVD_OK)
                return HVD_OK;
        }
        os->sleep_ns(os->ctx, HANDOVER_NS);
    }
    return error_set(error, HVD_ERR_TIMEOUT,
                     "%s started %d ranks, but after %lld s rank 0 %s. It leaves the job key and "
                     "its address in %s; %sdid it start? %.400s",
                     world->place.source, world->place.size, (long long)world->config.timeout_s,
                     was_found ? "does not answer" : "has not been heard of", world->handover,
                     world->place.local_size == world->place.size
                         ? ""
                         : "if that is no folder shared by all hosts, set HOROVOD_KEY_FILE and "
                           "HOROVOD_RENDEZVOUS; ",
                     was_found ? trouble.text : "");
}

static hvd_status_t dial(struct world *world, int64_t deadline_ns, struct store_client **ret,
                         struct error *error)
{
    if (world->handover[0] != '\0' && world->place.rank != 0)
        return dial_by_file(world, deadline_ns, ret, error);
    return store_client_open(world->os, world->place.rendezvous, world->key, world->epoch,
                             world->place.rank, deadline_ns, ret, error);
}

/* Where rank 0 serves, who starts a second life early may still reach the store of its first, which
 * then closes; so a lost connection is no end. */
static hvd_status_t exchange(struct world *world, const uint8_t *mine, size_t n,
                             int64_t deadline_ns, uint8_t **ret_blobs, size_t *ret_offsets,
                             struct error *error)
{
    const struct os *os = world->os;
    bool may_return = world->place.is_self_served && world->place.rank != 0;
    struct store_client *client = NULL;
    struct error trouble;
    hvd_status_t status;
    if (world->mpi_lib != NULL)
        return mpi_world_exchange(os, world->mpi_lib, world->mpi_comm, &world->place, mine, n,
                                  deadline_ns, ret_blobs, ret_offsets, error);
    for (;;) {
        error_clear(&trouble);
        status = dial(world, deadline_ns, &client, &trouble);
        if (status == HVD_OK)
            status = store_client_exchange(client, "world", world->epoch, world->place.rank,
                                           world->place.size, mine, n, deadline_ns, ret_blobs,
                                           ret_offsets, &trouble);
        if (status == HVD_OK) {
            world->client = client;
            return HVD_OK;
        }
        store_client_close(client);
        client = NULL;
        if (status != HVD_ERR_LINK || !may_return || os_now_ns(os) >= deadline_ns)
            break;
        os->sleep_ns(os->ctx, HANDOVER_NS);
    }
    return error_set(error, status, "%s", trouble.text);
}

static hvd_status_t meet(struct world *world, const struct endpoint *self,
                         const hvd_config_t *explicit_config, struct error *error)
{
    const struct os *os = world->os;
    int32_t size = world->place.size;
    int64_t deadline_ns = os_now_ns(os) + world->config.timeout_s * 1000000000LL;
    uint8_t *mine = os_alloc(os, BLOB_MAX), *blobs = NULL;
    size_t *offsets = os_alloc(os, ((size_t)size + 1) * sizeof *offsets);
    hvd_status_t status = HVD_ERR_NO_MEMORY;
    if (mine == NULL || offsets == NULL)
        goto done;
    size_t n = blob_write(world, self, explicit_config, mine);
    if (n == 0) {
        status =
            error_set(error, HVD_ERR_LIMIT, "The process sets take more than %u bytes.", BLOB_MAX);
        goto done;
    }
    if (size == 1) {
        offsets[1] = n;
        status = blobs_read(world, mine, offsets, error);
        goto done;
    }
    status = exchange(world, mine, n, deadline_ns, &blobs, offsets, error);
    if (status == HVD_OK)
        status = blobs_read(world, blobs, offsets, error);
done:
    os_free(os, blobs);
    os_free(os, offsets);
    os_free(os, mine);
    return status == HVD_ERR_NO_MEMORY ? error_set(error, status, "Out of memory.") : status;
}

/* ---- links ---- */

static void number_hosts(struct world *world)
{
    int32_t count = 0;
    for (int32_t i = 0; i < world->place.size; i++) {
        int32_t known = -1;
        for (int32_t k = 0; k < i && known < 0 && world->shm != NULL; k++)
            if (strcmp(world->endpoints[k].host_id, world->endpoints[i].host_id) == 0)
                known = world->host[k];
        world->host[i] = known >= 0 ? known : count++;
        snprintf(world->peer_names[i], sizeof world->peer_names[i], "rank %d (pid %d on %.48s)", i,
                 world->endpoints[i].pid, world->endpoints[i].host_name);
    }
}

static const char *peer_name(void *ctx, int32_t rank)
{
    struct world *world = ctx;
    return world->peer_names[rank];
}

static hvd_status_t connect_all(struct world *world, struct error *error)
{
    const struct os *os = world->os;
    int32_t size = world->place.size, self = world->place.rank;
    struct transport_events events = engine_events(world->engine);
    hvd_status_t status = HVD_OK;
    bool *wanted = os_alloc(os, (size_t)size);
    if (wanted == NULL)
        return error_set(error, HVD_ERR_NO_MEMORY, "Out of memory.");
    if (world->shm != NULL)
        status = shm_connect(world->shm, world->endpoints, size, world->key, world->epoch,
                             world->poll_fd, &events, error);
    for (int32_t i = 0; status == HVD_OK && i < size; i++) {
        if (i == self)
            continue;
        bool is_here = world->host[i] == world->host[self];
        struct transport *shm = world->shm != NULL ? shm_transport(world->shm) : NULL;
        if (is_here && shm != NULL && shm->ops->reaches(shm, i))
            world->routes[i] = shm;
        else if (is_here || (world->tcp == NULL && world->mpi == NULL))
            status = error_set(error, HVD_ERR_LINK,
                               "%s %s but its memory can't be shared. Set HOROVOD_SHM_DISABLE=1 to "
                               "use TCP instead.",
                               world->peer_names[i],
                               is_here ? "is on this host," : "was started as if on this host,");
        else
            wanted[i] = true;
    }
    if (status == HVD_OK && world->tcp != NULL)
        status = tcp_connect(world->tcp, world->endpoints, size, wanted, world->key, world->epoch,
                             world->poll_fd, &events, error);
    if (status == HVD_OK && world->mpi != NULL)
        mpi_connect(world->mpi, wanted, &events);
    for (int32_t i = 0; status == HVD_OK && i < size; i++)
        if (wanted[i])
            world->routes[i] =
                world->mpi != NULL ? mpi_transport(world->mpi) : tcp_transport(world->tcp);
    os_free(os, wanted);
    return status;
}

/* ---- building ---- */

static void warn(void *arg, const char *text)
{
    const struct log *log = arg;
    if (log->rank <= 0)
        LOG_AT(log, LOG_WARNING, "%s", text);
}

/* Not NULL but empty: it was there, and an earlier life of the library has read and wiped it. */
static bool is_key_given(const struct world *world, const hvd_config_t *e)
{
    const struct config *c = &world->config;
    return (e != NULL && e->key != NULL) || c->key_fd >= 0 || c->key_file[0] != '\0' ||
           world->os->env(world->os->ctx, "HOROVOD_KEY") != NULL;
}

/* Nobody gave a key: rank 0 makes one and the others find it. `is_known`: an earlier life did. */
static hvd_status_t settle_handover(struct world *world, bool is_known, uint64_t life,
                                    struct error *error)
{
    const struct bootstrap *place = &world->place;
    bool is_one_host = place->local_size == place->size;
    if (!place->is_self_served || place->identity[0] == '\0')
        return error_set(error, HVD_ERR_CONFIG,
                         "No job key: %s started %d ranks but gave none. Start the script with "
                         "horovodrun, or set HOROVOD_KEY_FILE to a file with 64 hex digits that "
                         "only you can read%s.",
                         place->source, place->size,
                         place->is_self_served ? " and HOROVOD_RENDEZVOUS to HOST:PORT of rank 0's "
                                                 "host"
                                               : "");
    hvd_status_t status =
        handover_path(world->os, place->identity, life, is_one_host, world->handover, error);
    if (status == HVD_OK && place->rank == 0 && !is_known)
        status = key_generate(world->os, world->key, error);
    return status;
}

static hvd_status_t settle_key(struct world *world, const hvd_config_t *e, const uint8_t *key,
                               uint64_t life, struct error *error)
{
    const struct bootstrap *place = &world->place;
    bool has_key = key != NULL, is_given = is_key_given(world, e);
    hvd_status_t status = HVD_OK;
    if (place->size == 1)
        return HVD_OK; /* nobody to prove anything to; the key stays where it is */
    if (has_key)
        memcpy(world->key, key, sizeof world->key);
    else if (e != NULL && e->key != NULL && e->key_bytes == sizeof world->key) {
        memcpy(world->key, e->key, sizeof world->key);
        has_key = true;
    } else {
        status = key_load(world->os, &world->config, world->key, &has_key, error);
    }
    if (status != HVD_OK)
        return status;
    if (!has_key || (place->is_self_served && !is_given))
        return settle_handover(world, has_key, life, error);
    if (place->rendezvous[0] == '\0')
        return error_set(error, HVD_ERR_CONFIG,
                         "%s started %d ranks on several hosts; set HOROVOD_RENDEZVOUS to "
                         "HOST:PORT of rank 0's host, or use horovodrun.",
                         place->source, place->size);
    return HVD_OK;
}

/* HVD_AGAIN: this is no job of MPI's. */
static hvd_status_t settle_mpi(struct world *world, const hvd_config_t *e, struct error *error)
{
    struct error trouble = {0};
    enum mpi_wish wish = mpi_world_wish(world->os, &world->config, e);
    if (wish == MPI_WISH_NO)
        return HVD_AGAIN;
    hvd_status_t status = mpi_world_join(world->os, &world->config, &world->log, e, wish,
                                         world->process, &world->place, &world->mpi_comm, &trouble);
    if (status == HVD_AGAIN)
        LOG_AT(&world->log, LOG_INFO, "Doing without MPI: %s", trouble.text);
    if (status != HVD_OK)
        return status == HVD_AGAIN ? status : error_set(error, status, "%s", trouble.text);
    world->mpi_lib = world->process->lib;
    world->log.rank = world->place.rank;
    if (world->place.rank == 0)
        status = key_generate(world->os, world->key, error);
    /* Without a key from rank 0 the others are told by what they can't authenticate. */
    hvd_status_t shared = mpi_world_share_key(world->mpi_lib, world->mpi_comm, world->key, error);
    return status != HVD_OK ? status : shared;
}

static hvd_status_t settle(struct world *world, const hvd_config_t *e, const uint8_t *key,
                           uint64_t life, struct error *error)
{
    const struct os *os = world->os;
    world->log = (struct log){.level = LOG_WARNING, .rank = -1};
    const char *rank = os->env(os->ctx, "HOROVOD_RANK");
    world->log.rank = rank != NULL ? (rank[0] == '0' && rank[1] == '\0' ? 0 : 1) : -1;
    hvd_status_t status = config_load(os, &world->config, warn, &world->log, error);
    if (status != HVD_OK)
        return status;
    world->log.level = world->config.log_level;
    world->log.hide_time = world->config.log_hide_time;
    status = settle_mpi(world, e, error);
    if (status != HVD_AGAIN)
        return status;
    status = bootstrap_find(os, &world->config, e, &world->place, error);
    if (status != HVD_OK)
        return status;
    world->log.rank = world->place.rank;
    if (strcmp(world->config.security, "off") == 0 && world->place.rank == 0)
        LOG_AT(&world->log, LOG_WARNING,
               "HOROVOD_SECURITY=off: data between hosts is neither authenticated nor checked for "
               "damage. This is meant for benchmarks only.");
    return settle_key(world, e, key, life, error);
}

static hvd_status_t allocate(struct world *world, struct error *error)
{
    const struct os *os = world->os;
    size_t n = (size_t)world->place.size;
    world->endpoints = os_alloc(os, n * sizeof *world->endpoints);
    world->host = os_alloc(os, n * sizeof *world->host);
    world->peer_names = os_alloc(os, n * sizeof *world->peer_names);
    world->routes = os_alloc(os, n * sizeof *world->routes);
    world->poll_fd = os->poll_create(os->ctx);
    if (world->endpoints == NULL || world->host == NULL || world->peer_names == NULL ||
        world->routes == NULL)
        return error_set(error, HVD_ERR_NO_MEMORY, "Out of memory.");
    return world->poll_fd < 0 ? error_set_os(error, world->poll_fd, "Could not make a poller")
                              : HVD_OK;
}

static void host_name_read(const struct os *os, char *ret_name, size_t bytes)
{
    int fd = os->open(os->ctx, "/proc/sys/kernel/hostname", O_RDONLY, 0);
    int64_t n = fd >= 0 ? os->read(os->ctx, fd, ret_name, bytes - 1) : 0;
    ret_name[n > 0 ? n : 0] = '\0';
    ret_name[strcspn(ret_name, "\n")] = '\0';
    if (ret_name[0] == '\0')
        snprintf(ret_name, bytes, "this host");
    if (fd >= 0)
        os->close(os->ctx, fd);
}

static hvd_status_t open_transports(struct world *world, struct endpoint *self, struct error *error)
{
    const struct os *os = world->os;
    bool is_one_host = world->place.local_size == world->place.size;
    hvd_status_t status = HVD_OK;
    memset(self, 0, sizeof *self);
    self->rank = world->place.rank;
    self->pid = os->pid(os->ctx);
    if (world->config.hostname[0] != '\0')
        snprintf(self->host_name, sizeof self->host_name, "%.63s", world->config.hostname);
    else
        host_name_read(os, self->host_name, sizeof self->host_name);
    if (world->place.size == 1)
        return HVD_OK;
    if (!world->config.shm_disable)
        status = shm_create(os, &world->config, world->place.rank, self, &world->shm, error);
    if (status == HVD_OK && world->mpi_lib == NULL && (!is_one_host || world->config.shm_disable))
        status = tcp_create(os, &world->config, world->place.rank, is_one_host, self, &world->tcp,
                            error);
    return status;
}

/* Does MPI carry the tensors, too? After meet(), which makes the answer equal on all ranks. */
static bool is_mpi_data(const struct world *world)
{
    return world->mpi_lib != NULL && strcasecmp(world->config.cpu_operations, "mpi") == 0;
}

/* After number_hosts(): MPI reaches whoever is not on this host. Where it carries tensors it is
 * there in any case: the driver must look after it. */
static hvd_status_t open_mpi(struct world *world, struct error *error)
{
    int32_t here = world->host[world->place.rank];
    bool is_wanted = is_mpi_data(world);
    mpi_handle_t comm;
    for (int32_t i = 0; i < world->place.size; i++)
        is_wanted = is_wanted || world->host[i] != here;
    if (world->mpi_lib == NULL || !is_wanted)
        return HVD_OK;
    hvd_status_t status = mpi_lib_comm_own(world->mpi_lib, world->mpi_comm, &comm, error);
    return status == HVD_OK ? mpi_create(world->os, world->mpi_lib, comm, world->place.rank,
                                         world->place.size, &world->mpi, error)
                            : status;
}

/* The native backend becomes what MPI's falls back to. */
static hvd_status_t open_mpi_backend(struct world *world, struct error *error)
{
    struct mpi_backend_options options = {
        .lib = world->mpi_lib, .comm = world->mpi_comm, .fallback = world->backend};
    world->config.plan_disable = true; /* MPI can't withdraw what a broken plan has started */
    return mpi_backend_create(world->os, &options, &world->backend, error);
}

static void warn_of_no_mpi(struct world *world)
{
    if (world->mpi_lib == NULL && world->place.rank == 0 && world->place.size > 1 &&
        strcasecmp(world->config.cpu_operations, "mpi") == 0)
        LOG_AT(&world->log, LOG_WARNING,
               "HOROVOD_CPU_OPERATIONS=mpi, but this job does not use MPI (started by %s): tensors "
               "go by Horovod's own schedules. Start it with mpirun, or set "
               "HOROVOD_CONTROLLER=mpi.",
               world->place.source);
}

static hvd_status_t open_engine(struct world *world, struct error *error)
{
    warn_of_no_mpi(world);
    struct native_routes routes = {.routes = world->routes,
                                   .world_size = world->place.size,
                                   .self_rank = world->place.rank,
                                   .shm = world->shm};
    hvd_status_t status = native_create(world->os, &world->config, &routes, &world->backend, error);
    if (status == HVD_OK && is_mpi_data(world))
        status = open_mpi_backend(world, error);
    if (status != HVD_OK)
        return status;
    struct engine_options options = {.os = world->os,
                                     .config = &world->config,
                                     .log = &world->log,
                                     .rank = world->place.rank,
                                     .size = world->place.size,
                                     .routes = world->routes,
                                     .host = world->host,
                                     .backend = world->backend,
                                     .is_host_sight = world->shm != NULL,
                                     .peer_name = peer_name,
                                     .peer_ctx = world};
    if (world->shm != NULL)
        options.transports[options.transport_count++] = shm_transport(world->shm);
    if (world->tcp != NULL)
        options.transports[options.transport_count++] = tcp_transport(world->tcp);
    if (world->mpi != NULL)
        options.transports[options.transport_count++] = mpi_transport(world->mpi);
    return engine_create(&options, &world->engine, error);
}

static hvd_status_t open_timeline(struct world *world)
{
    const struct config *c = &world->config;
    struct error error = {0};
    if (world->place.rank != 0)
        return HVD_OK;
    world->engine->timeline = timeline_create(world->os, &world->log);
    if (world->engine->timeline != NULL && c->timeline[0] != '\0' &&
        strcmp(c->timeline, "DYNAMIC") != 0)
        timeline_start(world->engine->timeline, c->timeline, c->timeline_mark_cycles, &error);
    return HVD_OK;
}

/* Everything from the introductions on; `e` tells all sets, also those of communicators. */
static hvd_status_t build(struct world *world, const hvd_config_t *e, struct error *error)
{
    struct endpoint self;
    hvd_status_t status = allocate(world, error);
    if (status == HVD_OK)
        status = open_transports(world, &self, error);
    if (status == HVD_OK)
        status = serve_begin(world, &self, error);
    if (status == HVD_OK)
        status = meet(world, &self, e, error);
    if (world->place.rank == 0)
        handover_remove(world->handover);
    if (status == HVD_OK) {
        number_hosts(world);
        status = open_mpi(world, error);
    }
    if (status == HVD_OK)
        status = open_engine(world, error);
    if (status == HVD_OK)
        status = connect_all(world, error);
    if (status == HVD_OK)
        status = engine_open_sets(world->engine, e != NULL ? e->process_sets : NULL,
                                  e != NULL ? e->process_set_sizes : NULL,
                                  e != NULL ? e->process_set_count : 0, error);
    if (status == HVD_OK)
        status = open_timeline(world);
    if (status == HVD_OK)
        status =
            driver_create(&world->driver, world->engine, &world->config, world->poll_fd,
                          world->engine->options.transports, world->engine->options.transport_count,
                          world->place.local_rank, world->place.local_size, error);
    if (status != HVD_OK)
        return status;
    world->driver.is_background_only =
        world->mpi != NULL && world->mpi_lib->level < MPI_LEVEL_SERIALIZED;
    return driver_start(&world->driver, error);
}

hvd_status_t world_create(const struct os *os, const hvd_config_t *e, const uint8_t *key,
                          uint64_t life, struct mpi_process *process, struct world **ret,
                          struct error *error)
{
    struct world *world = os_alloc(os, sizeof *world);
    hvd_config_t with_sets;
    if (world == NULL)
        return error_set(error, HVD_ERR_NO_MEMORY, "Out of memory.");
    world->os = os;
    world->poll_fd = -1;
    world->process = process;
    hvd_status_t status = settle(world, e, key, life, error);
    world->epoch = (e != NULL && e->epoch != 0 ? e->epoch : (uint64_t)world->config.epoch)
                       << STORE_LIFE_BITS |
                   life;
    if (status == HVD_OK && e != NULL && e->mpi_comm_count > 1) {
        status = mpi_world_sets(os, world->mpi_lib, world->mpi_comm, &world->place, e,
                                &world->mpi_sets, error);
        with_sets = *e;
        with_sets.process_sets = world->mpi_sets.lists;
        with_sets.process_set_sizes = world->mpi_sets.sizes;
        with_sets.process_set_count = world->mpi_sets.count;
        e = &with_sets;
    }
    if (status == HVD_OK)
        status = build(world, e, error);
    store_client_close(world->client);
    world->client = NULL;
    mpi_sets_destroy(os, &world->mpi_sets);
    if (status != HVD_OK) {
        world_destroy(world);
        return status;
    }
    *ret = world;
    return HVD_OK;
}

void world_destroy(struct world *world)
{
    if (world == NULL)
        return;
    const struct os *os = world->os;
    if (world->driver.thread != NULL)
        driver_shutdown(&world->driver, SHUTDOWN_MS);
    driver_destroy(&world->driver);
    bool is_clean = world->engine != NULL && world->engine->stop_status == HVD_ERR_SHUTDOWN;
    if (world->engine != NULL)
        timeline_destroy(world->engine->timeline);
    engine_destroy(world->engine);
    if (world->backend != NULL)
        world->backend->ops->destroy(world->backend);
    if (world->tcp != NULL)
        tcp_transport(world->tcp)->ops->destroy(tcp_transport(world->tcp));
    if (world->mpi != NULL)
        mpi_transport(world->mpi)->ops->destroy(mpi_transport(world->mpi));
    /* Freeing is collective: not when ranks may have gone. */
    if (world->mpi_lib != NULL && is_clean)
        world->mpi_lib->abi->comm_free(world->mpi_lib, &world->mpi_comm);
    if (world->mpi_lib != NULL && world->engine != NULL && !is_clean)
        world->process->has_lost = true;
    if (world->shm != NULL)
        shm_transport(world->shm)->ops->destroy(shm_transport(world->shm));
    atomic_store(&world->is_server_stopping, true);
    if (world->server_thread != NULL)
        os->thread_join(os->ctx, world->server_thread);
    store_server_destroy(world->server);
    if (world->poll_fd >= 0)
        os->close(os->ctx, world->poll_fd);
    os_free(os, world->routes);
    os_free(os, world->peer_names);
    os_free(os, world->host);
    os_free(os, world->endpoints);
    bytes_wipe(world->key, sizeof world->key);
    os_free(os, world);
}
