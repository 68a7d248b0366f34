/* SPDX-License-Identifier: Apache-2.0 */
/* world.c - see world.h. */
#include "api/world.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "api/dump.h"
#include "api/meet.h"
#include "api/watch.h"
#include "backend/backends.h"
#include "base/codec.h"
#include "base/machine.h"
#include "base/sha256.h"
#include "engine/timeline.h"
#include "wire/cause.h"
#include "wire/key.h"
#include "wire/store.h"

#define BLOB_MAX      (64u << 10)
#define SHUTDOWN_MS   10000
#define SUMMARY_PARTS 8
#define LAST_WORDS_NS 1000000000LL /* for the token */

_Static_assert(ENGINE_TRANSPORTS_MAX >= TRANSPORTS_MAX, "the engine drives all that are open");

/* ---- what ranks send each other at the start ---- */

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
    config_share(&world->config, &w);
    sets_put(&w, e);
    return w.bad ? 0 : w.used;
}

/* Compares this rank's process sets with another's; both are the tail of a blob. */
/* Reads the next number of both; are they equal? */
static bool is_next_equal(struct reader *a, struct reader *b, uint32_t *ret_a, uint32_t *ret_b)
{
    *ret_a = get_u32(a);
    *ret_b = get_u32(b);
    return *ret_a == *ret_b;
}

