/* SPDX-License-Identifier: Apache-2.0 */
/* host.h - what the host*.c files share: collectives among ranks that share memory.
 *
 * A collective is a chain of steps with waves between them. A wave: every member publishes its next
 * phase number on its board, with the data that belongs to it, and then awaits the same number from
 * all. A step runs only when the wave before it has arrived and never waits itself; it sets its
 * successor in h->step. All members run the same sequence of waves: everything that decides it is
 * equal on all members (the collective, the group) or was published in an earlier wave.
 *
 * Where the data is: a member whose buffers are all in its arena publishes offsets; all members
 * read and write there directly. A member with private buffers publishes addresses; the kernel
 * reads them (process_vm_readv) or they are copied through its staging, as was agreed.
 *
 *     host.c          create, start, progress     host_wave.c    waves, agreement about reading
 *     host_walk.c     ownership of bytes          host_small.c   payload within the wave
 *     host_reduce.c   direct in place, choice     host_staged.c  private memory through staging
 *     host_remote.c   private memory by kernel    host_gather.c  broadcast, allgather, alltoall
 *     host_adasum.c   the pairwise rule
 *
 * Thread: token holder.  Start reading at host_coll_start(). */
#ifndef HVD_BACKEND_NATIVE_HOST_H
#define HVD_BACKEND_NATIVE_HOST_H

#include "backend/native/native.h"
#include "reduce/reduce.h"
#include "transport/shm/shm.h"

#define HOST_MEMBERS_MAX  REDUCE_SOURCES_MAX
#define HOST_BLOCK_BYTES  (32u << 10) /* of one buffer per call of the kernel */
#define HOST_BUDGET_BYTES (4u << 20)  /* work of one step before it returns to the driver */
#define HOST_SIZE_CLASSES 10
#define HOST_SMALL_MAX    (4u << 10)

/* Published with the first wave of a collective that does not fit into the wave itself. */
struct host_head {
    uint32_t flags;
    uint32_t shape;     /* fingerprint of the collective: equal on all members */
    uint64_t stage;     /* offset of the staging area in the segment; 0: none */
    uint64_t secret_at; /* address and value of a word: reading it proves the right process */
    uint64_t secret;
    uint64_t in, out; /* the only part; several: in the slot */
};
_Static_assert(sizeof(struct host_head) <= SHM_BOARD_INLINE, "a head fits beside the phase");

enum host_flag { /* first word of every wave but those that carry a payload inline */
                 HOST_ARENA = 1u << 0,       /* places are offsets */
                 HOST_IN_SLOT = 1u << 1,     /* the payload itself is in the slot */
                 HOST_FAILED = 1u << 2,      /* this member gave up: so must all */
                 HOST_CAN_READ = 1u << 3,    /* a vote: I may read every member's private memory */
                 HOST_FORCE_READ = 1u << 4,  /* member 0: always by the kernel */
                 HOST_CHOICE_READ = 1u << 5, /* member 0: its measurements say so */
};

struct host_place { /* of one part: mapped here if in the member's arena, else its own address */
    uint8_t *in, *out;
};

struct host_member {
    int32_t rank, pid;
    struct shm_board *board;
    uint8_t *segment;
    struct host_head head; /* checked copy */
    bool is_arena;
    uint8_t *stage;
    struct host_place *places; /* one per part */
    uint64_t total;            /* gather kinds: bytes it contributes */
    uint64_t wanted_at;        /* alltoall: where my part begins in its input */
};

/* A cursor over the bytes that one member owns (reductions) or contributes (gathers). */
struct host_walk {
    int32_t member;
    int32_t part;
    uint64_t pos;           /* in the member's own order, 0 .. total */
    uint64_t left;          /* bytes until the end of the walk */
    uint64_t in_at, out_at; /* offsets in the part's input and output */
    uint64_t part_left;     /* bytes until the end of this part's run */
};

enum host_read { HOST_READ_UNKNOWN, HOST_READ_NO, HOST_READ_YES };

struct host_class { /* what was measured for one kind and order of size */
    uint32_t trials;
    bool is_decided, is_read;
    int64_t best_ns[2]; /* staged, read; per MiB */
};

struct host_coll;
typedef hvd_status_t (*host_step_t)(struct host_coll *h, struct error *error);

struct host_coll {
    const struct os *os;
    const struct config *config;
    struct shm *shm;
    uint64_t page; /* bytes of a memory page */
    int32_t size, self, set_id;
    int32_t *ranks;
    struct host_member *members;
    struct shm_waiter waiter;

    /* waves */
    uint64_t wave;      /* last published */
    uint64_t done_wave; /* the last one of the last completed collective */
    int32_t seen;       /* members whose wave has been seen, in order */
    bool is_waiting;
    bool has_flags;                /* the wave's first inline word is flags */
    uint32_t flags_any, flags_all; /* of the wave that has arrived */
    uint32_t downs_seen;
    int64_t failed_since_ns; /* a member has given up; 0: none */

