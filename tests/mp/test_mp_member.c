/* SPDX-License-Identifier: Apache-2.0 */
/* test_mp_member.c - members of a job change while it runs: real processes, with a store whose
 * owner, here the test, names the members of each generation.
 *
 * The test reacts to reports of workers and exits of processes, never to time. */
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "mp.h"
#include "wire/key.h"
#include "worker.h"

#define WORKERS_MAX 4

struct worker {
    pid_t pid;
    int control; /* a byte here ends the job in order */
    int reports;
    char text[LINE_MAX]; /* the last report */
    int rank, size;      /* of the last "run" */
    int runs, breaks;
    bool has_ended;
    int status;
};

struct bed {
    struct store_server *server;
    uint8_t key[32];
    char address[256];
    struct worker workers[WORKERS_MAX];
    uint64_t epoch;
};

/* ---- the test ---- */

static void worker_start(struct bed *b, int i, bool is_stillborn)
{
    struct worker *w = &b->workers[i];
    int control[2], reports[2];
    char hex[KEY_HEX_BYTES], name[8];
    *w = (struct worker){.rank = -1};
    assert_int_equal(pipe(control), 0);
    assert_int_equal(pipe(reports), 0);
    fcntl(control[0], F_SETFL, O_NONBLOCK);
    fflush(NULL);
    w->pid = fork();
    if (w->pid == 0) {
        key_hex(b->key, hex);
        snprintf(name, sizeof name, "w%d", i);
        setenv("HOROVOD_KEY", hex, 1);
        setenv("HOROVOD_WORKER", name, 1);
        setenv("HOROVOD_RENDEZVOUS", b->address, 1);
        setenv("HOROVOD_RANK", "0", 1); /* the store decides */
        setenv("HOROVOD_SIZE", "1", 1);
        setenv("HOROVOD_HUNG_ERROR_SECONDS", "1", 1);
        if (is_stillborn)
            _exit(5);
        worker_main(control[0], reports[1]);
    }
    close(control[0]);
    close(reports[1]);
    fcntl(reports[0], F_SETFL, O_NONBLOCK);
    w->control = control[1];
    w->reports = reports[0];
}

static void worker_line(struct worker *w, const char *line)
{
    snprintf(w->text, sizeof w->text, "%s", line);
    if (sscanf(line, "%*s run %d %d", &w->rank, &w->size) == 2)
        w->runs++;
    if (strstr(line, " broke ") != NULL)
        w->breaks++;
}

static void worker_read(struct worker *w)
{
    char lines[4 * LINE_MAX];
    ssize_t n = w->pid > 0 ? read(w->reports, lines, sizeof lines - 1) : 0;
    if (n <= 0)
        return;
    lines[n] = '\0';
    for (char *line = strtok(lines, "\n"); line != NULL; line = strtok(NULL, "\n"))
        worker_line(w, line);
}

/* Serves the store and looks at the workers, once. */
static void bed_turn(struct bed *b)
{
    struct pollfd p = {.fd = store_server_poll_fd(b->server), .events = POLLIN};
    poll(&p, 1, 5);
    store_server_progress(b->server, os_now_ns(os_host()));
    for (int i = 0; i < WORKERS_MAX; i++) {
        struct worker *w = &b->workers[i];
        if (w->pid > 0 && !w->has_ended && waitpid(w->pid, &w->status, WNOHANG) == w->pid)
            w->has_ended = true;
        worker_read(w);
    }
}

static bool until(struct bed *b, bool (*is_so)(const struct worker *w, int number),
                  const int *workers, int count, int number)
{
    int64_t deadline_ns = os_now_ns(os_host()) + MP_DEADLINE_S * 1000000000LL;
    for (;;) {
        bool all = true;
        bed_turn(b);
        for (int i = 0; i < count; i++)
            all = all && is_so(&b->workers[workers[i]], number);
        if (all || os_now_ns(os_host()) > deadline_ns)
            return all;
    }
}

static bool has_run(const struct worker *w, int number)
{
    return w->runs >= number;
}

static bool has_broken(const struct worker *w, int number)
{
    return w->breaks >= number;
}