static hvd_status_t sets_compare(const uint8_t *mine, size_t mine_n, const uint8_t *theirs,
                                 size_t theirs_n, int32_t rank, struct error *error)
{
    struct reader a, b;
    reader_init(&a, mine, mine_n);
    reader_init(&b, theirs, theirs_n);
    uint32_t count, other, size, x, y;
    if (!is_next_equal(&a, &b, &count, &other))
        return error_set(error, HVD_ERR_INVALID,
                         "Different ranks tried to set up mismatching numbers of process sets: %u "
                         "here, %u on rank %d.",
                         count, other, rank);
    for (uint32_t i = 0; i < count; i++) {
        if (!is_next_equal(&a, &b, &size, &other))
            return error_set(error, HVD_ERR_INVALID,
                             "Attempted to register process set with mismatching size on different "
                             "ranks: set %u has %u ranks here, %u on rank %d.",
                             i, size, other, rank);
        for (uint32_t k = 0; k < size; k++)
            if (!is_next_equal(&a, &b, &x, &y))
                return error_set(error, HVD_ERR_INVALID,
                                 "Attempted to register process set with mismatching values on "
                                 "different ranks: set %u has %u here, %u on rank %d.",
                                 i, x, y, rank);
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
            reader_init(&r, blobs + offsets[i], offsets[i + 1] - offsets[i]);
            bool is_sane = endpoint_get(&r, &world->endpoints[i]);
            int32_t local_size = (int32_t)get_u32(&r);
            bool is_first = i == 0 && pass == 0; /* settings that all share are rank 0's */
            is_sane = is_sane && world->endpoints[i].rank == i &&
                      (is_first ? config_adopt(&world->config, &r) : config_share_skip(&r));
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

/* ---- meeting: what meet.c calls ---- */

static hvd_status_t open_links(struct world *world, struct endpoint *self, struct error *error);
static hvd_status_t allocate(struct world *world, struct error *error);
static hvd_status_t build(struct world *world, const hvd_config_t *e, struct error *error);
static void dismantle(struct world *world);

/* Closes what was opened, as another rank or size, for a generation that ended before it began. */
static void unprepare(struct world *world)
{
    const struct os *os = world->os;
    links_destroy(&world->links);
    memset(&world->links, 0, sizeof world->links);
    os_free(os, world->endpoints);
    world->endpoints = NULL;
    if (world->poll_fd >= 0)
        os->close(os->ctx, world->poll_fd);
    world->poll_fd = -1;
    world->is_open = false;
}

/* Rank 0 of a world that serves itself opens its transports before any rank can meet. */
static hvd_status_t prepare(struct world *world, struct error *error)
{
    hvd_status_t status = HVD_OK;
    if (world->endpoints == NULL)
        status = allocate(world, error);
    if (status == HVD_OK && !world->is_open) {
        world->is_open = true;
        status = open_links(world, &world->self, error);
    }
    return status;
}

static hvd_status_t introduce(struct world *world, struct error *error)
{
    hvd_status_t status = prepare(world, error);
    if (status != HVD_OK)
        return status;
    if (world->blob == NULL)
        world->blob = os_alloc(world->os, BLOB_MAX);
    if (world->blob == NULL)
        return error_set(error, HVD_ERR_NO_MEMORY, "Out of memory.");
    world->blob_bytes = blob_write(world, &world->self, world->explicit_config, world->blob);
    return world->blob_bytes > 0 ? HVD_OK
                                 : error_set(error, HVD_ERR_LIMIT,
                                             "The process sets take more than %u bytes.", BLOB_MAX);
}

static hvd_status_t on_joined(void *ctx, const struct store_generation *g, const void **ret_blob,
                              size_t *ret_n, struct error *error)
{
    struct world *world = ctx;
    struct bootstrap before = world->place;
    meet_enter(world, g);
    if (world->is_open && (before.rank != world->place.rank || before.size != world->place.size ||
                           before.local_size != world->place.local_size))
        unprepare(world);
    hvd_status_t status = introduce(world, error);
    *ret_blob = world->blob;
    *ret_n = world->blob_bytes;
    return status;
}

static hvd_status_t on_exchanged(void *ctx, const struct store_generation *g, const uint8_t *blobs,
                                 const size_t *offsets, struct error *error)
{
    struct world *world = ctx;
    (void)g;
    hvd_status_t status = blobs_read(world, blobs, offsets, error);
    if (world->place.rank == 0)
        handover_remove(world->os, world->handover);
    return status == HVD_OK ? build(world, world->explicit_config, error) : status;
}

/* The generation did not connect: nothing of it may remain when the next one is joined. */
static void on_unlinked(void *ctx)
{
    struct world *world = ctx;
    if (meet_is_elastic(world))
        dismantle(world);
}

/* A world of one, or one whose ranks met through MPI. */
static hvd_status_t meet_without_store(struct world *world, struct error *error)
{
    const struct os *os = world->os;
    int64_t deadline_ns = os_now_ns(os) + world->config.timeout_s * 1000000000LL;
    uint8_t *blobs = NULL;
    world->epoch = 1; /* MPI's key is new for each world: nothing else has to distinguish them */
    hvd_status_t status = introduce(world, error);
    size_t *offsets = os_alloc(os, ((size_t)world->place.size + 1) * sizeof *offsets);
    if (status == HVD_OK && offsets == NULL)
        status = error_set(error, HVD_ERR_NO_MEMORY, "Out of memory.");
    if (status == HVD_OK && world->mpi_lib != NULL && world->place.size > 1)
        status = mpi_world_exchange(os, world->mpi_lib, world->mpi_comm, &world->place, world->blob,
                                    world->blob_bytes, deadline_ns, &blobs, offsets, error);
    else if (status == HVD_OK)
        offsets[1] = world->blob_bytes;
    if (status == HVD_OK)
        status = blobs_read(world, blobs != NULL ? blobs : world->blob, offsets, error);
    os_free(os, blobs);
    os_free(os, offsets);
    return status == HVD_OK ? build(world, world->explicit_config, error) : status;
}

static void open_cause(struct world *world, bool is_again);
static void report_cause(const struct world *world, int32_t culprit, const char *text);

/* Some ranks never arrived: what to check, and for horovodrun, which rank the others waited for. */
static void explain_missing(struct world *world, struct error *error)
{
    const char *summary = NULL;
    const struct error given = *error;
    int32_t rank = store_missing_rank(given.text, &summary);
    if (rank < 0)
        return;
    const char *address = world->place.rendezvous;
    /* Ranks that meet on a local socket have no network between them. */
    bool has_network = strncmp(address, "unix:", 5) != 0;
    error_clear(error);
    error_set(error, given.status,
              "hvd.init() waited %lld s (HOROVOD_GLOO_TIMEOUT_SECONDS) for all ranks: %.600s. "
              "Check the output of the missing ranks: such a rank may have failed, or may need "
              "more time before it calls hvd.init() (raise the limit)%s%.200s%s.",
              (long long)world->config.timeout_s, summary,
              has_network ? ", or its machine may not reach " : "",
              !has_network         ? ""
              : address[0] != '\0' ? address
                                   : "rank 0",
              has_network ? " (a firewall? horovodrun --doctor tests it)" : "");
    open_cause(world, false);
    report_cause(world, rank, error->text);
}

static hvd_status_t meet(struct world *world, const struct tenure *tenure, struct error *error)
{
    const hvd_config_t *e = world->explicit_config;
    const struct meeting_ops ops = {
        .introduce = on_joined, .connect = on_exchanged, .tear_down = on_unlinked};
    uint64_t least = e != NULL && e->epoch != 0 ? e->epoch : (uint64_t)world->config.epoch;
    bool is_serving = world->place.is_self_served && world->place.rank == 0;
    if (world->mpi_lib != NULL || (world->place.size == 1 && world->config.worker[0] == '\0'))
        return meet_without_store(world, error);
    hvd_status_t status = is_serving ? prepare(world, error) : HVD_OK;
    if (status == HVD_OK)
        status = meet_serve(world, &world->self, error);
    if (status == HVD_OK)
        status = meet_run(world, tenure, least, &ops, error);
    if (status == HVD_ERR_TIMEOUT)
        explain_missing(world, error);
    if (is_serving)
        handover_remove(world->os, world->handover);
    return status;
}

/* ---- links ---- */

static const char *peer_name(void *ctx, int32_t rank)
{
    struct world *world = ctx;
    return world->links.names[rank];
}

/* ---- building ---- */

static void warn(void *arg, const char *text)
{
    const struct log *log = arg;
    if (log->rank <= 0)
        LOG_AT(log, LOG_WARNING, "%s", text);
}

/* Not NULL but empty: it was set, and an earlier world of this process has read and wiped it. */
static bool is_key_given(const struct world *world, const hvd_config_t *e)
{
    const struct config *c = &world->config;
    return (e != NULL && e->key != NULL) || c->key_fd >= 0 || c->key_file[0] != '\0' ||
           world->os->env(world->os->ctx, "HOROVOD_KEY") != NULL;
}

/* No key was given: rank 0 generates one and the others find it. `is_known`: an earlier world did.
 */
static hvd_status_t settle_handover(struct world *world, bool is_known, struct error *error)
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
        handover_path(world->os, place->identity, is_one_host, world->handover, error);
    if (status == HVD_OK && place->rank == 0 && !is_known)
        status = key_generate(world->os, world->job_key, error);
    return status;
}

static hvd_status_t settle_key(struct world *world, const hvd_config_t *e,
                               const struct tenure *tenure, struct error *error)
{
    const struct bootstrap *place = &world->place;
    bool has_key = tenure->has_key, is_given = is_key_given(world, e);
    hvd_status_t status = HVD_OK;
    if (place->size == 1 && world->config.worker[0] == '\0')
        return HVD_OK; /* no peer to prove anything to; the key is not read */
    if (has_key)
        memcpy(world->job_key, tenure->key, sizeof world->job_key);
    else if (e != NULL && e->key != NULL && e->key_bytes == sizeof world->job_key) {
        memcpy(world->job_key, e->key, sizeof world->job_key);
        has_key = true;
    } else {
        status = key_load(world->os, &world->config, world->job_key, &has_key, error);
    }
    config_forget_key(&world->config);
    if (status != HVD_OK)
        return status;
    if (!has_key || (place->is_self_served && !is_given))
        return settle_handover(world, has_key, error);
    if (place->rendezvous[0] == '\0')
        return error_set(error, HVD_ERR_CONFIG,
                         "%s started %d ranks on several hosts; set HOROVOD_RENDEZVOUS to "
                         "HOST:PORT of rank 0's host, or use horovodrun.",
                         place->source, place->size);
    return HVD_OK;
}

/* HVD_AGAIN: this is not an MPI job. */
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
    /* If rank 0 has no key, the others notice because they can't authenticate. */
    hvd_status_t shared = mpi_world_share_key(world->mpi_lib, world->mpi_comm, world->key, error);
    return status != HVD_OK ? status : shared;
}

