/* SPDX-License-Identifier: Apache-2.0 */
/* net.h - internals of the network half of the native backend: one collective of one group at a
 * time, by schedules over transports.
 *
 *   net.c         from a struct coll to phases: move in, run, move out; start reading there
 *   net_layout.c  copying parts between the tensors and the WORK buffer, with scaling
 *   net_exec.c    runs one schedule: channels, segments, reductions
 *   net_wave.c    the schedule's wave steps, in memory shared with other ranks on the machine
 *   net_adasum.c  Adasum, a sequence of small schedules
 *
 * Thread: token holder.  Owner: struct backend_group.  Blocks: never.  All memory is kept and grows
 * only when a collective is larger than any before it. */
#ifndef HVD_BACKEND_NATIVE_NET_H
#define HVD_BACKEND_NATIVE_NET_H

#include "backend/native/native.h"
#include "reduce/reduce.h"
#include "transport/shm/shm.h"
#include "transport/streams.h"

#define NET_SEGMENT_BYTES                                                                          \
    (256u << 10)                     /* a transfer is cut into these: they stay in the L2 cache    \
                                      */
#define NET_WINDOW        4u         /* segments of one step in transit */
#define NET_QUANTUM_BYTES (1u << 20) /* copied or reduced before progress() returns */
#define NET_CHANNELS      (SCHEDULE_CHANNELS_MAX)
#define NET_LEVELS_MAX    32

enum net_phase { NET_IDLE, NET_MOVE_IN, NET_RUN, NET_ADASUM, NET_CHECK, NET_MOVE_OUT, NET_DONE };

struct net_flight { /* the transfer of one step */
    const struct step *step;
    struct transport *transport;
    int32_t peer; /* world rank */
    uint64_t stream;
    bool is_send, is_reduce;
    uint8_t *memory; /* what is sent, or where it goes; for a reduction NET_WINDOW segments */
    size_t bytes;
    uint64_t segment_count, posted, done;
    const struct net_flight *twin; /* a send of the region that this one reduces into */
    struct transport_req reqs[NET_WINDOW];
};

struct net_channel {
    size_t cursor, end; /* steps of this section */
    int32_t flight_first, flight_count, flight_capacity;
    int32_t stage_first, stage_count, stage_capacity; /* places for arriving segments */
};

struct net_exec { /* one schedule being run */
    const struct schedule *schedule;
    uint8_t *work, *scratch;
    size_t element_bytes;
    hvd_dtype_t dtype;
    hvd_reduce_t reduce;
    double postscale; /* folded into the final reductions */
    bool is_running;
    size_t cursor; /* next wave step or section */
    bool in_section;
    struct net_channel channels[NET_CHANNELS];
    struct net_flight *flights;
    int32_t flight_capacity;
    uint8_t *stage;
    size_t stage_bytes, stage_segment;
    uint64_t wave_done; /* elements of the current wave step */
};

struct net_sight { /* the ranks on my machine in the group */
    struct shm *shm;
    int32_t count, self; /* self: my place among them */
    int32_t *ranks;      /* world ranks, ascending */
    uint8_t **work;      /* their WORK of the current collective */
    const void **sources;
    uint64_t phase;     /* of wave 0 of the current collective */
    uint64_t wave_next; /* waves of it so far */
    struct shm_waiter waiter;
    bool is_waiting;
    uint64_t waiting_phase;
};

struct net_mover { /* walks over all (rank, part) pieces of a fused collective */
    int32_t rank, rank_end, part;
    uint64_t piece_done;
    uint64_t work_at; /* elements */
};

struct net_adasum {
    int32_t depth, level_count;
    bool has_dots, is_gathering;
    struct {
        uint64_t keep, keep_count, give, give_count;
    } levels[NET_LEVELS_MAX];
    double *dots; /* three per part */
    int32_t dot_capacity;
};

