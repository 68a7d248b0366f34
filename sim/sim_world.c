/* SPDX-License-Identifier: Apache-2.0 */
/* sim_world.c - see sim_world.h.
 *
 * Wake-up times of the ranks are in a heap with the position of every rank beside it; the network
 * has a separate heap. The loop advances to whichever comes first. */
#include "sim_world.h"

#include <stdio.h>
#include <string.h>

#include "backend/native/native.h"
#include "sim_backend.h"
#include "sim_program.h"

#define NEVER      INT64_MAX
#define RETRY_NS   10000 /* an engine with something unsent, or a deadline that stays in the past */
#define LOOK_NS    1000000000 /* a driver looks up at least this often */
#define SIM_LOG_AT LOG_WARNING

struct sim_rank {
    struct backend front; /* what the engine sees of `backend`: it can run out of memory */
    const struct os *os;
    int64_t poor[SIM_POOR_COUNT]; /* fails when it reaches 0; negative: never */
    struct engine *engine;
    struct sim_world *world;
    struct backend *backend;
    struct transport *transport;
    struct transport **routes;
    int64_t wake_ns;    /* in the heap by this */
    int64_t program_ns; /* what the program requested */
    int32_t place;      /* in the heap */
    bool is_hung, is_leaving, is_leaving_by_crash;
};

struct sim_world {
    const struct os *os;
    struct sim_world_options options;
    struct config config;
    struct log log;
    struct sim_net *net;
    struct sim_board *board;
    struct sim_rank *ranks;
    int32_t *host;
    int32_t *heap;
    uint64_t random;
    int32_t turning; /* the rank whose turn it is, -1 = none */
};

/* ---- the heap of wake-up times ---- */

static void heap_set(struct sim_world *world, int32_t place, int32_t rank)
{
    world->heap[place] = rank;
    world->ranks[rank].place = place;
}

static bool is_earlier(const struct sim_world *world, int32_t a, int32_t b)
{
    int64_t ta = world->ranks[a].wake_ns, tb = world->ranks[b].wake_ns;
    return ta != tb ? ta < tb : a < b;
}

static void heap_settle(struct sim_world *world, int32_t rank)
{
    int32_t at = world->ranks[rank].place, count = world->options.ranks;
    while (at > 0 && is_earlier(world, rank, world->heap[(at - 1) / 2])) {
        heap_set(world, at, world->heap[(at - 1) / 2]);
        at = (at - 1) / 2;
    }
    for (;;) {
        int32_t child = 2 * at + 1;
        if (child >= count)
            break;
        if (child + 1 < count && is_earlier(world, world->heap[child + 1], world->heap[child]))
            child++;
        if (!is_earlier(world, world->heap[child], rank))
            break;
        heap_set(world, at, world->heap[child]);
        at = child;
    }
    heap_set(world, at, rank);
}

static void wake_set(struct sim_world *world, int32_t rank, int64_t time_ns)
{
    if (world->ranks[rank].wake_ns == time_ns)
        return;
    world->ranks[rank].wake_ns = time_ns;
    heap_settle(world, rank);
}

static void wake_by(struct sim_world *world, int32_t rank, int64_t time_ns)
{
    const struct sim_rank *r = &world->ranks[rank];
    if (r->engine != NULL && !r->is_hung && time_ns < r->wake_ns)
        wake_set(world, rank, time_ns);
}

void sim_world_wake(struct sim_world *world, int32_t rank, int64_t time_ns)
{
    struct sim_rank *r = &world->ranks[rank];
    int64_t now_ns = sim_net_now_ns(world->net);
    if (time_ns < now_ns)
        time_ns = now_ns;
    if (time_ns < r->program_ns)
        r->program_ns = time_ns;
    wake_by(world, rank, time_ns);
}

static int64_t soon_ns(struct sim_world *world)
{
    int64_t now_ns = sim_net_now_ns(world->net), late_ns = world->options.turn_max_ns;
    return late_ns > 0 ? now_ns + (int64_t)(sim_splitmix(&world->random) % (uint64_t)late_ns)
                       : now_ns;
}

static void on_board(void *ctx, int32_t rank)
{
    struct sim_world *world = ctx;
    sim_world_wake(world, rank, soon_ns(world) + 1);
}

/* ---- a rank alone has no memory ---- */

static struct sim_rank *rank_of(struct backend *front)
{
    return (struct sim_rank *)(void *)front;
}

static bool is_poor(struct sim_rank *r, enum sim_poor which)
{
    return r->poor[which] >= 0 && r->poor[which]-- == 0;
}

static hvd_status_t front_group_open(struct backend *b, const struct group *group,
                                     struct backend_group **ret, struct error *error)
{
    struct backend *inner = rank_of(b)->backend;
    return inner->ops->group_open(inner, group, ret, error);
}

