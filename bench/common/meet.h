/* SPDX-License-Identifier: Apache-2.0 */
/* meet.h - ranks of one benchmark meet in a page of shared memory that belongs to nobody's library.
 *
 * A barrier, the maximum over ranks of a time, and an exchange of small records. Measured libraries
 * are thus never used to synchronise their own measurement.
 * Thread: one per rank.  Owner: the program.  Start reading at meet_barrier(). */
#ifndef HVD_BENCH_MEET_H
#define HVD_BENCH_MEET_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MEET_RANKS_MAX  256
#define MEET_BLOB_BYTES 512

struct meet_slot { /* written by its rank only */
    double number;
    uint8_t blob[MEET_BLOB_BYTES];
    uint8_t pad[64 - (sizeof(double) + MEET_BLOB_BYTES) % 64];
};

struct meet_page {
    _Atomic uint32_t arrived;
    uint8_t pad_arrived[60];
    _Atomic uint32_t generation;
    uint8_t pad_generation[60];
    struct meet_slot slots[2][MEET_RANKS_MAX];
};

struct meet {
    struct meet_page *page;
    int rank, size;
    bool is_crowded; /* more ranks than cores: yield instead of spinning */
    unsigned turn;   /* slots are used by turns, so that a fast rank does not overwrite */
};

/* Memory for the page; `*ret_fd` (may be NULL) lets other processes map it. NULL: no memory. */
struct meet_page *meet_page_create(int *ret_fd);
struct meet_page *meet_page_open(int pid, int fd); /* of another process of the same user */
void meet_init(struct meet *m, struct meet_page *page, int rank, int size);

void meet_barrier(struct meet *m);
double meet_max(struct meet *m, double mine); /* equal on all ranks */
void meet_exchange(struct meet *m, const void *mine, size_t bytes, void *ret_all);

/* Nothing to do at the `turn`-th look: pause, or let another rank have the core. */
void meet_idle(bool is_crowded, unsigned turn);
int meet_core_count(void);
double now_s(void);

#endif
