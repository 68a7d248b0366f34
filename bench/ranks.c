/* SPDX-License-Identifier: Apache-2.0 */
/* ranks.c - many ranks on one machine, and how soon the death of one is told.
 *
 * First: so many ranks initialise, run so many allreduces of 4 KiB, each checked, and shut down.
 * Then: one of four ranks is killed while the others wait; told is the time until the last of them
 * has its error, which must name the dead rank.
 *
 * Use: ranks [--ranks N] [--ops N] [--json FILE]
 * Thread: one per rank (and the library's).  Start reading at body_many() and body_death(). */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/meet.h"
#include "common/ranks.h"
#include "common/stats.h"

#define COUNT       1024
#define VICTIM      1
#define DEATH_RANKS 4
#define DEATH_MS    20000

struct many {
    int ranks, ops;
    const char *json;
    FILE *out; /* rank 0's */
};

static int body_many(struct meet *meet, const struct ranks_job *job, void *arg)
{
    struct many *many = arg;
    static float data[COUNT];
    float sum = (float)(meet->size * (meet->size + 1) / 2);
    double began = now_s();
    if (!ranks_init(job, meet->rank, meet->size))
        return 1;
    double init_s = meet_max(meet, now_s() - began);
    began = now_s();
    for (int op = 0; op < many->ops; op++) {
        for (int i = 0; i < COUNT; i++)
            data[i] = (float)(meet->rank + 1) + (float)(op % 7);
        if (!ranks_allreduce("many", data, COUNT))
            return 1;
        for (int i = 0; i < COUNT; i++)
            if (data[i] != sum + (float)(meet->size * (op % 7)))
                return 1;
    }
    double ops_s = meet_max(meet, now_s() - began);
    began = now_s();
    hvd_shutdown();
    double shutdown_s = meet_max(meet, now_s() - began);
    if (meet->rank != 0)
        return 0;
    printf("%d ranks on %d cores: init %.2f s, %d allreduces of 4 KiB in %.2f s (%.0f us each), "
           "shutdown %.2f s; load average %.2f\n",
           meet->size, meet_core_count(), init_s, many->ops, ops_s, ops_s / many->ops * 1e6,
           shutdown_s, stats_load());
    fprintf(many->out,
            "{\"bench\": \"ranks\", \"ranks\": %d, \"ops\": %d, \"init_s\": %.3f, "
            "\"ops_s\": %.3f, \"shutdown_s\": %.3f",
            meet->size, many->ops, init_s, ops_s, shutdown_s);
    return 0;
}

/* The victim's last words are when it died: one clock serves all processes. */
static int body_death(struct meet *meet, const struct ranks_job *job, void *arg)
{
    struct many *many = arg;
    float one = 1;
    double *died_s = &meet->page->slots[0][VICTIM].number;
    hvd_op_t op;
    hvd_handle_t handle;
    int64_t count = 1;
    if (!ranks_init(job, meet->rank, meet->size))
        return 1;
    for (int i = 0; i < 20; i++)
        if (!ranks_allreduce("alive", &one, 1))
            return 1;
    if (meet->rank == VICTIM) {
        nanosleep(&(struct timespec){.tv_nsec = 200000000}, NULL);
        *died_s = now_s();
        kill(getpid(), SIGKILL);
    }
    hvd_op_init(&op, HVD_ALLREDUCE);
    op.name = "alive";
    op.input.data = &one;
    op.input.shape = &count;
    op.input.ndim = 1;
    op.output = op.input;
    hvd_status_t status = hvd_submit(&op, &handle);
    if (status == HVD_OK)
        status = hvd_wait(handle, DEATH_MS);
    double told_s = now_s() - *died_s;
    char name[32];
    snprintf(name, sizeof name, "ank %d", VICTIM);
    if (status != HVD_ERR_PEER_DEAD || strstr(hvd_error(handle), name) == NULL) {
        fprintf(stderr, "bench: rank %d: %s: %s\n", meet->rank, hvd_status_name(status),
                hvd_error(handle));
        return 1;
    }
    meet->page->slots[1][meet->rank].number = told_s;
    char text[256];
    snprintf(text, sizeof text, "%.200s", hvd_error(handle));
    hvd_shutdown();
    if (meet->rank != 0)
        return 0;
    for (int i = 0; i < meet->size; i++) /* they leave together, so all have written */
        told_s = i != VICTIM && meet->page->slots[1][i].number > told_s
                     ? meet->page->slots[1][i].number
                     : told_s;
    printf("rank %d of %d killed: told to all others after %.1f ms: %s\n", VICTIM, meet->size,
           told_s * 1e3, text);
    fprintf(many->out, ", \"death_ms\": %.3f", told_s * 1e3);
    return 0;
}

int main(int argc, char **argv)
{
    struct many many = {.ranks = 128, .ops = 1000};
    for (int i = 1; i < argc; i += 2) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        if (strcmp(argv[i], "--ranks") == 0)
            many.ranks = atoi(value);
        else if (strcmp(argv[i], "--ops") == 0)
            many.ops = atoi(value);
        else if (strcmp(argv[i], "--json") == 0)
            many.json = value;
        else
            many.ops = 0;
    }
    if (many.ranks < 1 || many.ranks > MEET_RANKS_MAX || many.ops < 1) {
        fprintf(stderr, "use: %s [--ranks N] [--ops N] [--json FILE]\n", argv[0]);
        return 2;
    }
    many.out = fopen(many.json != NULL ? many.json : "/dev/null", "a");
    if (many.out == NULL || (many.json != NULL && truncate(many.json, 0) != 0)) {
        perror(many.json);
        return 1;
    }
    int failed = ranks_run(many.ranks, body_many, &many);
    failed += ranks_run_losing(DEATH_RANKS, VICTIM, body_death, &many);
    fprintf(many.out, ", \"failed\": %d}\n", failed);
    return fclose(many.out) == 0 && failed == 0 ? 0 : 1;
}
