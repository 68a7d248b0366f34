/* SPDX-License-Identifier: Apache-2.0 */
/* mpi.c - see mpi.h: the table, peers and their failures. */
#include "transport/mpi/mpi.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "transport/mpi/mpi_internal.h"

#define POLL_BUSY_NS    20000LL /* something is in progress */
#define POLL_RECENT_NS  50000LL
#define POLL_LATER_NS   200000LL
#define POLL_IDLE_NS    1000000LL
#define RECENT_NS       1000000LL
#define LATER_NS        50000000LL
#define GOODBYE_STEP_NS 50000LL

/* ---- peers ---- */

void mpi_peer_fail(struct mpi *mpi, int32_t peer, hvd_status_t status, const char *format, ...)
{
    struct mpi_peer *p = &mpi->peers[peer];
    va_list args;
    if (!p->is_wanted || p->status != HVD_OK)
        return;
    p->status = status;
    p->why.status = status;
    va_start(args, format);
    vsnprintf(p->why.text, sizeof p->why.text, format, args);
    va_end(args);
    mpi->has_down = true;
    mpi->has_lost = mpi->has_lost || !p->has_left;
}

void mpi_peer_fail_code(struct mpi *mpi, int32_t peer, const char *call, int code)
{
    struct error error = {0};
    mpi_lib_error(mpi->lib, call, code, &error);
    mpi_peer_fail(mpi, peer, HVD_ERR_LINK, "%s", error.text);
}

static void downs_tell(struct mpi *mpi)
{
    mpi->has_down = false;
    for (int32_t i = 0; i < mpi->size; i++) {
        struct mpi_peer *p = &mpi->peers[i];
        if (p->status == HVD_OK || p->is_told)
            continue;
        p->is_told = true;
        mpi_bulk_fail(mpi, i);
        if (!mpi->is_closing)
            mpi->transport.events.peer_down(mpi->transport.events.ctx, i, p->status, p->why.text);
    }
}

/* ---- the table ---- */

static bool mpi_reaches(const struct transport *t, int32_t peer)
{
    const struct mpi *mpi = (const struct mpi *)t;
    return peer >= 0 && peer < mpi->size && mpi->peers[peer].is_wanted &&
           mpi->peers[peer].status == HVD_OK;
}

static hvd_status_t mpi_message_send(struct transport *t, int32_t peer, const void *bytes, size_t n)
{
    struct mpi *mpi = (struct mpi *)t;
    if (n > TRANSPORT_MESSAGE_MAX)
        return HVD_ERR_LIMIT;
    if (!mpi_reaches(t, peer))
        return mpi->peers[peer].status != HVD_OK ? mpi->peers[peer].status : HVD_ERR_LINK;
    struct mpi_peer *p = &mpi->peers[peer];
    /* Headers count too, otherwise empty messages would have no limit. */
    if (p->sent_bytes - p->acked_bytes + FRAME_HEAD + n > WINDOW_BYTES)
        return HVD_AGAIN;
    hvd_status_t status = mpi_frame_send(mpi, peer, FRAME_MESSAGE, bytes, n);
    if (status != HVD_OK)
        return status;
    p->sent_bytes += FRAME_HEAD + n;
    mpi->messages++;
    mpi->bytes += n;
    return HVD_OK;
}

static bool mpi_progress(struct transport *t, int64_t now_ns)
{
    struct mpi *mpi = (struct mpi *)t;
    mpi->now_ns = now_ns;
    if (mpi->wanted_count == 0)
        return false;
    bool has_moved = mpi_frames_progress(mpi);
    has_moved |= mpi_bulk_progress(mpi);
    if (mpi->has_down) {
        has_moved = true;
        downs_tell(mpi);
    }
    if (has_moved)
        mpi->moved_ns = now_ns;
    return has_moved;
}

static int64_t mpi_poll_ns(struct transport *t)
{
    const struct mpi *mpi = (const struct mpi *)t;
    if (mpi->flights != NULL || mpi->arrivals != NULL || mpi->sends != NULL)
        return POLL_BUSY_NS;
    int64_t idle_ns = mpi->now_ns - mpi->moved_ns;
    if (idle_ns < RECENT_NS)
        return POLL_RECENT_NS;
    return idle_ns < LATER_NS ? POLL_LATER_NS : POLL_IDLE_NS;
}

/* There is no bell: poll_ns() wakes the driver. */
static bool mpi_sleep_begin(struct transport *t)
{
    const struct mpi *mpi = (const struct mpi *)t;
    return !mpi->has_down;
}

static void mpi_sleep_end(struct transport *t)
{
    (void)t;
}

static uint8_t *mpi_arena(const struct transport *t, int32_t peer, uint64_t *ret_bytes)
{
    (void)t, (void)peer, (void)ret_bytes;
    return NULL;
}

static void mpi_notify(struct transport *t, int32_t peer)
{
    (void)t, (void)peer;
}

static void mpi_counters(const struct transport *t, uint64_t *ret_messages, uint64_t *ret_bytes)
{
    const struct mpi *mpi = (const struct mpi *)t;
    *ret_messages = mpi->messages;
    *ret_bytes = mpi->bytes;
}

static int64_t mpi_last_heard_ns(struct transport *t, int32_t peer, int64_t now_ns)
{
    const struct mpi *mpi = (const struct mpi *)t;
    const struct mpi_peer *p = &mpi->peers[peer];
    if (!p->is_wanted)
        return 0;
    if (p->heard_ns == mpi->connect_ns)
        return -1;
    /* With many peers heartbeats are less frequent, so more silence is normal. */
    int64_t rarer_ns = config_beat_ns(mpi->config) * (mpi->wanted_count / HEARTBEAT_PEERS);
    int64_t heard_ns = p->heard_ns + rarer_ns;
    return heard_ns < now_ns || rarer_ns == 0 ? heard_ns : now_ns;
}

