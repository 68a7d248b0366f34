/* SPDX-License-Identifier: Apache-2.0 */
/* mpi_bulk.c - tensor bytes: MPI moves them straight between the callers' buffers.
 *
 * Thread: token holder.  Owner: struct mpi.  Blocks: mpi_bulk_cancel() only, until MPI releases the
 * memory, at most CANCEL_NS. Invariant: a completed request is in no flight, so its owner owns its
 * memory. Start reading at post() and mpi_bulk_progress(). */
#include <string.h>

#include "transport/mpi/mpi_internal.h"

static struct flight *flight_take(struct mpi *mpi)
{
    struct flight *flight = mpi->free_flights;
    if (flight != NULL)
        mpi->free_flights = flight->next;
    else
        flight = os_alloc(mpi->transport.os, sizeof *flight);
    if (flight != NULL)
        memset(flight, 0, sizeof *flight);
    return flight;
}

static void flight_add(struct mpi *mpi, struct flight *flight)
{
    *mpi->flights_end = flight;
    mpi->flights_end = &flight->next;
}

/* Takes the flight at `at` out of the list. */
static void flight_end(struct mpi *mpi, struct flight **at)
{
    struct flight *flight = *at;
    *at = flight->next;
    if (mpi->flights_end == &flight->next)
        mpi->flights_end = at;
    os_free(mpi->transport.os, flight->scratch);
    flight->next = mpi->free_flights;
    mpi->free_flights = flight;
}

/* ---- tags ---- */

/*     | slot: 8 bits | life and turn: all that is left | channel: 5 bits |
 * Process sets that exist at the same time differ in their slot. The lives of one slot differ in
 * their number, its turns by an odd step, so that neighbours stay apart. */
int mpi_bulk_tag(int tag_max, int32_t slot, uint64_t stream)
{
    const int fixed = 8 + STREAM_CHANNEL_BITS;
    int bits = 0;
    while (bits < 30 && (int64_t)MPI_TAG_BULK + (1ll << (bits + 1)) - 1 <= tag_max)
        bits++;
    if (bits <= fixed || slot < 0 || slot > UINT8_MAX)
        return -1;
    uint32_t life = (uint32_t)(stream >> STREAM_LIFE_AT), turn = (uint32_t)(stream >> 32) & 0xffff;
    uint32_t step = 1u << (bits - fixed) / 2 | 1u;
    uint32_t number = (life + turn * step) & ((1u << (bits - fixed)) - 1);
    uint32_t channel = (uint32_t)stream & ((1u << STREAM_CHANNEL_BITS) - 1);
    uint32_t high = (uint32_t)slot << (bits - fixed) | number;
    return MPI_TAG_BULK + (int)(high << STREAM_CHANNEL_BITS | channel);
}

static int tag_of(const struct mpi *mpi, uint64_t stream)
{
    int32_t slot = streams_slot(&mpi->streams, stream);
    if (slot >= 0)
        return mpi_bulk_tag(mpi->tag_max, slot, stream);
    bool fits = stream <= (uint64_t)(mpi->tag_max - MPI_TAG_BULK); /* of no process set */
    return fits ? MPI_TAG_BULK + (int)stream : -1;
}

/* ---- posting ---- */

static hvd_status_t post_piece(struct mpi *mpi, int tag, struct transport_req *req, size_t at,
                               int bytes)
{
    const struct mpi_lib *lib = mpi->lib;
    struct flight *flight = flight_take(mpi);
    if (flight == NULL)
        return HVD_ERR_NO_MEMORY;
    flight->req = req;
    flight->peer = req->peer;
    flight->bytes = bytes;
    flight->is_send = req->send != NULL || req->recv == NULL;
    mpi_handle_t type = lib->types[MPI_TYPE_BYTE];
    int code = flight->is_send
                   ? lib->abi->isend(lib, req->send != NULL ? req->send + at : NULL, bytes, type,
                                     req->peer, tag, mpi->comm, &flight->request)
                   : lib->abi->irecv(lib, req->recv + at, bytes, type, req->peer, tag, mpi->comm,
                                     &flight->request);
    if (code != 0) {
        flight->next = mpi->free_flights;
        mpi->free_flights = flight;
        mpi_peer_fail_code(mpi, req->peer, flight->is_send ? "MPI_Isend" : "MPI_Irecv", code);
        return mpi->peers[req->peer].status;
    }
    flight_add(mpi, flight);
    return HVD_OK;
}

