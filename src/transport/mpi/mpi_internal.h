/* SPDX-License-Identifier: Apache-2.0 */
/* mpi_internal.h - what the files of this transport share.
 *
 * Messages: each is one MPI message with tag MPI_TAG_FRAME: a head of FRAME_HEAD bytes (kind, and
 * how many bytes of messages the sender has consumed from us so far), then the text. A sender may
 * have WINDOW_BYTES under way to a peer; heads and FRAME_ACK make room again.
 *
 * Bulk: the transfer n of stream s is the n-th MPI message with tag MPI_TAG_BULK + s, cut into
 * CHUNK_BYTES. Each piece is a `flight`. A receive that was withdrawn before it matched leaves a
 * `forgotten` record, by which what comes for it is thrown away; else the sender, whose send MPI
 * can't withdraw, would wait for ever.
 *
 * Thread: token holder.  Start reading at struct mpi. */
#ifndef HVD_TRANSPORT_MPI_INTERNAL_H
#define HVD_TRANSPORT_MPI_INTERNAL_H

#include "transport/mpi/mpi.h"

#define MPI_TAG_FRAME   1
#define MPI_TAG_BULK    16
#define FRAME_HEAD      16
#define FRAME_MAX       (FRAME_HEAD + TRANSPORT_MESSAGE_MAX)
#define WINDOW_BYTES    (4u << 20)
#define CHUNK_BYTES     (1 << 30)
#define HEARTBEAT_NS    1000000000LL
#define SILENCE_NS      (120LL * 1000000000)
#define CANCEL_NS       (5LL * 1000000000)
#define GOODBYE_NS      (3LL * 1000000000)
#define FORGOTTEN_NS    (60LL * 1000000000)
#define FORGOTTEN_MAX   1024
#define FRAMES_AT_ONCE  64
#define SLOT_CLASSES    3
#define HEARTBEAT_PEERS 64 /* beyond so many, heartbeats are rarer */

enum frame_kind { FRAME_MESSAGE = 1, FRAME_ACK = 2, FRAME_HEARTBEAT = 3, FRAME_GOODBYE = 4 };

struct slot { /* one message on its way out or in; the memory is ours */
    struct slot *next;
    mpi_handle_t request;
    int32_t peer;
    int class;
    size_t bytes;
    bool is_done;
    uint8_t data[];
};

struct flight { /* a piece of bulk that MPI works on */
    struct flight *next;
    mpi_handle_t request;
    struct transport_req *req; /* NULL: nobody waits for it any more */
    uint8_t *scratch;          /* memory of ours, freed at the end; NULL: the caller's */
    int32_t peer;
    int bytes;
    bool is_send;
};

struct forgotten {
    int32_t peer;
    uint32_t stream;
    int64_t until_ns;
};

struct mpi_peer {
    bool is_wanted, has_left;            /* has_left: said goodbye */
    hvd_status_t status;                 /* HVD_OK: up */
    uint64_t sent_bytes, acked_bytes;    /* by us, and of those consumed by the peer */
    uint64_t consumed_bytes, told_bytes; /* of the peer's, and what we told it */
    int64_t heard_ns, sent_ns;
    uint64_t held_turn; /* an earlier message of this peer is not whole yet in this turn */
    struct error why;
    bool is_told;
};

struct mpi {
    struct transport transport;
    const struct mpi_lib *lib;
    mpi_handle_t comm;
    int32_t rank, size;
    int tag_max;
    struct mpi_peer *peers;
    int32_t wanted_count;
    struct slot *sends, **sends_end, *arrivals, **arrivals_end, *free_slots[SLOT_CLASSES];
    int32_t arrival_count;
    struct flight *flights, **flights_end, *free_flights;
    struct forgotten *forgotten;
    int32_t forgotten_count;
    uint64_t turn;
    int64_t now_ns, beat_ns, moved_ns;
    uint64_t messages, bytes;
    bool has_down; /* some peer is down and has not been told */
    bool is_closing, has_lost;
};

/* mpi.c: marks the peer down; told at the end of progress(). The first cause counts. */
void mpi_peer_fail(struct mpi *mpi, int32_t peer, hvd_status_t status, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* The same with what MPI says about `code`. */
void mpi_peer_fail_code(struct mpi *mpi, int32_t peer, const char *call, int code);

/* mpi_message.c */
hvd_status_t mpi_frame_send(struct mpi *mpi, int32_t peer, enum frame_kind kind, const void *bytes,
                            size_t n);
bool mpi_frames_progress(struct mpi *mpi);
void mpi_frames_destroy(struct mpi *mpi);

/* mpi_bulk.c */
hvd_status_t mpi_bulk_send(struct transport *t, int32_t peer, uint32_t stream, const void *bytes,
                           size_t n, struct transport_req *req);
hvd_status_t mpi_bulk_recv(struct transport *t, int32_t peer, uint32_t stream, void *bytes,
                           size_t n, struct transport_req *req);
void mpi_bulk_cancel(struct transport *t, struct transport_req *req);
bool mpi_bulk_progress(struct mpi *mpi);
/* Ends all requests of a peer that is down. */
void mpi_bulk_fail(struct mpi *mpi, int32_t peer);
/* Receives and throws away whatever is there: at the end of a life. */
void mpi_bulk_drain(struct mpi *mpi);
void mpi_bulk_destroy(struct mpi *mpi);

#endif
