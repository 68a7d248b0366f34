/* SPDX-License-Identifier: Apache-2.0 */
/* mpi_internal.h - what the files of this transport share.
 *
 * Messages: each is one MPI message with tag MPI_TAG_FRAME: a header of FRAME_HEAD bytes (kind, and
 * how many message bytes the sender has consumed from us so far), then the text. A sender may have
 * WINDOW_BYTES in transit to a peer; headers and FRAME_ACK open the window again.
 *
 * Bulk: a transfer is one MPI message, or several of CHUNK_BYTES; each is a `flight`. MPI's tags
 * are too short for the number of a stream, so a tag contains the process set, some bits of its
 * life and turn, and the channel (mpi_bulk_tag()). That is enough: within a turn all members run
 * the same collectives, and cancelling one of them ends the turn for all, so that messages with
 * equal tags arrive in the order in which they are awaited.
 * Messages left over from a turn that has ended are received and discarded by means of a
 * `forgotten` record, for a cancelled receive or for the whole turn. Otherwise they would match a
 * later turn with the same tag, and the sender, whose send MPI can't cancel, would wait forever.
 *
 * Thread: token holder.  Start reading at struct mpi. */
#ifndef HVD_TRANSPORT_MPI_INTERNAL_H
#define HVD_TRANSPORT_MPI_INTERNAL_H

#include "transport/mpi/mpi.h"
#include "transport/streams.h"

#define MPI_TAG_FRAME     1
#define MPI_TAG_BULK      16
#define FRAME_HEAD        16
#define FRAME_MAX         (FRAME_HEAD + TRANSPORT_MESSAGE_MAX)
#define WINDOW_BYTES      (4u << 20)
#define CHUNK_BYTES       (1 << 30)
#define SILENCE_NS        (120LL * 1000000000)
#define CANCEL_NS         (5LL * 1000000000)
#define GOODBYE_NS        (3LL * 1000000000)
#define FORGOTTEN_NS      (60LL * 1000000000)
#define FORGOTTEN_MAX     1024
#define FORGOTTEN_POLL_NS (1000000LL) /* between two polls for leftovers of a turn */
#define FRAMES_AT_ONCE    64
#define SLOT_CLASSES      3
#define HEARTBEAT_PEERS   64 /* with more peers, heartbeats are less frequent */

enum frame_kind { FRAME_MESSAGE = 1, FRAME_ACK = 2, FRAME_HEARTBEAT = 3, FRAME_GOODBYE = 4 };

struct slot { /* one outgoing or incoming message; the memory is ours */
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
    struct transport_req *req; /* NULL: no longer awaited */
    uint8_t *scratch;          /* our own memory, freed at the end; NULL: the caller's */
    int32_t peer;
    int bytes;
    bool is_send;
};

struct forgotten {
    int32_t peer; /* -1: all */
    int tag;      /* the first of `tag_count` */
    int tag_count;
    int64_t until_ns;
};

struct mpi_peer {
    bool is_wanted, has_left;            /* has_left: said goodbye */
    hvd_status_t status;                 /* HVD_OK: up */
    uint64_t sent_bytes, acked_bytes;    /* by us, and of those consumed by the peer */
    uint64_t consumed_bytes, told_bytes; /* of the peer's, and how many we acknowledged */
    int64_t heard_ns, sent_ns;
    uint64_t held_turn; /* an earlier message of this peer is not complete yet in this turn */
    struct error why;
    bool is_told;
};

struct mpi {
    struct transport transport;
    const struct mpi_lib *lib;
    const struct config *config; /* the owner's: how often to give signs of life */
    mpi_handle_t parent;         /* of the job */
    mpi_handle_t comm;           /* ours alone; comm_null until mpi_connect() */
    int32_t rank, size;
    int tag_max;
    struct mpi_peer *peers;
    int32_t wanted_count;
    struct slot *sends, **sends_end, *arrivals, **arrivals_end, *free_slots[SLOT_CLASSES];
    int32_t arrival_count;
    struct flight *flights, **flights_end, *free_flights;
    struct forgotten *forgotten;
    int32_t forgotten_count;
    int64_t forgotten_next_ns; /* the next poll for those of whole turns */
    struct streams streams;
    uint64_t turn;
    int64_t now_ns, beat_ns, moved_ns, connect_ns;
    uint64_t messages, bytes;
    bool has_down; /* some peer is down and this has not been reported */
    bool is_closing, has_lost;
};

/* mpi.c: marks the peer down; reported at the end of progress(). The first cause is kept. */
void mpi_peer_fail(struct mpi *mpi, int32_t peer, hvd_status_t status, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* The same with MPI's text for `code`. */
void mpi_peer_fail_code(struct mpi *mpi, int32_t peer, const char *call, int code);

/* mpi_message.c */
hvd_status_t mpi_frame_send(struct mpi *mpi, int32_t peer, enum frame_kind kind, const void *bytes,
                            size_t n);
bool mpi_frames_progress(struct mpi *mpi);
void mpi_frames_destroy(struct mpi *mpi);

/* mpi_bulk.c */
hvd_status_t mpi_bulk_send(struct transport *t, int32_t peer, uint64_t stream, const void *bytes,
                           size_t n, struct transport_req *req);
hvd_status_t mpi_bulk_recv(struct transport *t, int32_t peer, uint64_t stream, void *bytes,
                           size_t n, struct transport_req *req);
void mpi_bulk_cancel(struct transport *t, struct transport_req *req);
void mpi_bulk_open(struct transport *t, int32_t slot, uint64_t first);
void mpi_bulk_close(struct transport *t, uint64_t first);
/* The tag of a stream; -1: MPI's tags are too few. */
int mpi_bulk_tag(int tag_max, int32_t slot, uint64_t stream);
bool mpi_bulk_progress(struct mpi *mpi);
/* Fails all requests of a peer that is down. */
void mpi_bulk_fail(struct mpi *mpi, int32_t peer);
/* Receives and discards everything: at the end of a life. */
void mpi_bulk_drain(struct mpi *mpi);
void mpi_bulk_destroy(struct mpi *mpi);

#endif