static hvd_status_t post(struct mpi *mpi, int32_t peer, uint64_t stream, const void *send,
                         void *recv, size_t n, struct transport_req *req)
{
    hvd_status_t status = HVD_OK;
    static uint8_t nowhere; /* an empty receive must still be distinguishable from a send */
    if (!mpi->peers[peer].is_wanted)
        return HVD_ERR_LINK;
    if (mpi->peers[peer].status != HVD_OK)
        return mpi->peers[peer].status;
    int tag = tag_of(mpi, stream);
    if (tag < 0)
        return HVD_ERR_LIMIT;
    *req = (struct transport_req){.status = HVD_IN_PROGRESS,
                                  .send = send,
                                  .recv = send == NULL && recv == NULL ? &nowhere : recv,
                                  .bytes = n,
                                  .stream = stream,
                                  .mark = (uint32_t)tag,
                                  .peer = peer};
    size_t at = 0;
    do {
        size_t piece = n - at < CHUNK_BYTES ? n - at : CHUNK_BYTES;
        status = post_piece(mpi, tag, req, at, (int)piece);
        at += piece;
    } while (status == HVD_OK && at < n);
    if (status != HVD_OK && at > CHUNK_BYTES)
        mpi_bulk_cancel(&mpi->transport, req);
    if (status == HVD_OK)
        mpi->bytes += n;
    return status;
}

hvd_status_t mpi_bulk_send(struct transport *t, int32_t peer, uint64_t stream, const void *bytes,
                           size_t n, struct transport_req *req)
{
    static const uint8_t nothing;
    return post((struct mpi *)t, peer, stream, bytes != NULL ? bytes : &nothing, NULL, n, req);
}

hvd_status_t mpi_bulk_recv(struct transport *t, int32_t peer, uint64_t stream, void *bytes,
                           size_t n, struct transport_req *req)
{
    return post((struct mpi *)t, peer, stream, NULL, bytes, n, req);
}

/* ---- completing ---- */

static void flight_done(struct mpi *mpi, const struct flight *flight, int count)
{
    struct transport_req *req = flight->req;
    mpi->peers[flight->peer].heard_ns =
        flight->is_send ? mpi->peers[flight->peer].heard_ns : mpi->now_ns;
    if (req == NULL)
        return;
    if (!flight->is_send && count != flight->bytes) {
        mpi_peer_fail(mpi, flight->peer, HVD_ERR_CORRUPT, "it sent %d bytes where %d were expected",
                      count, flight->bytes);
        req->status = HVD_ERR_CORRUPT;
        return;
    }
    req->done += (size_t)flight->bytes;
    if (req->done == req->bytes && req->status == HVD_IN_PROGRESS)
        req->status = HVD_OK;
}

/* Tests one flight; true: it has completed and was removed from the list. */
static bool flight_look(struct mpi *mpi, struct flight **at)
{
    const struct mpi_lib *lib = mpi->lib;
    struct flight *flight = *at;
    struct mpi_status status = {0};
    bool is_done = false;
    int code = lib->abi->test(lib, &flight->request, lib->types[MPI_TYPE_BYTE], &is_done, &status);
    if (code != 0) {
        mpi_peer_fail_code(mpi, flight->peer, flight->is_send ? "MPI_Isend" : "MPI_Irecv", code);
        if (flight->req != NULL)
            flight->req->status = mpi->peers[flight->peer].status;
        flight_end(mpi, at);
        return true;
    }
    if (!is_done)
        return false;
    if (!status.is_cancelled)
        flight_done(mpi, flight, status.count);
    flight_end(mpi, at);
    return true;
}

/* ---- messages that are no longer awaited ---- */

static void forget(struct mpi *mpi, int32_t peer, int tag, int tag_count)
{
    if (tag < 0)
        return;
    if (mpi->forgotten == NULL)
        mpi->forgotten = os_alloc(mpi->transport.os, FORGOTTEN_MAX * sizeof *mpi->forgotten);
    if (mpi->forgotten == NULL)
        return;
    if (mpi->forgotten_count == FORGOTTEN_MAX) { /* the oldest is the least likely to be needed */
        mpi->forgotten_count--;
        memmove(mpi->forgotten, mpi->forgotten + 1,
                (size_t)mpi->forgotten_count * sizeof *mpi->forgotten);
    }
    mpi->forgotten[mpi->forgotten_count++] =
        (struct forgotten){.peer = peer,
                           .tag = tag,
                           .tag_count = tag_count,
                           .until_ns = os_now_ns(mpi->transport.os) + FORGOTTEN_NS};
    mpi->forgotten_next_ns = 0;
}