struct net_coll {
    const struct os *os;
    struct native_routes routes;
    int32_t set_id, size, self;
    int32_t *ranks;    /* world ranks by index */
    int32_t *identity; /* 0, 1, 2, ... */
    int32_t *hosts;
    struct topology topology; /* as agreed: ranks that share memory are one machine */
    struct topology flat;     /* every rank is a separate machine */
    struct topology gather;   /* of allgathers: one of the two */
    int32_t channels;         /* of a collective that does not specify it */
    bool has_sight;
    enum schedule_algorithm forced;
    uint64_t stream_base; /* life and turn, see transport/streams.h */
    uint64_t sequence;    /* of the current collective in them */
    bool has_streams;     /* the transports know of stream_base */

    const struct coll *coll;
    const struct coll *lost; /* it failed here; others on the machine may still be in it */
    const char *doom;        /* why it can no longer succeed; NULL: it can */
    enum net_phase phase;
    size_t element_bytes;
    /* A float16 average whose sums may overflow although its result does not: runs as float16
     * first, and again as float32 only if the result contains an infinity. The same if float32
     * travels as float16. */
    bool needs_width, is_wide;
    uint64_t checked; /* elements of WORK that are finite */
    hvd_dtype_t work_dtype;
    size_t work_bytes; /* of an element in WORK */
    /* The type of what is sent and received, and whether a float32 is converted to it: into WORK,
     * or, if WORK is shared with other ranks on the machine, into `travel`, which else is NULL. */
    hvd_dtype_t travel_dtype;
    bool is_narrow;
    uint8_t *travel;
    double fold, rest; /* postscale: in the final reductions, and in the conversion to float32 */
    struct schedule schedule;
    struct net_exec exec;
    struct net_sight sight;
    struct net_adasum adasum;

    uint8_t *work;  /* of the current collective: `memory`, arena memory or the tensor itself */
    bool is_direct; /* WORK is the output */
    uint64_t work_count; /* elements */
    uint8_t *memory, *arena;
    size_t memory_bytes, arena_bytes;
    uint8_t *scratch;
    size_t scratch_bytes;
    uint64_t *offsets, *counts, *send_offsets, *send_counts; /* one per rank */
    uint64_t *part_at; /* COLL_PARTS_MAX: elements of each part moved so far */
    struct net_mover mover;
    double move_scale;
};

/* net_layout.c */
void net_move_begin(struct net_coll *n, int32_t rank, int32_t rank_end, uint64_t work_at,
                    double scale);
/* Moves about a quantum; true when everything is moved. */
bool net_move_in(struct net_coll *n);
bool net_move_out(struct net_coll *n);
bool net_move_through(struct net_coll *n); /* a group of one: input to output */
uint64_t net_piece_count(const struct net_coll *n, int32_t rank, int32_t part);
/* Makes `*memory` at least `bytes` long; its content is lost. */
hvd_status_t net_reserve(const struct os *os, uint8_t **memory, size_t *capacity, size_t bytes,
                         struct error *error);

/* net_exec.c */
hvd_status_t net_exec_start(struct net_coll *n, const struct schedule *schedule, void *work,
                            void *scratch, size_t element_bytes, hvd_dtype_t dtype,
                            hvd_reduce_t reduce, double postscale, struct error *error);
hvd_status_t net_exec_progress(struct net_coll *n, bool *ret_moved, struct error *error);
void net_exec_cancel(struct net_coll *n); /* forgets everything in progress */
void net_exec_destroy(struct net_coll *n);

/* net_wave.c */
hvd_status_t net_sight_create(struct net_coll *n, const struct group *group, struct error *error);
void net_sight_destroy(struct net_coll *n);
void net_sight_cancel(struct net_coll *n);
void net_sight_withdraw(struct net_coll *n); /* invalidates all waves of this member */
void net_sight_finish(struct net_coll *n);   /* the collective's waves are over */
hvd_status_t net_wave_step(struct net_coll *n, const struct step *step, bool *ret_moved,
                           struct error *error);

/* net_adasum.c */
hvd_status_t net_adasum_start(struct net_coll *n, struct error *error);
hvd_status_t net_adasum_progress(struct net_coll *n, bool *ret_moved, struct error *error);
void net_adasum_destroy(struct net_coll *n);

#endif