static hvd_status_t settle(struct world *world, const hvd_config_t *e, const struct tenure *tenure,
                           struct error *error)
{
    const struct os *os = world->os;
    world->log = (struct log){.level = LOG_WARNING, .rank = -1};
    const char *rank = os->env(os->ctx, "HOROVOD_RANK");
    world->log.rank = rank != NULL ? (rank[0] == '0' && rank[1] == '\0' ? 0 : 1) : -1;
    hvd_status_t status = config_open(os, &world->config, warn, &world->log, error);
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
    return settle_key(world, e, tenure, error);
}

static hvd_status_t allocate(struct world *world, struct error *error)
{
    const struct os *os = world->os;
    size_t n = (size_t)world->place.size;
    world->endpoints = os_alloc(os, n * sizeof *world->endpoints);
    world->poll_fd = os->poll_create(os->ctx);
    if (world->endpoints == NULL)
        return error_set(error, HVD_ERR_NO_MEMORY, "Out of memory.");
    return world->poll_fd < 0 ? error_set_os(error, world->poll_fd, "Could not make a poller")
                              : HVD_OK;
}

static void host_name_read(const struct os *os, char *ret_name, size_t bytes)
{
    machine_name(os, ret_name, bytes);
    if (ret_name[0] == '\0')
        snprintf(ret_name, bytes, "this host");
}

