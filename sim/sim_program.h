/* SPDX-License-Identifier: Apache-2.0 */
/* sim_program.h - a random program for all ranks of a simulated job, made from a seed.
 *
 * A call becomes one ticket on each rank of a process set: one op, or several submitted as a group.
 * A step is what a rank does next. The generator knows the required outcome of every call, because
 * it never lets ranks wait for each other in a circle: either all submit in the same order, or each
 * submits all calls of a turn in its own order and only then waits.
 *
 * Thread: any (pure).  Owner: the caller.  Start reading at sim_program_make() in sim_program.c. */
#ifndef HVD_SIM_PROGRAM_H
#define HVD_SIM_PROGRAM_H

#include "base/config.h"
#include "base/os.h"
#include "horovod/hvd.h"

struct engine;

#define SIM_RANKS_MAX 64
#define SIM_SETS_MAX  16
#define SIM_GROUP_MAX 5
#define SIM_NAME_MAX  40

struct sim_spec {            /* one op, as all ranks should submit it */
    char name[SIM_NAME_MAX]; /* "": the library makes one up */
    hvd_kind_t kind;
    hvd_dtype_t dtype;
    hvd_reduce_t reduce;
    double prescale, postscale;
    hvd_wire_t wire;
    int32_t root; /* index in the set */
    int32_t ndim;
    int64_t shape[3]; /* allgather, alltoall: shape[0] is the most that a rank contributes */
    bool is_in_place;
};

/* What one rank does otherwise than all others. */
enum sim_odd {
    SIM_ODD_NONE,
    SIM_ODD_DTYPE,
    SIM_ODD_SHAPE,
    SIM_ODD_REDUCE,
    SIM_ODD_SCALE,
    SIM_ODD_WIRE,
    SIM_ODD_ROOT,
    SIM_ODD_KIND,
    SIM_ODD_NAME
};

enum sim_expect {
    SIM_EXPECT_OK,
    SIM_EXPECT_MISMATCH,
    SIM_EXPECT_EITHER, /* a join overtakes it or not; the same on all ranks */
    SIM_EXPECT_REMOVED /* its set is removed meanwhile: each rank has the result or HVD_ERR_ABORTED
                        */
};

struct sim_call {
    int32_t set;         /* in sim_program.sets */
    int32_t spec, count; /* its ops */
    uint32_t flags;      /* HVD_OP_* */
    bool has_callback;
    uint64_t submitters; /* ranks; others of the set have joined */
    enum sim_expect expect;
    enum sim_odd odd;
    int32_t odd_rank, odd_op;
};

struct sim_set {
    int32_t count;
    int32_t ranks[SIM_RANKS_MAX];
    uint64_t members;
    bool is_dynamic;
};

enum sim_step_kind {
    SIM_SUBMIT, /* argument: call */
    SIM_WAIT,   /* argument: call */
    SIM_WAIT_ALL,
    SIM_COMPUTE,    /* argument: ns */
    SIM_SET_ADD,    /* argument: set; waits */
    SIM_SET_REMOVE, /* argument: set; waits */
    SIM_JOIN,       /* argument: set, argument2: which join of the program; waits */
    SIM_PROBE,      /* submits what must be refused; argument: enum sim_probe */
    SIM_CRASH,      /* argument: ns from now, while the program continues */
    SIM_HANG,       /* the same; argument2: for how long */
    SIM_SLOW,       /* argument: ns that everything from and to it takes longer */
    SIM_LEAVE,      /* requests shutdown; the end */
    SIM_STUCK,      /* alive, but does nothing any more until the job is over */
    SIM_POOR        /* out of memory for a collective; argument: enum sim_poor, argument2: after how
                       many others */
};

/* What fails on one rank alone, when all have agreed to run a collective. */
enum sim_poor { SIM_POOR_START, SIM_POOR_PROGRESS, SIM_POOR_RESULT, SIM_POOR_COUNT };