/* ---- closing ---- */

static bool is_all_gone(const struct mpi *mpi)
{
    for (int32_t i = 0; i < mpi->size; i++)
        if (mpi->peers[i].is_wanted && !mpi->peers[i].has_left)
            return false;
    return true;
}

/* All ranks close together: each sends a goodbye and receives what is still in transit, so that MPI
 * holds nothing of it. A rank that has failed is not waited for. */
static void goodbye(struct mpi *mpi)
{
    const struct os *os = mpi->transport.os;
    int64_t start_ns = os_now_ns(os);
    mpi->is_closing = true;
    for (int32_t i = 0; i < mpi->size; i++)
        if (mpi->peers[i].is_wanted && (mpi->peers[i].status == HVD_OK || mpi->peers[i].has_left))
            mpi_frame_send(mpi, i, FRAME_GOODBYE, NULL, 0);
    while (!is_all_gone(mpi) || mpi->sends != NULL || mpi->flights != NULL) {
        if (os_now_ns(os) - start_ns > GOODBYE_NS)
            break;
        mpi_progress(&mpi->transport, os_now_ns(os));
        if (is_all_gone(mpi))
            mpi_bulk_drain(mpi);
        if (mpi->has_lost && mpi->sends == NULL)
            break;
        os->sleep_ns(os->ctx, GOODBYE_STEP_NS);
    }
    mpi->has_lost = mpi->has_lost || !is_all_gone(mpi);
}

static void mpi_destroy(struct transport *t)
{
    struct mpi *mpi = (struct mpi *)t;
    if (mpi == NULL)
        return;
    const struct mpi_lib *lib = mpi->lib;
    const struct os *os = t->os;
    if (mpi->peers != NULL && mpi->wanted_count > 0)
        goodbye(mpi);
    mpi_bulk_destroy(mpi);
    mpi_frames_destroy(mpi);
    /* Freeing is collective: if a rank is missing the communicator is leaked. */
    if (!mpi->has_lost && mpi->comm != lib->comm_null)
        lib->abi->comm_free(lib, &mpi->comm);
    os_free(os, mpi->peers);
    os_free(os, mpi);
}

static const struct transport_ops ops = {.version = TRANSPORT_VERSION,
                                         .name = "mpi",
                                         .reaches = mpi_reaches,
                                         .message_send = mpi_message_send,
                                         .bulk_send = mpi_bulk_send,
                                         .bulk_recv = mpi_bulk_recv,
                                         .bulk_cancel = mpi_bulk_cancel,
                                         .bulk_open = mpi_bulk_open,
                                         .bulk_close = mpi_bulk_close,
                                         .progress = mpi_progress,
                                         .sleep_begin = mpi_sleep_begin,
                                         .sleep_end = mpi_sleep_end,
                                         .arena = mpi_arena,
                                         .notify = mpi_notify,
                                         .counters = mpi_counters,
                                         .last_heard_ns = mpi_last_heard_ns,
                                         .destroy = mpi_destroy,
                                         .poll_ns = mpi_poll_ns};

hvd_status_t mpi_create(const struct os *os, const struct config *config, const struct mpi_job *job,
                        int32_t rank, int32_t size, struct mpi **ret, struct error *error)
{
    struct mpi *mpi = os_alloc(os, sizeof *mpi);
    if (mpi == NULL)
        return error_set(error, HVD_ERR_NO_MEMORY, "Out of memory.");
    mpi->transport.ops = &ops;
    mpi->transport.os = os;
    mpi->transport.is_one_thread = job->lib->level < MPI_LEVEL_SERIALIZED;
    mpi->lib = job->lib;
    mpi->config = config;
    mpi->parent = job->comm;
    mpi->comm = job->lib->comm_null;
    mpi->rank = rank;
    mpi->size = size;
    mpi->sends_end = &mpi->sends;
    mpi->arrivals_end = &mpi->arrivals;
    mpi->flights_end = &mpi->flights;
    mpi->now_ns = mpi->moved_ns = mpi->beat_ns = os_now_ns(os);
    mpi->peers = os_alloc(os, (size_t)size * sizeof *mpi->peers);
    if (mpi->peers == NULL) {
        mpi_destroy(&mpi->transport);
        return error_set(error, HVD_ERR_NO_MEMORY, "Out of memory.");
    }
    *ret = mpi;
    return HVD_OK;
}

hvd_status_t mpi_connect(struct mpi *mpi, const bool *wanted, const struct transport_events *events,
                         struct error *error)
{
    const struct mpi_lib *lib = mpi->lib;
    hvd_status_t status = mpi_lib_comm_own(lib, mpi->parent, &mpi->comm, error);
    if (status == HVD_OK)
        status = mpi_lib_error(lib, "MPI_Comm_get_attr",
                               lib->abi->comm_tag_ub(lib, mpi->comm, &mpi->tag_max), error);
    if (status != HVD_OK)
        return status;
    mpi->transport.events = *events;
    mpi->now_ns = mpi->connect_ns = os_now_ns(mpi->transport.os);
    for (int32_t i = 0; i < mpi->size; i++) {
        mpi->peers[i].is_wanted = wanted[i] && i != mpi->rank;
        mpi->peers[i].heard_ns = mpi->peers[i].sent_ns = mpi->now_ns;
        mpi->wanted_count += mpi->peers[i].is_wanted ? 1 : 0;
    }
    return HVD_OK;
}

struct transport *mpi_transport(struct mpi *mpi)
{
    return &mpi->transport;
}

bool mpi_has_lost(const struct mpi *mpi)
{
    return mpi->has_lost;
}