static void front_group_close(struct backend *b, struct backend_group *g)
{
    struct backend *inner = rank_of(b)->backend;
    inner->ops->group_close(inner, g);
}

static hvd_status_t front_start(struct backend *b, struct backend_group *g, const struct coll *coll,
                                struct error *error)
{
    struct backend *inner = rank_of(b)->backend;
    if (is_poor(rank_of(b), SIM_POOR_START))
        return error_set(error, HVD_ERR_NO_MEMORY, "no memory to begin");
    return inner->ops->start(inner, g, coll, error);
}

static hvd_status_t front_progress(struct backend *b, struct backend_group *g, bool *ret_moved,
                                   struct error *error)
{
    struct backend *inner = rank_of(b)->backend;
    hvd_status_t status = inner->ops->progress(inner, g, ret_moved, error);
    if (status == HVD_IN_PROGRESS && is_poor(rank_of(b), SIM_POOR_PROGRESS))
        return error_set(error, HVD_ERR_NO_MEMORY, "no memory to go on");
    return status;
}

static void front_reset(struct backend *b, struct backend_group *g, uint64_t base)
{
    struct backend *inner = rank_of(b)->backend;
    inner->ops->reset(inner, g, base);
}

static const char *front_activity(const struct backend_group *g, hvd_kind_t kind)
{
    (void)g;
    (void)kind;
    return "SIM";
}

static void front_destroy(struct backend *b)
{
    struct backend *inner = rank_of(b)->backend;
    if (inner != NULL)
        inner->ops->destroy(inner);
    rank_of(b)->backend = NULL;
}

static const struct backend_ops front_ops = {.version = BACKEND_VERSION,
                                             .name = "sim front",
                                             .group_open = front_group_open,
                                             .group_close = front_group_close,
                                             .start = front_start,
                                             .progress = front_progress,
                                             .reset = front_reset,
                                             .activity = front_activity,
                                             .destroy = front_destroy};

static void *result_alloc(void *ctx, size_t bytes)
{
    struct sim_rank *r = ctx;
    return is_poor(r, SIM_POOR_RESULT) ? NULL : os_alloc(r->os, bytes);
}

static void result_free(void *ctx, void *ptr)
{
    const struct sim_rank *r = ctx;
    os_free(r->os, ptr);
}

void sim_world_poor(struct sim_world *world, int32_t rank, int which, int64_t after)
{
    world->ranks[rank].poor[which] = after;
}

/* ---- leaving ---- */

static void rank_close(struct sim_world *world, int32_t rank, bool is_crash)
{
    struct sim_rank *r = &world->ranks[rank];
    if (r->engine == NULL)
        return;
    if (is_crash)
        sim_net_crash(world->net, rank);
    engine_destroy(r->engine);
    front_destroy(&r->front);
    if (!is_crash)
        r->transport->ops->destroy(r->transport);
    r->engine = NULL;
    r->is_hung = false;
    wake_set(world, rank, NEVER);
}

void sim_world_crash(struct sim_world *world, int32_t rank)
{
    if (world->turning == rank)
        sim_world_leave_later(world, rank, true);
    else
        rank_close(world, rank, true);
}

void sim_world_leave_later(struct sim_world *world, int32_t rank, bool is_crash)
{
    world->ranks[rank].is_leaving = true;
    world->ranks[rank].is_leaving_by_crash = is_crash;
    sim_world_wake(world, rank, 0);
}

void sim_world_hang(struct sim_world *world, int32_t rank, bool is_hung)
{
    struct sim_rank *r = &world->ranks[rank];
    if (r->engine == NULL || r->is_hung == is_hung)
        return;
    sim_net_hang(world->net, rank, is_hung);
    r->is_hung = is_hung;
    if (is_hung)
        wake_set(world, rank, NEVER);
    else
        sim_world_wake(world, rank, 0);
}

/* ---- turns ---- */

static int64_t next_turn_ns(struct sim_world *world, const struct sim_rank *r, bool has_moved)
{
    int64_t now_ns = sim_net_now_ns(world->net), next_ns = r->program_ns;
    const struct engine *engine = r->engine;
    if (has_moved || engine_has_queued(engine)) {
        int64_t soon = soon_ns(world);
        next_ns = soon < next_ns ? soon : next_ns;
    }
    int64_t deadline_ns = engine_deadline_ns(engine);
    if (deadline_ns <= now_ns || engine_has_unsent(engine))
        deadline_ns = now_ns + RETRY_NS;
    else if (deadline_ns > now_ns + LOOK_NS)
        deadline_ns = now_ns + LOOK_NS;
    return deadline_ns < next_ns ? deadline_ns : next_ns;
}