/* NULL: the ranks met otherwise. */
static const struct mpi_job *mpi_job(struct world *world)
{
    world->mpi_job = (struct mpi_job){.lib = world->mpi_lib, .comm = world->mpi_comm};
    return world->mpi_lib != NULL ? &world->mpi_job : NULL;
}

static hvd_status_t open_links(struct world *world, struct endpoint *self, struct error *error)
{
    const struct os *os = world->os;
    struct transport_place place = {.os = os,
                                    .config = &world->config,
                                    .rank = world->place.rank,
                                    .size = world->place.size,
                                    .is_one_host = world->place.local_size == world->place.size,
                                    .mpi = mpi_job(world)};
    memset(self, 0, sizeof *self);
    self->rank = world->place.rank;
    self->pid = os->pid(os->ctx);
    if (world->config.hostname[0] != '\0')
        snprintf(self->host_name, sizeof self->host_name, "%.63s", world->config.hostname);
    else
        host_name_read(os, self->host_name, sizeof self->host_name);
    return links_open(&world->links, NULL, &place, &world->log, self, error);
}

static bool is_given_up(void *ctx)
{
    const struct world *world = ctx;
    return meeting_is_abandoned(&world->meeting);
}

static hvd_status_t connect_all(struct world *world, struct error *error)
{
    struct transport_events events = control_events(world->engine);
    if (meet_is_elastic(world)) {
        events.is_over = is_given_up;
        events.over_ctx = world;
    }
    struct transport_meeting meeting = {.all = world->endpoints,
                                        .count = world->place.size,
                                        .key = world->key,
                                        .epoch = world->epoch,
                                        .poll_fd = world->poll_fd,
                                        .events = &events};
    return links_connect(&world->links, &meeting, error);
}

/* If HOROVOD_CPU_OPERATIONS can't be honoured, the user must know. */
static void warn_of_backend(struct world *world, const struct backend_place *place)
{
    char why[WHY_MAX];
    const char *wanted = world->config.cpu_operations;
    if (place->rank != 0 || place->size < 2)
        return;
    if (strcasecmp(wanted, "ccl") == 0)
        LOG_AT(&world->log, LOG_WARNING,
               "HOROVOD_CPU_OPERATIONS=%s has no effect: there is no backend for oneCCL.", wanted);
    else if (backends_is_missing(backend_table, place, wanted, why))
        LOG_AT(&world->log, LOG_WARNING,
               "HOROVOD_CPU_OPERATIONS=%s has no effect: %s It was started by %s.", wanted, why,
               world->place.source);
}

