/* SPDX-License-Identifier: Apache-2.0 */
/* rendezvous.c - where the ranks of this job find each other: a store served from our own loop.
 *
 * On one machine it listens on an abstract Unix socket and on loopback (or on the interfaces that
 * were asked for). With several hosts it listens on our addresses by which those hosts reach us:
 * the interfaces that were asked for, else the address that ssh came from as the other side saw it,
 * else the address on the route there, and only if none of these is known on all of them. Never on
 * a wildcard. Thread: the launcher's loop.  Start reading at rendezvous_open(). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "job.h"
#include "wire/address.h"

/* "10.0.0.1 40000 10.0.0.2 22": the first word is us. */
static char *first_word(struct mem *m, const char *text)
{
    return mem_copy_n(m, text, strcspn(text, " "));
}

static void choose_for_host(struct job *job, const struct host_run *run, struct list *ret)
{
    if (run->ssh_peer != NULL && run->ssh_peer[0] != '\0') {
        char *seen = first_word(job->mem, run->ssh_peer);
        if (locality_is_own(&job->locality, seen)) {
            locality_add_once(job->mem, ret, seen);
            return;
        }
    }
    char *route = locality_route_to(&job->locality, job->mem, run->host->address);
    if (route != NULL)
        locality_add_once(job->mem, ret, route);
}

static bool has_remote(const struct job *job)
{
    for (int32_t i = 0; i < job->run_count; i++)
        if (!job->runs[i].is_local)
            return true;
    return false;
}

static hvd_status_t choose(struct job *job, struct list *ret, struct error *error)
{
    if (job->args->interfaces.count > 0)
        return locality_of_interfaces(&job->locality, job->mem, &job->args->interfaces, ret, error);
    if (!has_remote(job)) {
        locality_add_once(job->mem, ret, "127.0.0.1");
        return HVD_OK;
    }
    for (int32_t i = 0; i < job->run_count; i++)
        if (!job->runs[i].is_local)
            choose_for_host(job, &job->runs[i], ret);
    if (ret->count == 0)
        locality_all(&job->locality, job->mem, ret);
    if (ret->count == 0)
        return error_set(error, HVD_ERR_CONFIG, "this machine has no address for other hosts");
    return HVD_OK;
}

static hvd_status_t listen_unix(struct job *job, char *ret_address, struct error *error)
{
    uint8_t raw[16];
    int rc = job->os->random(job->os->ctx, raw, sizeof raw);
    if (rc < 0)
        return error_set_os(error, rc, "cannot get random bytes");
    char name[64] = "unix:horovod-";
    size_t n = strlen(name);
    for (size_t i = 0; i < sizeof raw; i++)
        snprintf(name + n + 2 * i, 3, "%02x", raw[i]);
    return store_server_create(job->os, name, job->key, &job->store, ret_address, error);
}

static hvd_status_t listen_one(struct job *job, const char *text, char *ret_address,
                               struct error *error)
{
    const char *range = job->os->env(job->os->ctx, "HOROVOD_PORT_RANGE");
    uint16_t first = 0, last = 0;
    hvd_status_t status = port_range_parse(range, &first, &last, error);
    if (status != HVD_OK)
        return status;
    char *address = mem_format(job->mem, strchr(text, ':') == NULL ? "%s:%u-%u" : "[%s]:%u-%u",
                               text, first, last);
    if (first == 0)
        address = mem_format(job->mem, strchr(text, ':') == NULL ? "%s:0" : "[%s]:0", text);
    if (job->store == NULL)
        return store_server_create(job->os, address, job->key, &job->store, ret_address, error);
    return store_server_listen(job->store, address, ret_address, error);
}

