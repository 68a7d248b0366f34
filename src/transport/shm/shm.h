/* SPDX-License-Identifier: Apache-2.0 */
/* shm.h - ranks on one machine: memfd arenas passed over Unix sockets.
 *
 * Each rank owns one sparse memfd, mapped by every peer on the machine: a header, for every process
 * set a board (below), message and bulk rings from each peer (owned by the receiver), and
 * the arena heap that hvd_alloc() and gradients use. Untouched pages cost nothing, so nothing has
 * to be sized in advance and /dev/shm is not involved. A peer's death is detected by its closed
 * Unix socket.
 *
 * Sleeping: a rank that is about to sleep publishes it in its header; a peer that writes something
 * for it then rings its bell (an eventfd passed with the memfd). While it is awake no system call
 * is made.
 *
 * Boards: one per (rank, process set id), written only by the owner. `phase` only increases; a
 * collective is a sequence of waves: every member publishes phase k, then awaits phase k of all
 * members. Two alternating slots carry the data of a wave: what a rank wrote in wave k may be
 * overwritten in wave k + 2, because by then every member has published k + 1 and so has finished
 * with k.
 *
 * This transport adds one descriptor to `poll_fd`, tagged with shm_transport(): its readiness only
 * means that progress() has something to do.
 *
 * Thread: token holder.  Start reading at shm_create(). */
#ifndef HVD_TRANSPORT_SHM_H
#define HVD_TRANSPORT_SHM_H

#include <stdatomic.h>

#include "base/config.h"
#include "transport/transports.h"

#define SHM_BOARD_HEAD   4096u       /* bytes before the slots */
#define SHM_BOARD_INLINE 48u         /* payload beside the phase word, same cache line */
#define SHM_BOARD_SLOT   (32u << 10) /* bytes of one wave slot: descriptors or one-shot payload */

struct shm_line { /* one cache line, written by the owner only */
    _Atomic uint64_t phase;
    uint8_t inline_bytes[SHM_BOARD_INLINE];
    uint64_t spare;
};
struct shm_board {
    struct shm_line line[2]; /* wave k uses line[k & 1]; line[k & 1].phase == k once published */
    uint8_t pad[SHM_BOARD_HEAD - 2 * sizeof(struct shm_line)];
    uint8_t slot[2][SHM_BOARD_SLOT];
};

struct shm; /* starts with struct transport */

extern const struct transport_row shm_row; /* shm_row.c; its offer is the socket's name */

/* Step 1: own segment, bell and listening Unix socket; fills host_id and the offer of `ret_self`.
 */
hvd_status_t shm_create(const struct os *os, const struct config *config, int32_t rank,
                        struct endpoint *ret_self, struct shm **ret, struct error *error);
/* Step 2: connects to the wanted peers on the same machine among `all` (world order; wanted NULL:
 * all of them), authenticated by the key and bound to the epoch; maps their segments. A peer on
 * this machine whose socket can't be reached is not an error: reaches() returns false for it. Uses
 * poll_fd for its bell and sockets. Blocks at most config->timeout_s. */
hvd_status_t shm_connect(struct shm *shm, const struct endpoint *all, int32_t count,
                         const bool *wanted, const uint8_t key[32], uint64_t epoch, int poll_fd,
                         const struct transport_events *events, struct error *error);

struct transport *shm_transport(struct shm *shm);
uint64_t
shm_page_bytes(const struct shm *shm);   /* of a memory page, which shm_detach() takes whole */
struct shm *shm_of(struct transport *t); /* NULL: it is none, or another transport */

/* For collectives in shared memory. `set` is a process set id. NULL for unreachable peers. */
struct shm_board *shm_board(const struct shm *shm, int32_t peer, int32_t set);
int32_t shm_peer_pid(const struct shm *shm, int32_t peer);
bool shm_is_peer_down(const struct shm *shm, int32_t peer);
uint32_t shm_down_count(const struct shm *shm); /* increases with every peer that goes down */
/* HVD_OK while `peer` is up; else its status, with the cause in `error`. */
hvd_status_t shm_peer_error(const struct shm *shm, int32_t peer, struct error *error);
/* `peer` published invalid data: it is down from now on; events.peer_down follows in progress().
 * Returns `status`. */
hvd_status_t shm_peer_fail(struct shm *shm, int32_t peer, hvd_status_t status, const char *why);

/* Wakes those of `peers` that sleep; to be called after publishing something (with sequentially
 * consistent order) that they may wait for. */
void shm_notify_all(struct shm *shm, const int32_t *peers, int32_t count);
/* Waits for words in shared memory: is_ready() is called before the rank sleeps, so that nothing
 * published just before is missed. It reads with sequentially consistent order. */
struct shm_waiter {
    bool (*is_ready)(const struct shm_waiter *waiter);
    struct shm_waiter *next;
};
void shm_waiter_add(struct shm *shm, struct shm_waiter *waiter);
void shm_waiter_remove(struct shm *shm, struct shm_waiter *waiter);

/* The arena heap of this rank. Addresses are in this process's mapping; offsets are the same for
 * all. */
void *
shm_heap_alloc(struct shm *shm,
               size_t bytes); /* on a page for large, 64-aligned for small; zeroed; any thread */
void shm_heap_free(struct shm *shm, void *ptr); /* returns whole pages to the system; any thread */
/* Makes whole pages of a caller's memory part of the arena in place, and undoes it; the contents
 * are kept. Any thread; no other thread may write to them during the call. */
hvd_status_t shm_register(struct shm *shm, void *ptr, uint64_t bytes, struct error *error);
hvd_status_t shm_unregister(struct shm *shm, void *ptr, struct error *error);
/* For memory of a cancelled collective: a peer may be about to write there and can't be stopped.
 * The pages of [ptr, ptr + bytes) become private in place, keeping their contents. The peer's
 * write then goes to memory of the segment that is never read or used again. The whole block or
 * registered buffer counts as private memory from now on. Memory outside the arena is unchanged.
 * false: no memory for that; peers can still write to it. */
bool shm_detach(struct shm *shm, void *ptr, size_t bytes);
/* Offset of [ptr, ptr + bytes) in this rank's segment; UINT64_MAX if not wholly inside its heap or
 * one registered buffer, or if it was detached. */
uint64_t shm_offset(struct shm *shm, const void *ptr, size_t bytes);
/* Is [offset, offset + bytes) inside `peer`'s heap? Validates offsets from a peer. */
bool shm_is_heap_range(const struct shm *shm, int32_t peer, uint64_t offset, uint64_t bytes);

#endif
