/* SPDX-License-Identifier: Apache-2.0 */
/* mpi_message.c - whole messages in order, with a limit on unread bytes; heartbeats, goodbyes.
 *
 * Thread: token holder.  Owner: struct mpi.  Blocks: never.  Invariant: messages of one peer are
 * delivered in the order in which MPI matched them, each once. Start reading at mpi_frame_send()
 * and mpi_frames_progress(). */
#include <string.h>

#include "base/codec.h"
#include "transport/mpi/mpi_internal.h"

static const size_t slot_bytes[SLOT_CLASSES] = {1u << 12, 1u << 16, FRAME_MAX};

static struct slot *slot_take(struct mpi *mpi, size_t bytes)
{
    int class = 0;
    while (class < SLOT_CLASSES - 1 && slot_bytes[class] < bytes)
        class ++;
    struct slot *slot = mpi->free_slots[class];
    if (slot != NULL)
        mpi->free_slots[class] = slot->next;
    else
        slot = os_alloc(mpi->transport.os, sizeof *slot + slot_bytes[class]);
    if (slot == NULL)
        return NULL;
    slot->next = NULL;
    slot->class = class;
    slot->bytes = bytes;
    slot->is_done = false;
    return slot;
}

static void slot_give(struct mpi *mpi, struct slot *slot)
{
    slot->next = mpi->free_slots[slot->class];
    mpi->free_slots[slot->class] = slot;
}

/* ---- out ---- */

hvd_status_t mpi_frame_send(struct mpi *mpi, int32_t peer, enum frame_kind kind, const void *bytes,
                            size_t n)
{
    const struct mpi_lib *lib = mpi->lib;
    struct mpi_peer *p = &mpi->peers[peer];
    struct slot *slot = slot_take(mpi, FRAME_HEAD + n);
    struct writer w;
    if (slot == NULL)
        return HVD_AGAIN;
    writer_init(&w, slot->data, FRAME_HEAD);
    put_u32(&w, kind);
    put_u32(&w, 0);
    put_u64(&w, p->consumed_bytes);
    if (n > 0)
        memcpy(slot->data + FRAME_HEAD, bytes, n);
    slot->peer = peer;
    int code = lib->abi->isend(lib, slot->data, (int)slot->bytes, lib->types[MPI_TYPE_BYTE], peer,
                               MPI_TAG_FRAME, mpi->comm, &slot->request);
    if (code != 0) {
        slot_give(mpi, slot);
        mpi_peer_fail_code(mpi, peer, "MPI_Isend", code);
        return p->status;
    }
    *mpi->sends_end = slot;
    mpi->sends_end = &slot->next;
    p->told_bytes = p->consumed_bytes;
    p->sent_ns = mpi->now_ns;
    return HVD_OK;
}

static bool sends_progress(struct mpi *mpi)
{
    const struct mpi_lib *lib = mpi->lib;
    bool has_moved = false;
    for (struct slot **at = &mpi->sends; *at != NULL;) {
        struct slot *slot = *at;
        bool is_done = false;
        int code = lib->abi->test(lib, &slot->request, 0, &is_done, NULL);
        if (code != 0)
            mpi_peer_fail_code(mpi, slot->peer, "MPI_Test", code);
        if (!is_done && code == 0) {
            at = &slot->next;
            continue;
        }
        *at = slot->next;
        if (mpi->sends_end == &slot->next)
            mpi->sends_end = at;
        slot_give(mpi, slot);
        has_moved = true;
    }
    return has_moved;
}

static void acks_send(struct mpi *mpi)
{
    for (int32_t i = 0; i < mpi->size; i++) {
        struct mpi_peer *p = &mpi->peers[i];
        if (p->is_wanted && p->status == HVD_OK && !p->has_left &&
            p->consumed_bytes - p->told_bytes >= WINDOW_BYTES / 4)
            mpi_frame_send(mpi, i, FRAME_ACK, NULL, 0);
    }
}

static void heartbeats_send(struct mpi *mpi)
{
    int64_t beat_ns = config_beat_ns(mpi->config);
    int64_t interval_ns = beat_ns * (1 + mpi->wanted_count / HEARTBEAT_PEERS);
    if (mpi->now_ns - mpi->beat_ns < beat_ns / 4)
        return;
    mpi->beat_ns = mpi->now_ns;
    for (int32_t i = 0; i < mpi->size; i++) {
        struct mpi_peer *p = &mpi->peers[i];
        if (!p->is_wanted || p->status != HVD_OK || p->has_left)
            continue;
        if (mpi->now_ns - p->sent_ns >= interval_ns)
            mpi_frame_send(mpi, i, FRAME_HEARTBEAT, NULL, 0);
        if (mpi->now_ns - p->heard_ns >= SILENCE_NS * (1 + mpi->wanted_count / HEARTBEAT_PEERS))
            mpi_peer_fail(mpi, i, HVD_ERR_PEER_DEAD, "nothing was heard of it for %lld s",
                          (long long)((mpi->now_ns - p->heard_ns) / 1000000000));
    }
}

/* ---- in ---- */