enum sim_probe {
    SIM_PROBE_DUPLICATE,
    SIM_PROBE_UNKNOWN_SET,
    SIM_PROBE_ROOT,
    SIM_PROBE_SPLITS,
    SIM_PROBE_FOREIGN_SET,
    SIM_PROBE_NOTHING,
    SIM_PROBE_COUNT
};

struct sim_step {
    enum sim_step_kind kind;
    int64_t argument, argument2;
};

struct sim_script {
    struct sim_step *steps;
    int32_t count, capacity;
    bool is_polling; /* waits without telling the engine */
};

struct sim_program {
    const struct os *os;
    uint64_t seed;
    int32_t ranks, hosts;
    bool is_in_sight;
    int64_t delay_min_ns, delay_max_ns, bytes_per_us, turn_max_ns;
    uint32_t again_one_in, tune_one_in;
    struct config config;
    struct sim_set sets[SIM_SETS_MAX]; /* 0: all ranks; then the static ones; then the others */
    int32_t set_count, static_count;
    struct sim_spec *specs;
    int32_t spec_count, spec_capacity;
    struct sim_call *calls;
    int32_t call_count, call_capacity;
    struct sim_script scripts[SIM_RANKS_MAX];
    uint64_t crashing; /* ranks that crash */
    uint64_t stuck;    /* ranks that are stuck, and the limit that stops the job */
    int64_t stuck_limit_ns;
    uint64_t stopping;              /* ranks that hang, for any time */
    int64_t stop_limit_ns;          /* for waiting for the only one of them; 0: not known */
    int64_t late_ns[SIM_RANKS_MAX]; /* how long after the others a rank has connected to all */
    int64_t frozen_ns;              /* when all ranks are stopped; 0: never */
    int64_t thaw_ns[SIM_RANKS_MAX]; /* and when each continues */
    uint64_t poor;                  /* ranks that run out of memory */
    unsigned terminal;              /* SIM_TERMINAL_*: faults that fail the job */
    int32_t join_count;
    bool is_giving_up; /* a rank leaves at the first such error, else it continues to the end */
    bool has_failed;   /* no memory */
    void (*trace)(const char *line);
    void (*look)(void *ctx, struct engine *engine, int64_t now_ns); /* see below */
    void *look_ctx;
};

enum {
    SIM_TERMINAL_CRASH = 1u,
    SIM_TERMINAL_LEAVE = 2u,
    SIM_TERMINAL_NAME = 4u,
    SIM_TERMINAL_STUCK = 8u,
    SIM_TERMINAL_HUNG = 16u,
    SIM_TERMINAL_POOR = 32u
};

struct sim_program_options {
    uint64_t seed;
    bool has_faults;
    int32_t ranks;        /* 0: by the seed */
    int sight;            /* 1 one machine with shared memory, 0 network, -1 by the seed */
    uint32_t tune_one_in; /* rank 0 tunes in one of so many turns; 0: never */
    bool has_races;       /* ranks join with ops in progress, and use new sets at once */
    void (*trace)(const char *line); /* every event of the run; may be NULL */
    /* Shown every living engine between turns, at moments that the seed decides and that change
     * nothing of the run; may be NULL. */
    void (*look)(void *ctx, struct engine *engine, int64_t now_ns);
    void *look_ctx;
};

/* NULL: no memory. */
struct sim_program *sim_program_make(const struct os *os,
                                     const struct sim_program_options *options);
void sim_program_destroy(struct sim_program *program); /* NULL is fine */

/* The contribution of `rank` to op `op` of a call: the first dimension, and its share for rank
 * index `to`. */
int64_t sim_program_rows(const struct sim_program *program, int32_t call, int32_t op, int32_t rank);
int32_t sim_program_split(const struct sim_program *program, int32_t call, int32_t op, int32_t rank,
                          int32_t to);
uint64_t sim_hash(uint64_t a, uint64_t b);

#endif