static bool has_ended(const struct worker *w, int number)
{
    (void)number;
    return w->has_ended;
}

static void generation(struct bed *b, const int *workers, int count)
{
    struct store_member members[WORKERS_MAX];
    memset(members, 0, sizeof members);
    for (int i = 0; i < count; i++) {
        snprintf(members[i].worker, sizeof members[i].worker, "w%d", workers[i]);
        members[i].place = (struct store_place){i, count, 0, 1};
    }
    assert_int_equal(
        store_server_generation(b->server, "world", ++b->epoch, members, (uint32_t)count, 0),
        HVD_OK);
}

static void bed_start(struct bed *b)
{
    struct error error = {0};
    memset(b, 0, sizeof *b);
    os_host()->random(NULL, b->key, sizeof b->key);
    if (store_server_create(os_host(), "unix:", b->key, &b->server, b->address, &error) != HVD_OK)
        fail_msg("%s", error.text);
}

static void expect_ranks(struct bed *b, const int *workers, int count, int runs)
{
    if (!until(b, has_run, workers, count, runs))
        for (int i = 0; i < count; i++)
            fprintf(stderr, "w%d: %s\n", workers[i], b->workers[workers[i]].text);
    for (int i = 0; i < count; i++) {
        assert_int_equal(b->workers[workers[i]].rank, i);
        assert_int_equal(b->workers[workers[i]].size, count);
    }
}

/* Whoever runs is told to end in order; nobody may be left. */
static void bed_stop(struct bed *b, const int *workers, int count)
{
    for (int i = 0; i < count; i++)
        assert_int_equal(write(b->workers[workers[i]].control, "q", 1), 1);
    bool is_over = until(b, has_ended, workers, count, 0);
    for (int i = 0; i < WORKERS_MAX; i++) {
        struct worker *w = &b->workers[i];
        if (w->pid <= 0)
            continue;
        if (!w->has_ended) {
            kill(w->pid, SIGKILL);
            waitpid(w->pid, NULL, 0);
        }
        close(w->control);
        close(w->reports);
    }
    store_server_destroy(b->server);
    assert_true(is_over);
    for (int i = 0; i < count; i++) {
        assert_true(WIFEXITED(b->workers[workers[i]].status));
        assert_int_equal(WEXITSTATUS(b->workers[workers[i]].status), 0);
    }
}

static const int first[] = {0, 1, 2}, second[] = {0, 2, 3}, survivors[] = {0, 2}, one[] = {1};

static void bed_start_first(struct bed *b)
{
    bed_start(b);
    generation(b, first, 3);
    for (int i = 0; i < 3; i++)
        worker_start(b, i, false);
    expect_ranks(b, first, 3, 1);
}

static void one_replace(struct bed *b)
{
    generation(b, second, 3);
    worker_start(b, 3, false);
    assert_true(until(b, has_run, survivors, 2, 2));
    expect_ranks(b, second, 3, 1);
}

static void test_killed_and_replaced(void **state)
{
    (void)state;
    struct bed b;
    bed_start_first(&b);
    kill(b.workers[1].pid, SIGKILL);
    assert_true(until(&b, has_ended, one, 1, 0));
    one_replace(&b);
    assert_int_equal(b.workers[0].breaks, 1);
    assert_int_equal(b.workers[3].breaks, 0);
    bed_stop(&b, second, 3);
}

/* One that is replaced while it hangs has the job key and an old generation's when it wakes up. */
static void test_hung_and_replaced(void **state)
{
    (void)state;
    struct bed b;
    bed_start_first(&b);
    kill(b.workers[1].pid, SIGSTOP);
    assert_true(until(&b, has_broken, survivors, 2, 1));
    one_replace(&b);
    kill(b.workers[1].pid, SIGCONT);
    assert_true(until(&b, has_ended, one, 1, 0));
    bed_turn(&b);
    assert_true(WIFEXITED(b.workers[1].status));
    assert_int_equal(WEXITSTATUS(b.workers[1].status), REFUSED);
    assert_non_null(strstr(b.workers[1].text, "worker \"w1\" was refused by epoch 2"));
    assert_int_equal(b.workers[0].breaks, 1); /* the others did not notice */
    bed_stop(&b, second, 3);
}

