/* SPDX-License-Identifier: Apache-2.0 */
/* meet.c - see meet.h. */
#include "api/meet.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

#include "transport/transports.h"

#define SERVER_POLL_NS  100000000
#define ELASTIC_LIMIT_S (20 * 365 * 24 * 3600LL) /* none */
#define DIAL_NS         (2LL * 1000000000) /* for an address from a file, which may be out of date */

/* ---- rank 0 serves ---- */

static void *serve(void *arg)
{
    struct world *world = arg;
    const struct os *os = world->os;
    int poll_fd = os->poll_create(os->ctx);
    os->poll_add(os->ctx, poll_fd, store_server_poll_fd(world->server), NULL, false);
    while (!atomic_load(&world->is_server_stopping)) {
        struct os_event event;
        os->poll_wait(os->ctx, poll_fd, &event, 1, SERVER_POLL_NS);
        store_server_progress(world->server, os_now_ns(os));
    }
    os->close(os->ctx, poll_fd);
    return NULL;
}

/* Rank 0's own addresses, as it offers them to its peers; one that fails is left out. */
static hvd_status_t listen_own(struct world *world, const struct endpoint *self, uint16_t port,
                               char *ret_list, size_t bytes, struct error *error)
{
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
    const char *range = world->config.port_range;
    struct error trouble;
    size_t used = 0;
    error_clear(&trouble);
    uint8_t addresses[16][16];
    int32_t count = transports_addresses(transport_table, self, addresses, 16);
    for (int32_t i = 0; i < count; i++) {
        const uint8_t *raw = addresses[i];
        bool is_v4 = memcmp(raw, mapped, sizeof mapped) == 0;
        char text[INET6_ADDRSTRLEN] = "", ports[8], wanted[96], address[256];
        inet_ntop(is_v4 ? AF_INET : AF_INET6, is_v4 ? raw + 12 : raw, text, sizeof text);
        snprintf(ports, sizeof ports, "%d", port);
        snprintf(wanted, sizeof wanted, is_v4 ? "%s:%s" : "[%s]:%s", text,
                 port == 0 && range[0] != '\0' ? range : ports);
        hvd_status_t status = world->server == NULL
                                  ? store_server_create(world->os, wanted, world->job_key,
                                                        &world->server, address, &trouble)
                                  : store_server_listen(world->server, wanted, address, &trouble);
        if (status != HVD_OK || used + strlen(address) + 2 > bytes)
            continue;
        used +=
            (size_t)snprintf(ret_list + used, bytes - used, "%s%s", used > 0 ? "," : "", address);
    }
    if (world->server == NULL)
        return error_set(error, trouble.status != HVD_OK ? trouble.status : HVD_ERR_LINK,
                         "Rank 0 could not listen for the others: %.500s", trouble.text);
    return HVD_OK;
}

static hvd_status_t listen_here(struct world *world, struct error *error)
{
    uint8_t raw[16];
    char address[256];
    struct bootstrap *place = &world->place;
    /* The address is passed on in a file, so it can be random; no other process can have taken it.
     */
    if (world->handover[0] != '\0' && !place->is_rendezvous_own) {
        int rc = world->os->random(world->os->ctx, raw, sizeof raw);
        if (rc < 0)
            return error_set_os(error, rc, "No random bytes for a rendezvous");
        int n = snprintf(place->rendezvous, sizeof place->rendezvous, "unix:horovod-");
        for (size_t i = 0; i < sizeof raw; i++)
            snprintf(place->rendezvous + n + 2 * i, 3, "%02x", raw[i]);
    }
    return store_server_create(world->os, place->rendezvous, world->job_key, &world->server,
                               address, error);
}

hvd_status_t meet_serve(struct world *world, const struct endpoint *self, struct error *error)
{
    struct bootstrap *place = &world->place;
    if (!place->is_self_served || place->rank != 0 || place->size == 1)
        return HVD_OK;
    bool is_here = place->is_rendezvous_own || place->local_size == place->size;
    bool is_filed = world->handover[0] != '\0';
    hvd_status_t status = is_here ? listen_here(world, error)
                                  : listen_own(world, self, is_filed ? 0 : place->port,
                                               place->rendezvous, sizeof place->rendezvous, error);
    if (status == HVD_OK && is_filed)
        status =
            handover_write(world->os, world->handover, world->job_key, place->rendezvous, error);
    if (status != HVD_OK)
        return status;
    int started = world->os->thread_start(world->os->ctx, serve, world, "horovod-store",
                                          &world->server_thread);
    return started < 0
               ? error_set_os(error, started, "Could not start the thread of the rendezvous")
               : HVD_OK;
}

