/* SPDX-License-Identifier: Apache-2.0 */
/* test_mp_fleet.c - the launcher stops one rank of a job and starts another one in its place: a
 * real agent, the launcher's own parts, and workers that meet again in the next generation.
 *
 * This program is the launcher, its agent and its workers, by its first argument. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "agent.h"
#include "job.h"
#include "mp.h"
#include "spawn.h"
#include "worker.h"

#define RANKS 3

struct bed {
    struct mem mem;
    struct args args;
    struct hosts hosts;
    struct job job;
    char folder[64], fifo[80];
    int reports;
    struct bytes text; /* lines so far */
    bool is_served;
};

static void bed_open(struct bed *b)
{
    struct error error = {0};
    struct slot *places = NULL;
    memset(b, 0, sizeof *b);
    mem_init(&b->mem, os_host());
    snprintf(b->folder, sizeof b->folder, "/tmp/test-fleet-XXXXXX");
    assert_non_null(mkdtemp(b->folder));
    snprintf(b->fifo, sizeof b->fifo, "%s/reports", b->folder);
    assert_int_equal(mkfifo(b->fifo, 0600), 0);
    b->reports = open(b->fifo, O_RDWR | O_NONBLOCK | O_CLOEXEC); /* there is always a writer */
    assert_true(b->reports >= 0);
    char *argv[] = {(char *)"horovodrun", (char *)"-np", (char *)"3", (char *)"true", NULL};
    assert_int_equal(args_parse(&b->mem, 4, argv, &b->args, &error), HVD_OK);
    b->args.start_timeout_s.value = MP_DEADLINE_S;
    assert_int_equal(hosts_parse_list(&b->mem, "localhost:3", &b->hosts, &error), HVD_OK);
    assert_int_equal(hosts_assign(&b->mem, &b->hosts, RANKS, &places, &error), HVD_OK);
    b->job = (struct job){.os = os_host(),
                          .mem = &b->mem,
                          .args = &b->args,
                          .self_path = spawn_self_path(&b->mem),
                          .hosts = &b->hosts,
                          .is_driven = true};
    generation_init(&b->mem, &b->job.generation, places, RANKS);
    b->job.generation.epoch = 1;
    list_add(&b->mem, &b->job.command, spawn_self_path(&b->mem));
    list_add(&b->mem, &b->job.command, (char *)"--worker");
    list_add(&b->mem, &b->job.assignments, mem_format(&b->mem, "HVD_TEST_REPORTS=%s", b->fifo));
    if (supervise_open(&b->job, &error) != HVD_OK)
        fail_msg("%s", error.text);
    fleet_start(&b->job);
}

static void bed_announce(struct bed *b)
{
    const struct generation *g = &b->job.generation;
    assert_int_equal(store_server_generation(b->job.store, JOB_SCOPE, g->epoch,
                                             generation_members(&b->mem, g), (uint32_t)g->count, 0),
                     HVD_OK);
}

static void bed_serve(struct bed *b)
{
    struct error error = {0};
    if (b->is_served || !fleet_is(&b->job, HOST_UP))
        return;
    b->is_served = true;
    assert_int_equal(rendezvous_open(&b->job, &error), HVD_OK);
    bed_announce(b);
    fleet_send_start(&b->job);
}

static void bed_turn(struct bed *b)
{
    struct job *job = &b->job;
    struct os_event events[16];
    uint8_t chunk[4096];
    int n = job->os->poll_wait(job->os->ctx, job->poll_fd, events, 16, 5 * JOB_NS_PER_MS);
    for (int i = 0; i < n; i++) {
        const struct job_tag *tag = events[i].tag;
        if (tag->kind == JOB_TAG_SIGNALS)
            supervise_signals(job);
        else
            fleet_event(job, tag);
    }
    if (job->store != NULL)
        store_server_progress(job->store, os_now_ns(job->os));
    bed_serve(b);
    fleet_flush(job);
    output_flush(&job->output);
    ssize_t got = read(b->reports, chunk, sizeof chunk);
    if (got > 0)
        bytes_add(job->os, &b->text, chunk, (size_t)got);
}

static int count_lines(struct bed *b, const char *line)
{
    int count = 0;
    char *text = mem_copy_n(&b->mem, (const char *)bytes_at(&b->text), bytes_used(&b->text));
    for (char *at = strstr(text, line); at != NULL; at = strstr(at + 1, line))
        count += at == text || at[-1] == '\n';
    return count;
}