static void forgotten_drop(struct mpi *mpi, int32_t at)
{
    mpi->forgotten_count--;
    memmove(&mpi->forgotten[at], &mpi->forgotten[at + 1],
            (size_t)(mpi->forgotten_count - at) * sizeof *mpi->forgotten);
}

/* Tags of a turn that begins are awaited again. */
static void unforget(struct mpi *mpi, int tag, int tag_count)
{
    for (int32_t i = 0; i < mpi->forgotten_count;) {
        const struct forgotten *f = &mpi->forgotten[i];
        if (f->tag < tag + tag_count && tag < f->tag + f->tag_count)
            forgotten_drop(mpi, i);
        else
            i++;
    }
}

static void turn_forget(struct mpi *mpi, uint64_t first)
{
    if (streams_slot(&mpi->streams, first) >= 0)
        forget(mpi, -1, tag_of(mpi, first), 1 << STREAM_CHANNEL_BITS);
}

/* Receives one message with this tag into our own memory, if there is one. */
static bool swallow(struct mpi *mpi, int from, int tag)
{
    const struct mpi_lib *lib = mpi->lib;
    bool is_found = false;
    mpi_handle_t message = lib->message_null;
    struct mpi_status status;
    int code = lib->abi->improbe(lib, from, tag, mpi->comm, &is_found, &message, &status);
    if (code != 0 || !is_found)
        return false;
    struct flight *flight = flight_take(mpi);
    if (flight == NULL)
        return false;
    flight->scratch = os_alloc(mpi->transport.os, (size_t)status.count + 1);
    flight->peer = status.source;
    flight->bytes = status.count;
    if (flight->scratch != NULL &&
        lib->abi->imrecv(lib, flight->scratch, status.count, lib->types[MPI_TYPE_BYTE], &message,
                         &flight->request) == 0) {
        flight_add(mpi, flight);
        return true;
    }
    os_free(mpi->transport.os, flight->scratch);
    flight->next = mpi->free_flights;
    mpi->free_flights = flight;
    return false;
}

/* One message for a cancelled receive, or all that there are for a turn. */
static bool forgotten_take(struct mpi *mpi, const struct forgotten *f)
{
    if (f->peer >= 0)
        return swallow(mpi, f->peer, f->tag);
    bool has_moved = false;
    for (int i = 0; i < f->tag_count; i++)
        while (swallow(mpi, mpi->lib->any_source, f->tag + i))
            has_moved = true;
    return has_moved;
}

static bool forgotten_look(struct mpi *mpi, int64_t now_ns)
{
    bool has_moved = false, is_time = now_ns >= mpi->forgotten_next_ns;
    if (is_time)
        mpi->forgotten_next_ns = now_ns + FORGOTTEN_POLL_NS;
    for (int32_t i = 0; i < mpi->forgotten_count;) {
        const struct forgotten *f = &mpi->forgotten[i];
        bool is_single = f->peer >= 0;
        bool is_found = (is_single || is_time) && forgotten_take(mpi, f);
        bool is_down = is_single && mpi->peers[f->peer].status != HVD_OK;
        has_moved |= is_found;
        if ((is_single && is_found) || is_down || now_ns > f->until_ns)
            forgotten_drop(mpi, i);
        else
            i++;
    }
    return has_moved;
}

bool mpi_bulk_progress(struct mpi *mpi)
{
    bool has_moved = false;
    for (struct flight **at = &mpi->flights; *at != NULL;) {
        if (flight_look(mpi, at))
            has_moved = true;
        else
            at = &(*at)->next;
    }
    if (mpi->forgotten_count > 0)
        has_moved |= forgotten_look(mpi, mpi->now_ns);
    return has_moved;
}

/* ---- withdrawing ---- */

static bool is_in_flight(const struct mpi *mpi, const struct transport_req *req)
{
    for (const struct flight *f = mpi->flights; f != NULL; f = f->next)
        if (f->req == req)
            return true;
    return false;
}

/* MPI can cancel receives that have not matched; everything else must be waited for, and the peer,
 * which may be cancelling too, needs us to receive what is in transit. */