static void take_turn(struct sim_world *world, int32_t rank)
{
    struct sim_rank *r = &world->ranks[rank];
    int64_t now_ns = sim_net_now_ns(world->net);
    if (r->engine == NULL || r->is_hung) {
        wake_set(world, rank, NEVER);
        return;
    }
    if (r->program_ns <= now_ns)
        r->program_ns = NEVER;
    world->turning = rank;
    bool has_moved = engine_progress(r->engine, now_ns);
    if (world->options.turn != NULL)
        world->options.turn(world->options.ctx, rank);
    world->turning = -1;
    if (r->is_leaving)
        rank_close(world, rank, r->is_leaving_by_crash);
    else if (!r->is_hung)
        wake_set(world, rank, next_turn_ns(world, r, has_moved));
}

/* Something has arrived for some ranks: they get a turn soon. true: there are such ranks. */
static bool notice_arrivals(struct sim_world *world)
{
    int64_t now_ns = sim_net_now_ns(world->net), late_ns = world->options.turn_max_ns;
    int32_t rank = sim_net_due_rank(world->net);
    if (rank < 0)
        return false;
    if (late_ns == 0) {
        wake_by(world, rank, now_ns);
        return true;
    }
    for (rank = 0; rank < world->options.ranks; rank++)
        if (world->ranks[rank].wake_ns > now_ns + late_ns && sim_net_is_due(world->net, rank))
            wake_by(world, rank, soon_ns(world));
    return true;
}

bool sim_world_step(struct sim_world *world, int64_t limit_ns)
{
    int64_t now_ns = sim_net_now_ns(world->net);
    bool has_arrivals = notice_arrivals(world);
    int32_t first = world->heap[0];
    int64_t next_ns = world->ranks[first].wake_ns;
    if (next_ns <= now_ns) {
        take_turn(world, first);
        return true;
    }
    if (now_ns >= limit_ns)
        return false;
    has_arrivals |= sim_net_advance(world->net, next_ns < limit_ns ? next_ns : limit_ns);
    return has_arrivals || next_ns <= limit_ns;
}

/* ---- create and destroy ---- */

static const char *env_none(void *ctx, const char *name)
{
    (void)ctx;
    (void)name;
    return NULL;
}

static void env_each_none(void *ctx, void (*fn)(void *arg, const char *name, const char *value),
                          void *arg)
{
    (void)ctx;
    (void)fn;
    (void)arg;
}

void sim_world_env_none(struct os *os)
{
    os->env = env_none;
    os->env_each = env_each_none;
}

hvd_status_t sim_world_config(const struct os *os, struct config *ret, struct error *error)
{
    struct os bare = *os;
    sim_world_env_none(&bare);
    return config_load(&bare, ret, NULL, NULL, error);
}

static void log_drop(void *arg, enum log_level level, const char *line)
{
    (void)arg;
    (void)level;
    (void)line;
}

static hvd_status_t backend_open(struct sim_world *world, int32_t rank, struct error *error)
{
    struct sim_rank *r = &world->ranks[rank];
    const struct os *os = sim_net_os(world->net);
    if (world->options.is_in_sight)
        return sim_backend_create(os, world->board, rank, &r->backend, error);
    struct native_routes routes = {
        .routes = r->routes, .world_size = world->options.ranks, .self_rank = rank};
    return native_create(os, &world->config, &routes, &r->backend, error);
}

static void on_tuned(void *ctx, int32_t set, const struct tunables *tunables, uint64_t position)
{
    const struct sim_rank *r = ctx;
    const struct sim_world_options *o = &r->world->options;
    if (o->tuned != NULL)
        o->tuned(o->ctx, (int32_t)(r - r->world->ranks), set, tunables, position);
}

static hvd_status_t rank_open(struct sim_world *world, int32_t rank, struct error *error)
{
    struct sim_rank *r = &world->ranks[rank];
    const struct sim_world_options *o = &world->options;
    r->routes = os_alloc(world->os, (size_t)o->ranks * sizeof(struct transport *));
    if (r->routes == NULL)
        return error_set(error, HVD_ERR_NO_MEMORY, "Out of memory.");
    hvd_status_t status = backend_open(world, rank, error);
    if (status != HVD_OK)
        return status;
    r->os = sim_net_os(world->net);
    r->front = (struct backend){.ops = &front_ops, .os = r->os};
    for (int i = 0; i < SIM_POOR_COUNT; i++)
        r->poor[i] = -1;
    struct engine_options options = {.os = sim_net_os(world->net),
                                     .config = &world->config,
                                     .log = &world->log,
                                     .rank = rank,
                                     .size = o->ranks,
                                     .routes = r->routes,
                                     .host = world->host,
                                     .backend = &r->front,
                                     .result_alloc = result_alloc,
                                     .result_free = result_free,
                                     .result_ctx = r,
                                     .is_host_sight = o->is_in_sight,
                                     .tuned = on_tuned,
                                     .tuned_ctx = r};
    r->world = world;
    if (o->memories != NULL)
        options.memories[options.memory_count++] = o->memories[rank];
    status = engine_create(&options, &r->engine, error);
    if (status != HVD_OK)
        return status;
    struct transport_events events = control_events(r->engine);
    r->transport = sim_net_open(world->net, rank, &events);
    if (r->transport == NULL)
        return error_set(error, HVD_ERR_NO_MEMORY, "Out of memory.");
    engine_transport_add(r->engine, r->transport);
    for (int32_t i = 0; i < o->ranks; i++)
        r->routes[i] = i != rank ? r->transport : NULL;
    return sets_open(r->engine, o->sets, o->set_sizes, o->set_count, error);
}