/* After the ranks have met, which makes the choice equal on all of them. */
static hvd_status_t open_backend(struct world *world, struct error *error)
{
    struct backend_place place = {.os = world->os,
                                  .config = &world->config,
                                  .rank = world->place.rank,
                                  .size = world->place.size,
                                  .routes = world->links.routes,
                                  .sight = world->links.sight,
                                  .mpi = mpi_job(world)};
    warn_of_backend(world, &place);
    hvd_status_t status = backends_create(backend_table, &place, &world->backend, error);
    if (status == HVD_OK && world->backend->is_final)
        config_disable_plans(
            &world->config); /* a collective that a broken plan has started can't be cancelled */
    return status;
}

static struct cause cause_of(const struct world *world, enum cause_kind kind)
{
    struct cause cause = {.kind = kind, .rank = world->place.rank, .culprit = -1};
    if (meet_is_elastic(world)) {
        cause.epoch = world->epoch;
        snprintf(cause.worker, sizeof cause.worker, "%s", world->config.worker);
    }
    return cause;
}

static void report_cause(const struct world *world, int32_t culprit, const char *text)
{
    struct cause cause = cause_of(world, CAUSE_BROKE);
    cause.culprit = culprit;
    snprintf(cause.text, sizeof cause.text, "%.*s", (int)sizeof cause.text - 1, text);
    cause_send(world->os, world->cause_fd, &cause);
}

/* horovodrun must know which rank failed first before this rank can exit because of it. */
static void world_broke(void *ctx, int32_t culprit, const char *text)
{
    const struct world *world = ctx;
    report_cause(world, culprit, text);
}

/* horovodrun looks at the ranks from outside: it can do that when they are stuck. */
static void world_stalled(void *ctx, const struct engine_stall *stall)
{
    static const enum cause_kind kinds[] = {[STALL_OP] = CAUSE_STALL,
                                            [STALL_WAITS] = CAUSE_WAITS,
                                            [STALL_MISSING] = CAUSE_MISSING,
                                            [STALL_AHEAD] = CAUSE_AHEAD,
                                            [STALL_END] = CAUSE_LOOK};
    const struct world *world = ctx;
    bool is_about_rank = stall->kind == STALL_MISSING || stall->kind == STALL_AHEAD;
    struct cause cause = cause_of(world, kinds[stall->kind]);
    cause.culprit = is_about_rank ? stall->rank : -1;
    cause.count = stall->count;
    cause.waited_ms = stall->waited_ms;
    snprintf(cause.text, sizeof cause.text, "%s", stall->text);
    cause_send(world->os, world->cause_fd, &cause);
}

static void world_breaking(void *ctx)
{
    dump_postmortem(ctx);
}

/* In several records: one is small, so that a pipe takes it whole. */
void world_summary(struct world *world, const char *text)
{
    size_t n = strlen(text);
    if (!world->config.summary || world->place.rank != 0)
        return;
    for (int64_t part = 0; part < SUMMARY_PARTS && n > 0; part++) {
        struct cause cause = cause_of(world, CAUSE_SUMMARY);
        size_t taken = n < sizeof cause.text - 1 ? n : sizeof cause.text - 1;
        memcpy(cause.text, text, taken);
        cause.count = part;
        cause_send(world->os, world->cause_fd, &cause);
        text += taken;
        n -= taken;
    }
}

void world_last_words(struct world *world, const char *text)
{
    struct cause cause = cause_of(world, CAUSE_WORDS);
    snprintf(cause.text, sizeof cause.text, "%s", text);
    cause_send(world->os, world->cause_fd, &cause);
    if (!driver_look_begin(&world->driver, LAST_WORDS_NS))
        return;
    engine_words_set(world->engine, text);
    driver_look_end(&world->driver);
}

/* Reported only if ranks are numbered as horovodrun knows them. In an elastic job it knows the
 * numbers of each generation. */