/* MPI has matched a message: begins to receive it. False: no memory, the message waits. */
static bool arrival_begin(struct mpi *mpi, mpi_handle_t message, const struct mpi_status *status)
{
    const struct mpi_lib *lib = mpi->lib;
    struct slot *slot = slot_take(mpi, (size_t)status->count);
    int32_t peer = status->source;
    if (slot == NULL) {
        mpi_peer_fail(mpi, peer, HVD_ERR_NO_MEMORY, "no memory for its message of %d bytes",
                      status->count);
        return false;
    }
    slot->peer = peer;
    int code = lib->abi->imrecv(lib, slot->data, status->count, lib->types[MPI_TYPE_BYTE], &message,
                                &slot->request);
    if (code != 0) {
        slot_give(mpi, slot);
        mpi_peer_fail_code(mpi, peer, "MPI_Imrecv", code);
        return false;
    }
    *mpi->arrivals_end = slot;
    mpi->arrivals_end = &slot->next;
    mpi->arrival_count++;
    return true;
}

static bool arrivals_find(struct mpi *mpi)
{
    const struct mpi_lib *lib = mpi->lib;
    bool has_moved = false;
    while (mpi->arrival_count < FRAMES_AT_ONCE) {
        bool is_found = false;
        mpi_handle_t message = lib->message_null;
        struct mpi_status status;
        int code = lib->abi->improbe(lib, lib->any_source, MPI_TAG_FRAME, mpi->comm, &is_found,
                                     &message, &status);
        if (code != 0) { /* MPI does not report which peer it concerns */
            for (int32_t i = 0; i < mpi->size; i++)
                mpi_peer_fail_code(mpi, i, "MPI_Improbe", code);
            return true;
        }
        if (!is_found)
            break;
        has_moved = true;
        if (status.count < FRAME_HEAD || (size_t)status.count > FRAME_MAX) {
            mpi_peer_fail(mpi, status.source, HVD_ERR_CORRUPT, "it sent a message of %d bytes",
                          status.count);
            break;
        }
        if (!arrival_begin(mpi, message, &status))
            break;
    }
    return has_moved;
}

static void frame_read(struct mpi *mpi, const struct slot *slot)
{
    struct mpi_peer *p = &mpi->peers[slot->peer];
    size_t n = slot->bytes - FRAME_HEAD;
    struct reader r;
    if (!p->is_wanted || p->status != HVD_OK)
        return;
    reader_init(&r, slot->data, FRAME_HEAD);
    uint32_t kind = get_u32(&r);
    get_u32(&r);
    uint64_t acked = get_u64(&r);
    if (acked < p->acked_bytes || acked > p->sent_bytes || kind < FRAME_MESSAGE ||
        kind > FRAME_GOODBYE) {
        mpi_peer_fail(mpi, slot->peer, HVD_ERR_CORRUPT, "it sent a malformed message");
        return;
    }
    p->acked_bytes = acked;
    p->heard_ns = mpi->now_ns;
    if (kind == FRAME_GOODBYE) {
        p->has_left = true;
        mpi_peer_fail(mpi, slot->peer, HVD_ERR_LINK, "it closed its links");
    }
    if (kind != FRAME_MESSAGE)
        return;
    p->consumed_bytes += slot->bytes;
    if (!mpi->is_closing)
        mpi->transport.events.message(mpi->transport.events.ctx, slot->peer,
                                      slot->data + FRAME_HEAD, n);
}

/* In the order of arrival; a long message delays only later ones of the same peer. */
static bool arrivals_deliver(struct mpi *mpi)
{
    const struct mpi_lib *lib = mpi->lib;
    bool has_moved = false;
    mpi->turn++;
    for (struct slot **at = &mpi->arrivals; *at != NULL;) {
        struct slot *slot = *at;
        struct mpi_peer *p = &mpi->peers[slot->peer];
        int code = 0;
        if (!slot->is_done)
            code = lib->abi->test(lib, &slot->request, 0, &slot->is_done, NULL);
        if (code != 0)
            mpi_peer_fail_code(mpi, slot->peer, "MPI_Test", code);
        if (code == 0 && (!slot->is_done || p->held_turn == mpi->turn)) {
            p->held_turn = mpi->turn;
            at = &slot->next;
            continue;
        }
        *at = slot->next;
        if (mpi->arrivals_end == &slot->next)
            mpi->arrivals_end = at;
        mpi->arrival_count--;
        if (code == 0)
            frame_read(mpi, slot);
        slot_give(mpi, slot);
        has_moved = true;
    }
    return has_moved;
}

bool mpi_frames_progress(struct mpi *mpi)
{
    bool has_moved = sends_progress(mpi);
    has_moved |= arrivals_find(mpi);
    if (mpi->arrivals != NULL)
        has_moved |= arrivals_deliver(mpi);
    if (has_moved)
        acks_send(mpi);
    heartbeats_send(mpi);
    return has_moved;
}

void mpi_frames_destroy(struct mpi *mpi)
{
    const struct mpi_lib *lib = mpi->lib;
    struct slot *lists[] = {mpi->sends, mpi->arrivals};
    for (int i = 0; i < 2; i++)
        while (lists[i] != NULL) {
            struct slot *slot = lists[i];
            lists[i] = slot->next;
            bool is_over = slot->is_done;
            if (!is_over)
                lib->abi->test(lib, &slot->request, 0, &is_over, NULL);
            if (is_over) /* else MPI still has the memory: it is never freed */
                slot_give(mpi, slot);
        }
    mpi->sends = mpi->arrivals = NULL;
    for (int i = 0; i < SLOT_CLASSES; i++)
        while (mpi->free_slots[i] != NULL) {
            struct slot *slot = mpi->free_slots[i];
            mpi->free_slots[i] = slot->next;
            os_free(mpi->transport.os, slot);
        }
}
