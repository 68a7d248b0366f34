/* SPDX-License-Identifier: Apache-2.0 */
/* shm_internal.h - what the files of this folder share: the segment's layout and the objects.
 *
 * Segment of one rank, with the same offsets on every rank; untouched pages cost nothing:
 *
 *     header | boards by process set | rings by local index of the sender | heap ...
 *
 * The local index of a rank is its position among the ranks on its machine, in world order.
 * Everything that a peer may write is read once into private memory and checked before it is used;
 * positions that we own (tails of rings we read, heads of rings we write) also have a private copy.
 *
 * Start reading at struct shm. */
#ifndef HVD_TRANSPORT_SHM_INTERNAL_H
#define HVD_TRANSPORT_SHM_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "transport/shm/shm.h"
#include "wire/handshake.h"

#define SHM_MAGIC         0x314d485344564855ull
#define SHM_LAYOUT        1u
#define SHM_PEERS_MAX     1024u       /* ranks on one machine */
#define SHM_BOARDS_MAX    1024u       /* process set ids share boards modulo this */
#define SHM_UNIT          4096u       /* alignment of everything before the heap */
#define SHM_PAGE_MAX      (64u << 10) /* the largest page size supported */
#define SHM_NAME_MAX      96u         /* of a Unix socket, with its NUL */
#define SHM_MESSAGE_RING  (64u << 10)
#define SHM_BULK_RING     (256u << 10)
#define SHM_MESSAGE_WHOLE (16u << 10) /* longer messages are sent in fragments of this */
#define SHM_BULK_FRAGMENT (32u << 10)
/* No two segments of a process share the address bits that caches use: peers have the color of
 * their local index. */
#define SHM_OWN_COLOR   (OS_COLORS - 1)
#define SHM_CREDITS_MAX 65536u /* receives a peer may have announced that we do not match */

/* --- the segment --- */

struct shm_header {
    uint64_t magic;
    uint32_t layout;
    int32_t rank;
    uint64_t bytes; /* of the whole segment */
    _Alignas(OS_CACHE_LINE) _Atomic uint32_t sleeping;
    _Alignas(OS_CACHE_LINE) _Atomic uint64_t
        heartbeat; /* increases while the owner is alive and not stopped */
    _Alignas(OS_CACHE_LINE) _Atomic uint64_t
        attention[SHM_PEERS_MAX / 64]; /* bit i: local index i wrote */
};

struct shm_ring_words {
    _Alignas(OS_CACHE_LINE) _Atomic uint64_t head; /* written by the sender */
    _Alignas(
        OS_CACHE_LINE) _Atomic uint64_t tail; /* written by the receiver, which owns the memory */
    _Alignas(OS_CACHE_LINE) _Atomic uint32_t want_room;
};

struct shm_rings { /* from one peer */
    struct shm_ring_words message, bulk;
    uint8_t pad[SHM_UNIT - 2 * sizeof(struct shm_ring_words)];
    uint8_t message_bytes[SHM_MESSAGE_RING];
    uint8_t bulk_bytes[SHM_BULK_RING];
};

#define SHM_BOARDS_AT SHM_UNIT
#define SHM_RINGS_AT  (SHM_BOARDS_AT + (uint64_t)SHM_BOARDS_MAX * sizeof(struct shm_board))
#define SHM_RINGS_END (SHM_RINGS_AT + (uint64_t)SHM_PEERS_MAX * sizeof(struct shm_rings))
#define SHM_HEAP_AT   ((SHM_RINGS_END + SHM_PAGE_MAX - 1) / SHM_PAGE_MAX * SHM_PAGE_MAX)

/* --- rings: both ends of one direction, as the process at that end sees it --- */

struct ring_end {
    struct shm_ring_words *words;
    uint8_t *bytes;
    uint32_t size; /* power of two */
    uint64_t at;   /* our own position: head of a writer, tail of a reader */
};

struct shm_credit { /* a receive that the peer has posted */
    struct shm_credit *next;
    uint64_t bytes, stream;
    uint32_t ticket;
};

struct req_list {
    struct transport_req *first, **last;
};

struct shm_outbox { /* the rest of a long message */
    uint8_t *bytes;
    size_t capacity, size, sent;
};

struct shm_assembly { /* a long incoming message */
    uint8_t *bytes;
    size_t capacity, size, total;
};

struct shm_peer {
    int32_t rank;
    int32_t pid; /* in our own pid namespace; 0: not visible */
    int32_t local;
    bool is_up;
    bool is_down_told;
    uint32_t down_number; /* its position in the order of failures */
    struct error down;    /* why it is down */
    char host_name[64];
    int fd;   /* its Unix socket, -1 */
    int bell; /* -1 */
    uint8_t *segment;
    uint64_t bytes;
    struct ring_end message_in, message_out, bulk_in, bulk_out;
    struct shm_outbox outbox;
    struct shm_assembly assembly;
    struct req_list sends, recvs;
    struct shm_credit *credits; /* oldest ticket first */
    uint32_t credit_count;
    uint32_t next_ticket;
    uint32_t *cancels; /* tickets to withdraw, not sent yet */
    uint32_t cancel_count, cancel_capacity;
    uint64_t heartbeat; /* as last seen, and when it last increased */
    int64_t heard_ns;
};