static hvd_status_t tables_make(struct sim_world *world, struct error *error)
{
    const struct sim_world_options *o = &world->options;
    const struct os *os = world->os;
    struct sim_net_options net = {.seed = o->seed,
                                  .ranks = o->ranks,
                                  .delay_min_ns = o->delay_min_ns,
                                  .delay_max_ns = o->delay_max_ns,
                                  .bytes_per_us = o->bytes_per_us,
                                  .again_one_in = o->again_one_in};
    world->net = sim_net_create(os, &net);
    if (world->net == NULL)
        return error_set(error, HVD_ERR_INVALID, "These options make no network.");
    struct sim_board_events events = {.ctx = world, .wake = on_board};
    world->board = sim_board_create(os, &events);
    world->ranks = os_alloc(os, (size_t)o->ranks * sizeof *world->ranks);
    world->host = os_alloc(os, (size_t)o->ranks * sizeof *world->host);
    world->heap = os_alloc(os, (size_t)o->ranks * sizeof *world->heap);
    if (world->board == NULL || world->ranks == NULL || world->host == NULL || world->heap == NULL)
        return error_set(error, HVD_ERR_NO_MEMORY, "Out of memory.");
    int32_t hosts = o->is_in_sight ? 1 : o->hosts > 0 && o->hosts < o->ranks ? o->hosts : o->ranks;
    for (int32_t i = 0; i < o->ranks; i++) {
        world->host[i] = (int32_t)((int64_t)i * hosts / o->ranks);
        world->heap[i] = i;
        world->ranks[i].place = i;
        world->ranks[i].wake_ns = world->ranks[i].program_ns = NEVER;
    }
    return HVD_OK;
}

struct sim_world *sim_world_create(const struct os *os, const struct sim_world_options *options,
                                   struct error *error)
{
    struct sim_world *world = os_alloc(os, sizeof *world);
    if (world == NULL)
        return NULL;
    world->os = os;
    world->options = *options;
    world->random = options->seed ^ 0x5157u;
    world->turning = -1;
    world->log = (struct log){.level = SIM_LOG_AT,
                              .hide_time = true,
                              .rank = -1,
                              .sink = options->log_sink != NULL ? options->log_sink : log_drop,
                              .sink_arg = options->ctx};
    hvd_status_t status = HVD_OK;
    if (options->config != NULL)
        world->config = *options->config;
    else
        status = sim_world_config(os, &world->config, error);
    if (status == HVD_OK)
        status = tables_make(world, error);
    for (int32_t i = 0; status == HVD_OK && i < options->ranks; i++)
        status = rank_open(world, i, error);
    if (status != HVD_OK) {
        sim_world_destroy(world);
        return NULL;
    }
    for (int32_t i = 0; i < options->ranks; i++)
        sim_world_wake(world, i, 0);
    return world;
}

void sim_world_destroy(struct sim_world *world)
{
    if (world == NULL)
        return;
    for (int32_t i = 0; world->ranks != NULL && i < world->options.ranks; i++) {
        struct sim_rank *r = &world->ranks[i];
        engine_destroy(r->engine);
        front_destroy(&r->front);
        os_free(world->os, r->routes);
    }
    sim_board_destroy(world->board);
    sim_net_destroy(world->net);
    os_free(world->os, world->ranks);
    os_free(world->os, world->host);
    os_free(world->os, world->heap);
    os_free(world->os, world);
}

struct engine *sim_world_engine(struct sim_world *world, int32_t rank)
{
    return world->ranks[rank].engine;
}

struct sim_net *sim_world_net(struct sim_world *world)
{
    return world->net;
}

int64_t sim_world_now_ns(const struct sim_world *world)
{
    return sim_net_now_ns(world->net);
}

const char *sim_world_violation(const struct sim_world *world)
{
    return sim_board_violation(world->board);
}