    /* the collective */
    const struct coll *coll;
    const struct coll *lost; /* it failed here; others may still be in it */
    const char *doom;        /* why it can no longer succeed; NULL: it can */
    host_step_t step;
    size_t element;
    uint64_t total;   /* bytes of all parts' inputs */
    uint64_t *prefix; /* COLL_PARTS_MAX + 1: where each part begins in the concatenation */
    struct host_place *places;
    size_t place_capacity;
    bool all_arena, any_private;
    bool is_read_mode; /* private memory is read by the kernel in this collective */
    uint64_t shares_align;

    /* staging: 2 x members x stage_unit */
    uint8_t *stage;
    uint64_t stage_unit, stage_bytes;
    uint64_t chunk, chunk_count;
    struct host_walk own_walk;
    struct host_walk *in_walks, *out_walks; /* one per member */
    int32_t cursor; /* gathers, result phase of remote: member being copied */
    uint8_t *scratch;
    uint64_t scratch_block;
    uint8_t small[HOST_SMALL_MAX]; /* a result that waits for a wave */

    /* agreement about reading private memory */
    enum host_read read;
    bool is_read_forced, is_voting;
    int64_t unread_since_ns; /* reading failed since then; 0: it did not */
    uint64_t secret;
    struct host_class classes[2][HOST_SIZE_CLASSES];
    int64_t began_ns;

    /* adasum */
    uint8_t *adasum;
    uint64_t adasum_bytes;
    int32_t level;
    uint64_t triple, batch;      /* first of the batch, how many */
    bool any_large;              /* gathers: a member's payload did not fit into its slot */
    struct host_walk stage_walk; /* gathers: own input going into staging */
};

/* host_wave.c */
void host_publish_flags(struct host_coll *h, uint32_t flags);
void host_publish_bytes(struct host_coll *h, const void *bytes, size_t n); /* without flags */
void host_publish_head(struct host_coll *h, uint32_t flags);
void host_publish_copy(struct host_coll *h, const uint8_t *copy); /* one vector in the arena */
bool host_arrived(struct host_coll *h);
hvd_status_t host_members_check(struct host_coll *h, struct error *error);
uint8_t *host_slot_next(struct host_coll *h); /* own slot of the wave to be published */
const uint8_t *host_slot(const struct host_coll *h, int32_t member); /* of the last wave */
hvd_status_t host_heads_read(struct host_coll *h, struct error *error);
hvd_status_t host_places_read(struct host_coll *h, struct error *error);
hvd_status_t host_give_up(struct host_coll *h, hvd_status_t status);
void host_withdraw(struct host_coll *h); /* invalidates all waves of this member */
hvd_status_t host_done(struct host_coll *h, struct error *error); /* a last step */
bool host_is_own_arena(struct host_coll *h);
void host_places_write(struct host_coll *h, bool is_arena);
bool host_stage_reserve(struct host_coll *h);
void host_vote_prepare(struct host_coll *h);
uint32_t host_vote(struct host_coll *h);
void host_vote_count(struct host_coll *h);
hvd_status_t host_corrupt(struct host_coll *h, int32_t member, const char *what,
                          struct error *error);

/* host_walk.c */
uint64_t host_share_bytes(const struct host_coll *h, int32_t member);
struct host_walk host_walk_share(const struct host_coll *h, int32_t member); /* reductions */
struct host_walk host_walk_all(const struct host_coll *h); /* the whole concatenation */
struct host_walk host_walk_gift(const struct host_coll *h, int32_t member); /* gathers */
uint64_t host_walk_run(const struct host_coll *h, struct host_walk *walk, uint64_t max);
void host_walk_advance(struct host_walk *walk, uint64_t bytes);
/* The walk's next `bytes` of our inputs to `to`. */
void host_walk_copy_in(const struct host_coll *h, struct host_walk *walk, uint64_t bytes,
                       uint8_t *to);

/* host_small.c */
bool host_is_small(const struct host_coll *h);
void host_small_start(struct host_coll *h);
bool host_fits_slot(const struct host_coll *h);
void host_slot_fill(struct host_coll *h);
hvd_status_t host_small_mixed(struct host_coll *h);

/* host_reduce.c */
void host_reduce_start(struct host_coll *h);
void host_reduce_block(struct host_coll *h, const void *const *sources, void *const *targets,
                       int32_t target_count, uint64_t bytes);
void host_reduce_measured(struct host_coll *h);

/* host_staged.c */
void host_staged_copy_in(struct host_coll *h, uint64_t chunk);
void host_staged_begin(struct host_coll *h);
hvd_status_t host_staged_step(struct host_coll *h, struct error *error);

/* host_remote.c */
bool host_remote_reserve(struct host_coll *h);
/* HVD_AGAIN: try again later, nothing was read. */
hvd_status_t host_remote_read(struct host_coll *h, int32_t member, uint8_t *const *to,
                              uint8_t *const *from, const uint64_t *bytes, int32_t count,
                              struct error *error);
hvd_status_t host_remote_step(struct host_coll *h, struct error *error);

/* host_gather.c */
hvd_status_t host_gather_start(struct host_coll *h, struct error *error);

/* host_adasum.c */
hvd_status_t host_adasum_check(const struct host_coll *h, const struct coll *coll,
                               struct error *error);
void host_adasum_start(struct host_coll *h);

#endif
