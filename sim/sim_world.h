/* SPDX-License-Identifier: Apache-2.0 */
/* sim_world.h - many engines in one process: one struct engine per rank over the links of a
 * sim_net, stepped by one loop in virtual time, all from a seed.
 *
 * Only ranks with something to do take a turn: something arrived, another rank woke them, or their
 * engine's deadline has passed. A turn is one engine_progress() and one call of options.turn, where
 * the rank's program acts. With turn_max_ns a rank takes its turn a random time after it has
 * something to do, so that several messages fall into one turn, as on a busy machine.
 *
 * Thread: one.  Owner: the caller.  Same options and same calls, same run. Start reading at
 * sim_world_step() in sim_world.c. */
#ifndef HVD_SIM_WORLD_H
#define HVD_SIM_WORLD_H

#include "base/config.h"
#include "base/log.h"
#include "engine/engine.h"
#include "transport/sim/sim_net.h"

struct sim_world;

struct sim_world_options {
    uint64_t seed;
    int32_t ranks;
    int32_t hosts;    /* ranks are dealt out in blocks to so many hosts; 0 = one each */
    bool is_in_sight; /* one host whose ranks see each other's memory: sim_backend and plans */
    int64_t delay_min_ns, delay_max_ns; /* of a message */
    int64_t bytes_per_us;               /* of bulk, 0 = infinite */
    uint32_t again_one_in;              /* see sim_net.h */
    int64_t turn_max_ns;                /* how late a rank may take its turn */
    const struct config *config;        /* NULL: the defaults */
    const int32_t *const *sets;         /* static process sets */
    const int32_t *set_sizes;
    int32_t set_count;
    void (*turn)(void *ctx, int32_t rank); /* the rank's program; may be NULL */
    /* A set of this rank has changed its tunables, after `position` batches; may be NULL. */
    void (*tuned)(void *ctx, int32_t rank, int32_t set, const struct tunables *tunables,
                  uint64_t position);
    void *ctx;
    /* A kind of memory besides the host's for each rank, by rank; NULL: none. Outlives the world.
     */
    struct memory_kind *const *memories;
    log_sink_t log_sink; /* warnings and worse of all ranks; NULL: dropped */
};

/* NULL: no memory, or invalid options; `error` says which. `os` must outlive it. */
struct sim_world *sim_world_create(const struct os *os, const struct sim_world_options *options,
                                   struct error *error);
void sim_world_destroy(struct sim_world *world); /* safe on NULL and half-built */

struct engine *sim_world_engine(struct sim_world *world, int32_t rank); /* NULL: freed */
struct sim_net *sim_world_net(struct sim_world *world);
int64_t sim_world_now_ns(const struct sim_world *world);
/* An os table without an environment. */
void sim_world_env_none(struct os *os);
/* The defaults, untouched by the environment of the process. */
hvd_status_t sim_world_config(const struct os *os, struct config *ret, struct error *error);

/* One turn of some rank, or time moves on; false: nothing happens any more up to `limit_ns`. */
bool sim_world_step(struct sim_world *world, int64_t limit_ns);
/* `rank` takes a turn at `time_ns` at the latest (now, if that has passed). */
void sim_world_wake(struct sim_world *world, int32_t rank, int64_t time_ns);

/* ---- faults; not from inside the turn of the same rank, except sim_world_leave_later() ---- */
void sim_world_crash(struct sim_world *world, int32_t rank); /* its engine is destroyed */
void sim_world_hang(struct sim_world *world, int32_t rank, bool is_hung);
/* The rank's engine is destroyed and its links close, after this turn: by a crash or in order. */
void sim_world_leave_later(struct sim_world *world, int32_t rank, bool is_crash);

/* The rank's own `which` (enum sim_poor) fails for want of memory, after so many that do not. */
void sim_world_poor(struct sim_world *world, int32_t rank, int which, int64_t after);

/* What sim_backend found wrong (NULL: nothing): a cancelled collective that had taken place, ranks
 * that met with different collectives. */
const char *sim_world_violation(const struct sim_world *world);

#endif
