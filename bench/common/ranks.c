/* SPDX-License-Identifier: Apache-2.0 */
/* ranks.c - see ranks.h. */
#include "ranks.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../tests/one_machine.h"
#include "base/os.h"
#include "wire/store.h"

#define WAIT_MS 120000

static struct store_server *serve(struct ranks_job *ret_job)
{
    const struct os *os = os_host();
    struct error error = {0};
    struct store_server *server = NULL;
    char name[64];
    uint32_t salt = 0;
    if (os->random(os->ctx, ret_job->key, sizeof ret_job->key) < 0 ||
        os->random(os->ctx, &salt, sizeof salt) < 0)
        return NULL;
    snprintf(name, sizeof name, "unix:horovod-bench-%d-%x", (int)getpid(), salt);
    if (store_server_create(os, name, ret_job->key, &server, ret_job->address, &error) == HVD_OK)
        return server;
    fprintf(stderr, "bench: %s\n", error.text);
    return NULL;
}

static void turn(struct store_server *server, int timeout_ms)
{
    struct pollfd p = {.fd = store_server_poll_fd(server), .events = POLLIN};
    poll(&p, 1, timeout_ms);
    store_server_progress(server, os_now_ns(os_host()));
}

static void *serve_for_ever(void *arg)
{
    for (;;)
        turn(arg, 1000);
    return NULL;
}

bool ranks_serve(struct ranks_job *ret_job)
{
    pthread_t thread;
    struct store_server *server = serve(ret_job);
    return server != NULL && pthread_create(&thread, NULL, serve_for_ever, server) == 0;
}

bool ranks_init(const struct ranks_job *job, int rank, int size)
{
    hvd_config_t config = one_machine_config(rank, size, job->address, job->key, sizeof job->key);
    if (hvd_init(&config) == HVD_OK)
        return true;
    fprintf(stderr, "bench: rank %d: %s\n", rank, hvd_last_error());
    return false;
}

static void child(int rank, int size, struct meet_page *page, const struct ranks_job *job,
                  ranks_body body, void *arg)
{
    struct meet meet;
    meet_init(&meet, page, rank, size);
    int code = body(&meet, job, arg);
    fflush(NULL);
    _exit(code);
}

/* Serves until all have ended; when one fails the others are ended, who would wait for ever. */
static int attend(struct store_server *server, const pid_t *pids, int size, int victim)
{
    int failed = 0;
    for (int left = size; left > 0;) {
        int status, rank = 0;
        turn(server, 20);
        for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0; rank = 0) {
            left--;
            while (rank < size && pids[rank] != pid)
                rank++;
            if (rank == victim || (WIFEXITED(status) && WEXITSTATUS(status) == 0))
                continue;
            fprintf(stderr, "bench: rank %d failed\n", rank);
            for (int i = 0; i < size && failed == 0; i++)
                if (pids[i] > 0 && pids[i] != pid)
                    kill(pids[i], SIGTERM);
            failed++;
        }
    }
    return failed;
}

int ranks_run_losing(int size, int victim, ranks_body body, void *arg)
{
    struct ranks_job job;
    pid_t pids[MEET_RANKS_MAX];
    struct meet_page *page = meet_page_create(NULL);
    struct store_server *server = size <= MEET_RANKS_MAX ? serve(&job) : NULL;
    if (page == NULL || server == NULL)
        return size;
    fflush(NULL);
    for (int rank = 0; rank < size; rank++) {
        pids[rank] = fork();
        if (pids[rank] == 0)
            child(rank, size, page, &job, body, arg);
    }
    int failed = attend(server, pids, size, victim);
    store_server_destroy(server);
    return failed;
}

int ranks_run(int size, ranks_body body, void *arg)
{
    return ranks_run_losing(size, -1, body, arg);
}

bool ranks_allreduce(const char *name, float *data, int64_t count)
{
    hvd_op_t op;
    hvd_handle_t handle;
    hvd_op_init(&op, HVD_ALLREDUCE);
    op.name = name;
    op.flags = HVD_OP_WAITED;
    op.input = (hvd_tensor_t){
        .data = data, .shape = &count, .ndim = 1, .dtype = HVD_FLOAT32, .device = HVD_DEVICE_CPU};
    op.output = op.input;
    hvd_status_t status = hvd_submit(&op, &handle);
    if (status == HVD_OK) {
        status = hvd_wait(handle, WAIT_MS);
        if (status != HVD_OK)
            fprintf(stderr, "bench: %s: %s\n", name, hvd_error(handle));
        hvd_release(handle);
        return status == HVD_OK;
    }
    fprintf(stderr, "bench: %s: %s\n", name, hvd_last_error());
    return false;
}