static void open_cause(struct world *world, bool is_again)
{
    const struct config *c = &world->config;
    bool is_elastic = meet_is_elastic(world);
    if (world->mpi_lib != NULL ||
        (!is_elastic && (c->rank != world->place.rank || c->size != world->place.size)))
        return;
    world->cause_fd = cause_open(world->os, c->cause_pipe);
    if (is_again && !is_elastic) /* the cause of an earlier world no longer applies */
        report_cause(world, -1, "");
}

static hvd_status_t open_engine(struct world *world, struct error *error)
{
    hvd_status_t status = open_backend(world, error);
    if (status != HVD_OK)
        return status;
    struct engine_options options = {.os = world->os,
                                     .config = &world->config,
                                     .log = &world->log,
                                     .rank = world->place.rank,
                                     .size = world->place.size,
                                     .routes = world->links.routes,
                                     .host = world->links.host,
                                     .backend = world->backend,
                                     .is_host_sight = world->links.sight != NULL,
                                     .peer_name = peer_name,
                                     .peer_ctx = world};
    options.transport_count = links_list(&world->links, options.transports, ENGINE_TRANSPORTS_MAX);
    world->memory_count = memory_open(world->os, world->memories);
    memcpy(options.memories, world->memories, sizeof options.memories);
    options.memory_count = world->memory_count;
    options.broke = world_broke;
    options.broke_ctx = world;
    options.stalled = world->cause_fd >= 0 ? world_stalled : NULL;
    options.stalled_ctx = world;
    options.breaking = world->config.postmortem_dir[0] != '\0' ? world_breaking : NULL;
    options.breaking_ctx = world;
    tuned_options(&world->tuned, world->os, &world->config, &world->log, &options);
    return engine_create(&options, &world->engine, error);
}

static hvd_status_t open_timeline(struct world *world)
{
    const struct config *c = &world->config;
    struct error error = {0};
    char path[CONFIG_TEXT_MAX + 16];
    if (world->place.rank != 0 && !c->timeline_all_ranks)
        return HVD_OK;
    struct timeline *timeline = timeline_create(world->os, &world->log);
    engine_timeline_set(world->engine, timeline);
    if (timeline == NULL)
        return HVD_OK;
    if (c->timeline_all_ranks)
        timeline_identify(timeline, world->place.rank, world->place.size,
                          world->endpoints[world->place.rank].host_name);
    if (c->timeline[0] != '\0' && strcmp(c->timeline, "DYNAMIC") != 0 &&
        timeline_path(c->timeline, world->place.rank, path, sizeof path))
        timeline_start(timeline, path, c->timeline_mark_cycles, &error);
    return HVD_OK;
}

static bool is_one_thread(const struct world *world)
{
    int32_t count = 0;
    struct transport *const *transports = engine_transports(world->engine, &count);
    bool is_one = world->backend->is_one_thread;
    for (int32_t i = 0; i < count; i++)
        is_one = is_one || transports[i]->is_one_thread;
    return is_one;
}

/* Everything from the introductions on; `e` has all sets, also those of communicators. */
static hvd_status_t build(struct world *world, const hvd_config_t *e, struct error *error)
{
    hvd_status_t status = links_choose(&world->links, world->endpoints, error);
    if (status == HVD_OK)
        status = open_engine(world, error);
    if (status == HVD_OK)
        status = connect_all(world, error);
    if (status == HVD_OK)
        status = sets_open(world->engine, e != NULL ? e->process_sets : NULL,
                           e != NULL ? e->process_set_sizes : NULL,
                           e != NULL ? e->process_set_count : 0, error);
    if (status == HVD_OK)
        status = open_timeline(world);
    if (status == HVD_OK)
        status = driver_create(&world->driver, world->engine, &world->config, world->poll_fd,
                               world->place.local_rank, world->place.local_size, error);
    if (status != HVD_OK)
        return status;
    world->driver.is_background_only = is_one_thread(world);
    world->driver.backend = world->backend;
    config_seal(&world->config);
    return driver_start(&world->driver, error);
}