/* ---- all ranks meet ---- */

static bool is_filed(const struct world *world)
{
    return world->handover[0] != '\0' && world->place.rank != 0;
}

static hvd_status_t find(void *ctx, char ret_addresses[MEETING_ADDRESSES_MAX], uint8_t ret_key[32],
                         int64_t *ret_limit_ns, struct error *error)
{
    struct world *world = ctx;
    hvd_status_t status = HVD_OK;
    if (is_filed(world)) {
        char address[HANDOVER_ADDRESS_MAX];
        status = handover_read(world->os, world->handover, world->job_key, address, error);
        if (status != HVD_OK)
            return status;
        snprintf(ret_addresses, MEETING_ADDRESSES_MAX, "%s", address);
        *ret_limit_ns = DIAL_NS;
        world->was_found = true;
    } else {
        snprintf(ret_addresses, MEETING_ADDRESSES_MAX, "%s", world->place.rendezvous);
    }
    memcpy(ret_key, world->job_key, sizeof world->job_key);
    return HVD_OK;
}

static void unfound(void *ctx, const struct error *trouble, struct error *ret_error)
{
    const struct world *world = ctx;
    const struct bootstrap *place = &world->place;
    if (!is_filed(world))
        return;
    error_clear(ret_error);
    error_set(ret_error, HVD_ERR_TIMEOUT,
              "%s started %d ranks, but after %lld s rank 0 %s. It leaves the job key and "
              "its address in %s; %sdid it start? %.400s",
              place->source, place->size, (long long)world->config.timeout_s,
              world->was_found ? "does not answer" : "has not been heard of", world->handover,
              place->local_size == place->size
                  ? ""
                  : "if that directory is not shared by all hosts, set HOROVOD_KEY_FILE and "
                    "HOROVOD_RENDEZVOUS; ",
              world->was_found ? trouble->text : "");
}

/* A launcher that names the members of a generation also assigns their ranks. */
static void take_place(struct world *world, const struct store_generation *g)
{
    struct bootstrap *place = &world->place;
    if (!g->has_members)
        return;
    const struct store_place *given = &g->members[g->rank].place;
    place->rank = g->rank;
    place->size = g->size;
    place->local_rank = given->local_rank;
    place->local_size = given->local_size;
    place->cross_rank = given->cross_rank;
    place->cross_size = given->cross_size;
    world->log.rank = place->rank;
}

void meet_enter(struct world *world, const struct store_generation *g)
{
    take_place(world, g);
    world->epoch = g->epoch;
    world->notice = g->notice;
    key_derive(world->job_key, g->epoch, g->salt, world->key);
}

bool meet_is_elastic(const struct world *world)
{
    return world->config.elastic && world->config.worker[0] != '\0';
}

hvd_status_t meet_run(struct world *world, const struct tenure *tenure, uint64_t least,
                      const struct meeting_ops *ops, struct error *error)
{
    struct bootstrap *place = &world->place;
    /* Who waits for whom, and for how long, is the elastic launcher's to decide. */
    bool is_elastic = meet_is_elastic(world);
    int64_t limit_s = is_elastic ? ELASTIC_LIMIT_S : world->config.timeout_s;
    int64_t deadline_ns = os_now_ns(world->os) + limit_s * 1000000000LL;
    world->meeting_ops = *ops;
    world->meeting_ops.ctx = world;
    world->meeting_ops.find = find;
    world->meeting_ops.unfound = unfound;
    if (world->config.worker[0] != '\0')
        snprintf(world->worker, sizeof world->worker, "%s", world->config.worker);
    else
        snprintf(world->worker, sizeof world->worker, "%d", place->rank);
    hvd_status_t status = meeting_init(&world->meeting, world->os, &world->meeting_ops, MEET_SCOPE,
                                       world->worker, error);
    if (status != HVD_OK)
        return status;
    world->meeting.index = place->rank;
    world->meeting.count = place->size;
    member_init(&world->meeting.member, tenure->epoch, least);
    world->meeting.member.may_redial = is_filed(world);
    /* If rank 0 serves, a process that is early for its next world may still reach the store of the
     * previous one, which then closes. */
    world->meeting.member.may_meet_again = is_elastic;
    world->meeting.member.may_return = is_elastic || (place->is_self_served && place->rank != 0);
    return meeting_run(&world->meeting, deadline_ns, error);
}