/* Listens on all; the first one that works is what the older variables name. */
static hvd_status_t listen_all(struct job *job, const struct list *chosen, char **ret_list,
                               struct error *error)
{
    for (size_t i = 0; i < chosen->count; i++) {
        char address[256];
        hvd_status_t status = listen_one(job, chosen->items[i], address, error);
        if (status != HVD_OK)
            return status;
        *ret_list = *ret_list == NULL ? mem_copy(job->mem, address)
                                      : mem_format(job->mem, "%s,%s", *ret_list, address);
        if (job->rendezvous_host == NULL) {
            const char *colon = strrchr(address, ':');
            job->rendezvous_host = chosen->items[i];
            job->rendezvous_port = colon == NULL ? 0 : atoi(colon + 1);
        }
    }
    return HVD_OK;
}

hvd_status_t rendezvous_open(struct job *job, struct error *error)
{
    struct list chosen = {0};
    char local[256] = "";
    char *tcp = NULL;
    bool is_spread = has_remote(job);
    hvd_status_t status = choose(job, &chosen, error);
    if (status == HVD_OK && !is_spread)
        status = listen_unix(job, local, error);
    if (status == HVD_OK)
        status = listen_all(job, &chosen, &tcp, error);
    if (status != HVD_OK)
        return status;
    job->dial = is_spread ? tcp : mem_copy(job->mem, "");
    job->rendezvous = is_spread ? tcp : mem_copy(job->mem, local);
    if (job_is_verbose(job))
        output_say(&job->output, 2, "horovodrun: rendezvous on %s%s%s", local,
                   local[0] == '\0' ? "" : ",", tcp);
    return HVD_OK;
}

/* Each address is listened on once. */
static hvd_status_t listen_once(struct job *job, const char *text, char **ret_address,
                                struct error *error)
{
    char address[256];
    for (size_t i = 0; i < job->listened.count; i++)
        if (strcmp(job->listened.items[i], text) == 0) {
            *ret_address = job->listened_at.items[i];
            return HVD_OK;
        }
    hvd_status_t status = listen_one(job, text, address, error);
    if (status != HVD_OK)
        return status;
    *ret_address = mem_copy(job->mem, address);
    list_add(job->mem, &job->listened, mem_copy(job->mem, text));
    list_add(job->mem, &job->listened_at, *ret_address);
    if (job_is_verbose(job))
        output_say(&job->output, 2, "horovodrun: rendezvous on %s", address);
    return HVD_OK;
}

static hvd_status_t choose_for(struct job *job, const struct host_run *run, struct list *ret,
                               struct error *error)
{
    if (job->args->interfaces.count > 0)
        return locality_of_interfaces(&job->locality, job->mem, &job->args->interfaces, ret, error);
    if (run->is_local)
        locality_add_once(job->mem, ret, "127.0.0.1");
    else
        choose_for_host(job, run, ret);
    if (ret->count == 0)
        locality_all(&job->locality, job->mem, ret);
    if (ret->count == 0)
        return error_set(error, HVD_ERR_CONFIG, "this machine has no address for other hosts");
    return HVD_OK;
}

hvd_status_t rendezvous_open_for(struct job *job, const struct host_run *run, struct error *error)
{
    struct list chosen = {0};
    char *all = NULL, *address = NULL;
    char local[256];
    if (job->rendezvous_local == NULL) {
        hvd_status_t status = listen_unix(job, local, error);
        if (status != HVD_OK)
            return status;
        job->rendezvous_local = mem_copy(job->mem, local);
    }
    hvd_status_t status = choose_for(job, run, &chosen, error);
    for (size_t i = 0; status == HVD_OK && i < chosen.count; i++) {
        status = listen_once(job, chosen.items[i], &address, error);
        if (status == HVD_OK)
            all = all == NULL ? address : mem_format(job->mem, "%s,%s", all, address);
    }
    if (status != HVD_OK)
        return status;
    const char *colon = strrchr(address, ':');
    job->rendezvous_host = chosen.items[chosen.count - 1];
    job->rendezvous_port = colon == NULL ? 0 : atoi(colon + 1);
    job->dial = run->is_local ? mem_copy(job->mem, "") : all;
    job->rendezvous = run->is_local ? job->rendezvous_local : all;
    return HVD_OK;
}

void rendezvous_close(struct job *job)
{
    store_server_destroy(job->store);
    job->store = NULL;
}