hvd_status_t world_create(const struct os *os, const hvd_config_t *e, struct tenure *tenure,
                          struct mpi_process *process, struct world **ret, struct error *error)
{
    struct world *world = os_alloc(os, sizeof *world);
    hvd_config_t with_sets;
    if (world == NULL)
        return error_set(error, HVD_ERR_NO_MEMORY, "Out of memory.");
    world->os = os;
    world->poll_fd = world->cause_fd = -1;
    world->process = process;
    hvd_status_t status = settle(world, e, tenure, error);
    if (status == HVD_OK && e != NULL && e->mpi_comm_count > 1) {
        status = mpi_world_sets(os, world->mpi_lib, world->mpi_comm, &world->place, e,
                                &world->mpi_sets, error);
        with_sets = *e;
        with_sets.process_sets = world->mpi_sets.lists;
        with_sets.process_set_sizes = world->mpi_sets.sizes;
        with_sets.process_set_count = world->mpi_sets.count;
        e = &with_sets;
    }
    world->explicit_config = e;
    if (status == HVD_OK) {
        open_cause(world, tenure->is_again);
        status = meet(world, tenure, error);
    }
    tenure->is_again = true;
    world->explicit_config = NULL;
    meeting_end(&world->meeting);
    os_free(os, world->blob);
    world->blob = NULL;
    mpi_sets_destroy(os, &world->mpi_sets);
    if (status != HVD_OK) {
        world_destroy(world);
        return status;
    }
    if ((world->place.size > 1 || meet_is_elastic(world)) && world->mpi_lib == NULL) {
        memcpy(tenure->key, world->job_key, sizeof tenure->key);
        tenure->has_key = true;
        tenure->epoch = world->epoch;
    }
    watch_start(world);
    *ret = world;
    return HVD_OK;
}

/* What build() has made of a generation that then did not connect. */
static void dismantle(struct world *world)
{
    if (world->driver.thread != NULL)
        driver_shutdown(&world->driver, 0);
    driver_destroy(&world->driver);
    memset(&world->driver, 0, sizeof world->driver);
    if (world->engine != NULL)
        timeline_destroy(engine_timeline(world->engine));
    engine_destroy(world->engine);
    tuned_close(&world->tuned);
    world->engine = NULL;
    memory_close(world->memories, world->memory_count);
    world->memory_count = 0;
    if (world->backend != NULL)
        world->backend->ops->destroy(world->backend);
    world->backend = NULL;
    unprepare(world);
}

void world_destroy(struct world *world)
{
    if (world == NULL)
        return;
    const struct os *os = world->os;
    watch_stop(world);
    if (world->driver.thread != NULL)
        driver_shutdown(&world->driver, SHUTDOWN_MS);
    driver_destroy(&world->driver);
    bool is_clean = world->engine != NULL && engine_is_clean(world->engine);
    bool has_lost = world->engine != NULL && engine_has_lost(world->engine);
    if (world->engine != NULL)
        timeline_destroy(engine_timeline(world->engine));
    engine_destroy(world->engine);
    tuned_close(&world->tuned);
    memory_close(world->memories, world->memory_count);
    if (world->backend != NULL)
        world->backend->ops->destroy(world->backend);
    links_destroy(&world->links);
    /* Freeing is collective: only if all ranks have agreed to shut down. */
    if (world->mpi_lib != NULL && is_clean)
        world->mpi_lib->abi->comm_free(world->mpi_lib, &world->mpi_comm);
    if (world->mpi_lib != NULL && world->engine != NULL && !is_clean) {
        world->process->has_lost = world->process->has_lost || has_lost;
        world->process->has_broken = true;
    }
    atomic_store(&world->is_server_stopping, true);
    if (world->server_thread != NULL)
        os->thread_join(os->ctx, world->server_thread);
    store_server_destroy(world->server);
    if (world->cause_fd >= 0)
        os->close(os->ctx, world->cause_fd);
    if (world->poll_fd >= 0)
        os->close(os->ctx, world->poll_fd);
    os_free(os, world->endpoints);
    bytes_wipe(world->key, sizeof world->key);
    bytes_wipe(world->job_key, sizeof world->job_key);
    config_forget_key(&world->config);
    os_free(os, world);
}