static void withdraw(struct mpi *mpi, const struct transport_req *req)
{
    const struct mpi_lib *lib = mpi->lib;
    for (struct flight **at = &mpi->flights; *at != NULL;) {
        struct flight *flight = *at;
        struct mpi_status status = {0};
        bool is_done = false;
        if (flight->req == req && !flight->is_send)
            lib->abi->cancel(lib, &flight->request);
        int code = flight->req == req ? lib->abi->test(lib, &flight->request,
                                                       lib->types[MPI_TYPE_BYTE], &is_done, &status)
                                      : 0;
        if (code == 0 && !is_done) {
            at = &flight->next;
            continue;
        }
        bool is_owed = code == 0 && status.is_cancelled;
        flight_end(mpi, at);
        if (is_owed && !mpi->is_closing)
            forget(mpi, req->peer, (int)req->mark, 1);
    }
}

void mpi_bulk_cancel(struct transport *t, struct transport_req *req)
{
    struct mpi *mpi = (struct mpi *)t;
    const struct os *os = t->os;
    int64_t start_ns = os_now_ns(os), now_ns = start_ns;
    if (req->status != HVD_IN_PROGRESS)
        return;
    for (int round = 0; now_ns - start_ns < CANCEL_NS; round++) {
        withdraw(mpi, req);
        forgotten_look(mpi, now_ns);
        if (!is_in_flight(mpi, req) &&
            round > 8) /* messages that were in transit may arrive only now */
            break;
        if (round > 1000)
            os->yield(os->ctx);
        now_ns = os_now_ns(os);
    }
    req->status = HVD_ERR_ABORTED;
    if (!is_in_flight(mpi, req))
        return;
    for (struct flight *f = mpi->flights; f != NULL; f = f->next)
        if (f->req == req)
            f->req = NULL;
    mpi_peer_fail(mpi, req->peer, HVD_ERR_PEER_HUNG,
                  "a transfer could not be withdrawn within %lld s",
                  (long long)(CANCEL_NS / 1000000000));
}

/* ---- lives ---- */

void mpi_bulk_open(struct transport *t, int32_t slot, uint64_t first)
{
    struct mpi *mpi = (struct mpi *)t;
    uint64_t before = streams_first(&mpi->streams, first);
    if (before != first)
        turn_forget(mpi, before);
    streams_open(&mpi->streams, slot, first);
    unforget(mpi, tag_of(mpi, first), 1 << STREAM_CHANNEL_BITS);
}

void mpi_bulk_close(struct transport *t, uint64_t first)
{
    struct mpi *mpi = (struct mpi *)t;
    turn_forget(mpi, first);
    streams_close(&mpi->streams, first);
}

void mpi_bulk_fail(struct mpi *mpi, int32_t peer)
{
    const struct mpi_lib *lib = mpi->lib;
    for (struct flight **at = &mpi->flights; *at != NULL;) {
        struct flight *flight = *at;
        if (flight->peer != peer) {
            at = &flight->next;
            continue;
        }
        bool is_done = false;
        if (!flight->is_send)
            lib->abi->cancel(lib, &flight->request);
        int code = lib->abi->test(lib, &flight->request, 0, &is_done, NULL);
        if (flight->req != NULL && flight->req->status == HVD_IN_PROGRESS)
            flight->req->status = mpi->peers[peer].status;
        flight->req = NULL;
        if (code != 0 || is_done) {
            flight_end(mpi, at);
            continue;
        }
        at = &flight->next;
    }
}

/* ---- closing ---- */

void mpi_bulk_drain(struct mpi *mpi)
{
    while (swallow(mpi, mpi->lib->any_source, mpi->lib->any_tag)) {}
}

void mpi_bulk_destroy(struct mpi *mpi)
{
    const struct os *os = mpi->transport.os;
    while (mpi->flights != NULL) {
        struct flight *flight = mpi->flights;
        mpi->flights = flight->next;
        bool is_done = false;
        if (!flight->is_send)
            mpi->lib->abi->cancel(mpi->lib, &flight->request);
        mpi->lib->abi->test(mpi->lib, &flight->request, 0, &is_done, NULL);
        if (is_done) /* else MPI still has the memory */
            os_free(os, flight->scratch);
        os_free(os, flight);
    }
    while (mpi->free_flights != NULL) {
        struct flight *flight = mpi->free_flights;
        mpi->free_flights = flight->next;
        os_free(os, flight);
    }
    os_free(os, mpi->forgotten);
}