/* Whoever waits for what does not come sees all that came. */
static void await(struct bed *b, const char *line, int count)
{
    int64_t deadline_ns = os_now_ns(os_host()) + MP_DEADLINE_S * JOB_NS_PER_S;
    size_t seen = SIZE_MAX;
    while (os_now_ns(os_host()) < deadline_ns) {
        bed_turn(b);
        if (bytes_used(&b->text) == seen)
            continue;
        seen = bytes_used(&b->text);
        if (count_lines(b, line) >= count)
            return;
    }
    fail_msg("\"%s\" was not reported; the job is %d; what was:\n%.*s", line,
             (int)b->job.verdict.kind, (int)bytes_used(&b->text), (const char *)bytes_at(&b->text));
}

static void bed_close(struct bed *b)
{
    job_stop(&b->job, JOB_GRACE_MS);
    while (!fleet_is(&b->job, HOST_GONE))
        bed_turn(b);
    bytes_free(os_host(), &b->text);
    supervise_close(&b->job);
    close(b->reports);
    unlink(b->fifo);
    rmdir(b->folder);
    mem_destroy(&b->mem);
    signal(SIGPIPE, SIG_DFL);
}

static void test_one_rank_is_replaced(void **state)
{
    (void)state;
    struct bed b;
    struct generation next;
    bed_open(&b);
    await(&b, "0.0 run 0 3\n", 1);
    await(&b, "0.1 run 1 3\n", 1);
    await(&b, "0.2 run 2 3\n", 1);
    assert_false(b.job.generation.ranks[1].is_ended);
    fleet_halt_rank(&b.job, 1, JOB_GRACE_MS);
    while (!b.job.generation.ranks[1].is_ended)
        bed_turn(&b);
    assert_int_equal(b.job.generation.ranks[1].signal, SIGTERM);
    assert_true(b.job.generation.ranks[1].pid > 0);
    generation_replace(&b.mem, &b.job.generation, 1, 3, &next);
    b.job.generation = next;
    bed_announce(&b);
    fleet_spawn_rank(&b.job, 1);
    await(&b, "0.0 run 0 3\n", 2);
    await(&b, "0.3 run 1 3\n", 1);
    await(&b, "0.2 run 2 3\n", 2);
    assert_int_equal(count_lines(&b, "0.1 run"), 1);
    assert_int_equal(generation_rank(&b.job.generation, 0, 3), 1);
    assert_int_equal(generation_rank(&b.job.generation, 0, 1), -1);
    assert_true(b.job.generation.ranks[1].pid > 0 && !b.job.generation.ranks[1].is_ended);
    bed_close(&b);
}

/* Without a grace time they are killed. The agent outlives them all, and can start more. */
static void test_all_are_replaced(void **state)
{
    (void)state;
    struct bed b;
    struct generation next;
    bed_open(&b);
    for (int i = 0; i < RANKS; i++)
        await(&b, (const char *[]){"0.0 run 0 3\n", "0.1 run 1 3\n", "0.2 run 2 3\n"}[i], 1);
    for (int32_t i = 0; i < RANKS; i++)
        fleet_halt_rank(&b.job, i, 0);
    for (int32_t i = 0; i < RANKS; i++) {
        while (!b.job.generation.ranks[i].is_ended)
            bed_turn(&b);
        assert_int_equal(b.job.generation.ranks[i].signal, SIGKILL);
    }
    for (int32_t i = 0; i < RANKS; i++) {
        generation_replace(&b.mem, &b.job.generation, i, (uint32_t)(RANKS + i), &next);
        b.job.generation = next;
    }
    bed_announce(&b);
    for (int32_t i = 0; i < RANKS; i++)
        fleet_spawn_rank(&b.job, i);
    await(&b, "0.3 run 0 3\n", 1);
    await(&b, "0.4 run 1 3\n", 1);
    await(&b, "0.5 run 2 3\n", 1);
    bed_close(&b);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_rank_is_replaced),
        cmocka_unit_test(test_all_are_replaced),
    };
    if (argc > 1 && strcmp(argv[1], "--local-agent") == 0)
        return agent_main(os_host(), true);
    if (argc > 1 && strcmp(argv[1], "--worker") == 0)
        worker_main(-1, open(getenv("HVD_TEST_REPORTS"), O_WRONLY | O_CLOEXEC));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