/* Those who wait for one that never comes are taken into the next generation. */
static void test_dead_before_it_came(void **state)
{
    (void)state;
    struct bed b;
    static const int dead[] = {2}, rest[] = {0, 1};
    uint8_t present[1];
    bed_start(&b);
    generation(&b, first, 3);
    for (int i = 0; i < 3; i++)
        worker_start(&b, i, i == 2);
    assert_true(until(&b, has_ended, dead, 1, 0));
    while (store_server_arrived(b.server, "world", 1, present, 3) < 2)
        bed_turn(&b);
    generation(&b, rest, 2);
    expect_ranks(&b, rest, 2, 1);
    assert_int_equal(b.workers[0].breaks, 0);
    bed_stop(&b, rest, 2);
}

/* ---- static jobs: a rank that has tried before meets those that have not ---- */

/* The last rank tries alone first, and in vain; the others come only then. */
static void try_in_vain(int rank, int size, const int *pipes, hvd_status_t (*init)(void))
{
    char bytes[MP_RANKS_MAX];
    if (rank == size - 1) {
        setenv("HOROVOD_GLOO_TIMEOUT_SECONDS", "1", 1);
        MP_CHECK(init() == HVD_ERR_TIMEOUT);
        MP_CHECK(write(pipes[1], bytes, (size_t)size - 1) == size - 1);
        setenv("HOROVOD_GLOO_TIMEOUT_SECONDS", "60", 1);
    } else {
        MP_CHECK(read(pipes[0], bytes, 1) == 1);
    }
}

/* Each life ends in another order, and the first rank to end is early for the next one. */
static int live_again(int rank, int size, const int *pipes, hvd_status_t (*init)(void))
{
    try_in_vain(rank, size, pipes, init);
    for (int life = 0; life < 4; life++) {
        bool is_over = false;
        MP_CHECK(init() == HVD_OK);
        MP_CHECK(hvd_rank() == rank && hvd_size() == size);
        for (int i = 0; i < 3; i++)
            MP_CHECK(reduce(false, &is_over) == HVD_OK);
        hvd_shutdown();
        for (int i = 0; i < 1000 * ((rank + life) % size); i++)
            sched_yield();
    }
    return 0;
}

static int launched_body(int rank, int size, void *arg)
{
    return live_again(rank, size, arg, mp_init);
}

static hvd_status_t init_by_itself(void)
{
    return hvd_init(NULL);
}

/* As under torchrun: rank 0 serves, and hands over the key in a file. */
static int self_served_body(int rank, int size, void *arg)
{
    char text[3][16];
    snprintf(text[0], sizeof text[0], "%d", rank);
    snprintf(text[1], sizeof text[1], "%d", size);
    snprintf(text[2], sizeof text[2], "%d", (int)getppid());
    setenv("RANK", text[0], 1);
    setenv("LOCAL_RANK", text[0], 1);
    setenv("WORLD_SIZE", text[1], 1);
    setenv("LOCAL_WORLD_SIZE", text[1], 1);
    setenv("MASTER_ADDR", "127.0.0.1", 1);
    setenv("MASTER_PORT", "29400", 1);
    setenv("TORCHELASTIC_RUN_ID", text[2], 1);
    return live_again(rank, size, arg, init_by_itself);
}

static void run_lives(mp_body body)
{
    int pipes[2];
    const struct mp_options options = {.is_init_left = true, .expected_signal_rank = -1};
    assert_int_equal(pipe(pipes), 0);
    assert_int_equal(mp_run_with(3, body, pipes, &options), 0);
    close(pipes[0]);
    close(pipes[1]);
}

static void test_lives_launched(void **state)
{
    (void)state;
    run_lives(launched_body);
}

static void test_lives_self_served(void **state)
{
    (void)state;
    run_lives(self_served_body);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_killed_and_replaced), cmocka_unit_test(test_hung_and_replaced),
        cmocka_unit_test(test_dead_before_it_came), cmocka_unit_test(test_lives_launched),
        cmocka_unit_test(test_lives_self_served),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