/* --- the heap's private bookkeeping, see shm_heap.c --- */

struct heap_extent {
    uint64_t at, bytes; /* offset in the segment */
    bool is_used, is_dirty;
    bool is_retired; /* a peer may still write there: never reused, see shm_detach() */
    struct heap_slab *slab;
};
#define HEAP_SLAB_BYTES (64u << 10)
struct heap_slab { /* equal small blocks */
    struct heap_slab *next;
    uint64_t at;
    uint32_t unit, used, count;
    bool is_retired;
    uint64_t free_bits[HEAP_SLAB_BYTES / 64 / 64];
};
struct heap_range { /* a caller's buffer, see shm_register.c */
    uintptr_t at;
    uint64_t bytes, offset;
    bool is_retired;
};
#define HEAP_CLASSES 6
struct shm_heap {
    pthread_mutex_t lock;
    bool is_ready;
    struct heap_extent *extents; /* by offset, without gaps */
    size_t count, capacity;
    struct heap_slab *slabs[HEAP_CLASSES]; /* with room first */
    struct heap_range *ranges;             /* by address */
    size_t range_count, range_capacity;
    _Atomic bool has_ranges; /* there has been one: otherwise a lookup skips the lock */
    _Atomic bool has_retired;
};

struct shm {
    struct transport base;
    const struct config *config;
    int32_t rank;
    int32_t world; /* entries of by_rank */
    int32_t local; /* own local index */
    int32_t peer_count;
    struct shm_peer *peers; /* by local index, our own entry unused */
    int32_t *by_rank;       /* local index of a world rank, -1 */
    int segment_fd, bell, listener, inner_poll, outer_poll;
    uint8_t *segment;
    uint64_t bytes;
    uint64_t page; /* bytes of a page, the unit of the heap */
    struct shm_header *header;
    struct shm_heap heap;
    uint64_t todo[SHM_PEERS_MAX / 64]; /* peers with local work */
    uint8_t *inbox;                    /* a whole message, where the peer can't change it */
    int64_t checked_ns;                /* when links were last checked */
    uint32_t calls;
    int32_t check_next; /* peer whose process is checked next */
    bool must_check;
    uint32_t downs;
    struct shm_waiter *waiters;
    uint64_t messages, moved_bytes;
};

/* shm_ring.c */
void shm_peer_attach(struct shm *shm, struct shm_peer *peer); /* after both segments are mapped */
bool shm_peer_progress(struct shm *shm, struct shm_peer *peer);
void shm_peer_release(struct shm *shm, struct shm_peer *peer, hvd_status_t status);
hvd_status_t shm_message_send(struct transport *t, int32_t peer, const void *bytes, size_t n);
hvd_status_t shm_bulk_send(struct transport *t, int32_t peer, uint64_t stream, const void *bytes,
                           size_t n, struct transport_req *req);
hvd_status_t shm_bulk_recv(struct transport *t, int32_t peer, uint64_t stream, void *bytes,
                           size_t n, struct transport_req *req);
void shm_bulk_cancel(struct transport *t, struct transport_req *req);

/* shm_sleep.c */
void shm_attention(struct shm *shm, struct shm_peer *peer); /* we wrote something for it */
void shm_wake(struct shm *shm, struct shm_peer *peer);
bool shm_links_check(struct shm *shm, int64_t now_ns);
int64_t shm_last_heard_ns(struct transport *t, int32_t rank, int64_t now_ns);
bool shm_sleep_begin(struct transport *t);
void shm_sleep_end(struct transport *t);
void shm_notify(struct transport *t, int32_t peer);

/* shm.c */
struct shm_peer *shm_peer_of(const struct shm *shm, int32_t rank); /* NULL: not on this machine */
void shm_todo(struct shm *shm, const struct shm_peer *peer);

/* shm_heap.c */
int shm_heap_init(struct shm *shm);
void shm_heap_destroy(struct shm *shm);
void shm_segment_unmap(struct shm *shm); /* except blocks that are still in use */
/* Whole pages, the lock held; UINT64_MAX: no room. */
uint64_t shm_extent_take(struct shm *shm, uint64_t bytes);
void shm_extent_give(struct shm *shm, uint64_t offset);
uint64_t shm_heap_offset(const struct shm *shm, const void *ptr, size_t bytes);

/* shm_register.c */
uint64_t shm_range_offset(struct shm *shm, const void *ptr, size_t bytes);
bool shm_range_detach(struct shm *shm, const void *ptr, size_t bytes);
void shm_extent_retire(struct shm *shm, uint64_t offset); /* the lock is held */
void shm_unregister_all(struct shm *shm);

/* shm_row.c */
extern const struct transport_memory shm_memory;

#endif
