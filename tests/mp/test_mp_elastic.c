/* SPDX-License-Identifier: Apache-2.0 */
/* test_mp_elastic.c - elastic jobs from the command line to the end: horovodrun's own code in one
 * process, its real agents, and workers that are killed, stopped, added and removed.
 *
 * This program is the launcher, its agents and its workers, by its first argument. The test acts
 * upon what workers report, never upon time. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "agent.h"
#include "elastic.h"
#include "env.h"
#include "mp.h"
#include "spawn.h"
#include "worker.h"

#define REPORTS_MAX (1u << 20)
#define FIELDS      6

struct bed {
    char folder[64], fifo[80], script[80], hosts[80], end[80], log[80];
    int reports;
    pid_t launcher;
    char text[REPORTS_MAX]; /* all lines so far */
    size_t used;
};

/* ---- the workers ---- */

static volatile sig_atomic_t is_leave_wanted;

static void on_term(int number)
{
    (void)number;
    is_leave_wanted = 1;
}

/* Three sums: how many we are, how many see the end, and how many have news. */
static hvd_status_t step(bool is_ending, bool has_news, float ret_sums[3])
{
    float in[3] = {1, is_ending ? 1 : 0, has_news ? 1 : 0};
    int64_t shape[1] = {3};
    hvd_handle_t handle;
    hvd_op_t op = {.struct_size = sizeof op,
                   .kind = HVD_ALLREDUCE,
                   .name = "count",
                   .input = {.data = in, .dtype = HVD_FLOAT32, .ndim = 1, .shape = shape},
                   .output = {.data = ret_sums, .dtype = HVD_FLOAT32, .ndim = 1, .shape = shape},
                   .reduce = HVD_SUM};
    hvd_status_t status = hvd_submit(&op, &handle);
    if (status == HVD_OK) {
        status = hvd_wait(handle, -1);
        hvd_release(handle);
    }
    if (status == HVD_OK && ret_sums[0] != (float)hvd_size())
        _exit(8);
    return status;
}

static bool is_told(const char *variable, const char *name)
{
    const char *told = getenv(variable);
    return told != NULL && strcmp(told, name) == 0;
}

static void elastic_worker(int reports)
{
    const char *name = getenv("HOROVOD_WORKER"), *end = getenv("HVD_TEST_END");
    signal(SIGTERM, on_term);
    while (getenv("HVD_TEST_HOLD") != NULL && strcmp(name, "0.3") > 0 &&
           access(getenv("HVD_TEST_HOLD"), F_OK) != 0)
        usleep(1000); /* a newcomer that takes its time */
    if (is_told("HVD_TEST_CRASH_SLOT", getenv("HOROVOD_LOCAL_RANK")))
        _exit(7);
    for (;;) {
        float sums[3] = {0};
        uint64_t epoch = 0, notice = 0, version = 0;
        bool is_asked = false;
        report(reports, "%s init %d", name, getpid());
        hvd_status_t status = hvd_init(NULL);
        if (status != HVD_OK) {
            report(reports, "%s out %d %s", name, (int)status, hvd_last_error());
            _exit(status == HVD_ERR_REMOVED ? 0 : REFUSED);
        }
        if (!hvd_generation(&epoch, &notice))
            _exit(9);
        report(reports, "%s run %d %d %d %d %d", name, hvd_rank(), hvd_size(), hvd_local_rank(),
               getpid(), (int)epoch);
        while (status == HVD_OK && sums[1] == 0 && sums[2] == 0) {
            if (is_leave_wanted && !is_asked) {
                is_asked = true;
                if (hvd_leave_request() != HVD_OK)
                    _exit(10);
            }
            status = step(access(end, F_OK) == 0, hvd_notice(notice, &version) != 0, sums);
            usleep(1000);
        }
        report(reports, "%s %s", name, status != HVD_OK ? "broke" : "asked");
        if (status == HVD_OK && sums[1] > 0 && is_told("HVD_TEST_FAIL_LAST", name))
            _exit(5);
        hvd_shutdown();
        if (status == HVD_OK && sums[1] > 0)
            _exit(0);
    }
}

/* ---- the launcher ---- */

static int launch(int argc, char **argv)
{
    struct mem mem;
    struct args args;
    struct error error = {0};
    mem_init(&mem, os_host());
    if (args_parse(&mem, argc, argv, &args, &error) != HVD_OK ||
        elastic_check(&args, &error) != HVD_OK) {
        fprintf(stderr, "horovodrun: error: %s\n", error.text);
        return 2;
    }
    args.start_timeout_s.value = MP_DEADLINE_S;
    if (!args.elastic_timeout_s.is_set)
        args.elastic_timeout_s.value = MP_DEADLINE_S;
    struct job job = {.os = os_host(), .mem = &mem, .args = &args};
    job.self_path = spawn_self_path(&mem);
    env_split_command(&mem, args.command, &job.assignments, &job.command);
    int code = elastic_run(&job);
    mem_destroy(&mem);
    return code;
}

/* ---- the test ---- */

static void bed_open(struct bed *b)
{
    memset(b, 0, sizeof *b);
    snprintf(b->folder, sizeof b->folder, "/tmp/test-elastic-XXXXXX");
    assert_non_null(mkdtemp(b->folder));
    snprintf(b->fifo, sizeof b->fifo, "%s/reports", b->folder);
    snprintf(b->script, sizeof b->script, "%s/script", b->folder);
    snprintf(b->hosts, sizeof b->hosts, "%s/hosts", b->folder);
    snprintf(b->end, sizeof b->end, "%s/end", b->folder);
    snprintf(b->log, sizeof b->log, "%s/log", b->folder);
    assert_int_equal(mkfifo(b->fifo, 0600), 0);
    b->reports = open(b->fifo, O_RDWR | O_NONBLOCK | O_CLOEXEC); /* there is always a writer */
    assert_true(b->reports >= 0);
}

/* `options`: words of the command line, ended by NULL. */
static void bed_start(struct bed *b, const char *const *options)
{
    static char self[4096];
    char *argv[48] = {(char *)"horovodrun"};
    int argc = 1;
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    assert_true(n > 0);
    self[n] = '\0';
    for (; options[argc - 1] != NULL; argc++)
        argv[argc] = (char *)(uintptr_t)options[argc - 1];
    argv[argc++] = self;
    argv[argc++] = (char *)"--worker";
    fflush(NULL);
    b->launcher = fork();
    if (b->launcher == 0) {
        int log = open(b->log, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND, 0600);
        dup2(log, 1);
        dup2(log, 2);
        setenv("HVD_TEST_REPORTS", b->fifo, 1);
        setenv("HVD_TEST_END", b->end, 1);
        exit(launch(argc, argv));
    }
}

static void bed_read(struct bed *b)
{
    ssize_t n = read(b->reports, b->text + b->used, sizeof b->text - 1 - b->used);
    if (n > 0)
        b->used += (size_t)n;
    b->text[b->used] = '\0';
}

static const char *bed_log(const struct bed *b)
{
    static char text[65536];
    int fd = open(b->log, O_RDONLY);
    ssize_t n = fd >= 0 ? read(fd, text, sizeof text - 1) : 0;
    if (fd >= 0)
        close(fd);
    text[n > 0 ? n : 0] = '\0';
    return text;
}

/* The last line of the worker with this word, or NULL. */
static const char *last_line(const struct bed *b, const char *name, const char *word)
{
    char begin[64];
    const char *found = NULL;
    snprintf(begin, sizeof begin, "%s %s", name, word);
    for (const char *at = strstr(b->text, begin); at != NULL; at = strstr(at + 1, begin))
        if ((at == b->text || at[-1] == '\n') && strchr(at, '\n') != NULL)
            found = at;
    return found;
}

struct place {
    int rank, size, local_rank, pid, epoch;
};

static bool last_run(const struct bed *b, const char *name, struct place *ret)
{
    const char *line = last_line(b, name, "run");
    return line != NULL && sscanf(line, "%*s run %d %d %d %d %d", &ret->rank, &ret->size,
                                  &ret->local_rank, &ret->pid, &ret->epoch) == 5;
}

static int64_t deadline(void)
{
    return os_now_ns(os_host()) + MP_DEADLINE_S * 1000000000LL;
}

static void give_up(struct bed *b, const char *what)
{
    kill(b->launcher, SIGTERM);
    waitpid(b->launcher, NULL, 0);
    fail_msg("%s has not come. Reports:\n%s\nLog:\n%s", what,
             b->text + (b->used > 4000 ? b->used - 4000 : 0), bed_log(b));
}

/* Until these workers, ended by NULL, run as ranks 0, 1, ... of a world of just them. */
static void await_world(struct bed *b, const char *const *names)
{
    int64_t until_ns = deadline();
    int count = 0;
    while (names[count] != NULL)
        count++;
    for (;;) {
        bool is_so = true;
        int epoch = 0;
        bed_read(b);
        for (int i = 0; i < count; i++) {
            struct place place = {.rank = -1};
            is_so = is_so && last_run(b, names[i], &place) && place.rank == i &&
                    place.size == count && (i == 0 || place.epoch == epoch);
            epoch = place.epoch;
        }
        if (is_so)
            return;
        if (os_now_ns(os_host()) > until_ns || waitpid(b->launcher, NULL, WNOHANG) != 0)
            give_up(b, "the world that was waited for");
        usleep(2000);
    }
}

static const char *await_line(struct bed *b, const char *name, const char *word)
{
    int64_t until_ns = deadline();
    const char *line = NULL;
    while ((line = last_line(b, name, word)) == NULL) {
        bed_read(b);
        if (os_now_ns(os_host()) > until_ns)
            give_up(b, word);
        usleep(2000);
    }
    return line;
}

static void await_log(struct bed *b, const char *text)
{
    int64_t until_ns = deadline();
    while (strstr(bed_log(b), text) == NULL) {
        bed_read(b);
        if (os_now_ns(os_host()) > until_ns)
            give_up(b, text);
        usleep(2000);
    }
}

static int pid_of(struct bed *b, const char *name)
{
    struct place place;
    assert_true(last_run(b, name, &place));
    return place.pid;
}

static int64_t write_file(const char *path, const char *text, unsigned mode)
{
    char next[96];
    snprintf(next, sizeof next, "%s.next", path);
    int fd = open(next, O_WRONLY | O_CREAT | O_TRUNC, mode);
    ssize_t n = write(fd, text, strlen(text));
    close(fd);
    return rename(next, path) == 0 ? n : -1;
}

/* Newcomers wait before hvd_init() until bed_go_on(). */
static void bed_hold(struct bed *b)
{
    setenv("HVD_TEST_HOLD", b->hosts, 1);
}

static void bed_go_on(struct bed *b)
{
    unsetenv("HVD_TEST_HOLD");
    write_file(b->hosts, "", 0600);
}

/* The exit code of the launcher, which must end by itself; nothing of the job is left then. */
static int bed_wait(struct bed *b)
{
    int64_t until_ns = deadline();
    int status = 0;
    while (waitpid(b->launcher, &status, WNOHANG) == 0) {
        bed_read(b);
        if (os_now_ns(os_host()) > until_ns)
            give_up(b, "the end");
        usleep(2000);
    }
    bed_read(b);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void bed_close(struct bed *b)
{
    close(b->reports);
    const char *const paths[] = {b->fifo, b->script, b->hosts, b->end, b->log};
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++)
        unlink(paths[i]);
    rmdir(b->folder);
}

static void bed_finish(struct bed *b)
{
    write_file(b->end, "", 0600);
    int code = bed_wait(b);
    if (code != 0)
        fail_msg("exit code %d. Log:\n%s", code, bed_log(b));
    bed_close(b);
}

#define WORDS(...) ((const char *const[]){__VA_ARGS__, NULL})

static void test_one_is_killed(void **state)
{
    struct bed *b = *state;
    struct place place;
    bed_hold(b);
    bed_start(b, WORDS("-np", "4", "--min-np", "2"));
    await_world(b, WORDS("0.0", "0.1", "0.2", "0.3"));
    kill(pid_of(b, "0.1"), SIGKILL);
    await_world(b, WORDS("0.0", "0.2", "0.3"));
    bed_go_on(b);
    assert_true(last_run(b, "0.3", &place));
    assert_int_equal(place.local_rank, 3); /* a survivor's never changes */
    await_world(b, WORDS("0.0", "0.2", "0.3", "0.4"));
    assert_true(last_run(b, "0.4", &place));
    assert_int_equal(place.local_rank, 1); /* the newcomer has the slot that was free */
    assert_non_null(strstr(bed_log(b), "rank 1 on localhost (worker 0.1) was killed by signal 9"));
    bed_finish(b);
}

static void test_two_are_killed(void **state)
{
    struct bed *b = *state;
    bed_hold(b);
    bed_start(b, WORDS("-np", "4", "--min-np", "2"));
    await_world(b, WORDS("0.0", "0.1", "0.2", "0.3"));
    kill(pid_of(b, "0.0"), SIGKILL);
    kill(pid_of(b, "0.2"), SIGKILL);
    await_world(b, WORDS("0.1", "0.3"));
    bed_go_on(b);
    await_line(b, "0.4", "run");
    await_line(b, "0.5", "run");
    bed_finish(b);
}

/* Below min-np the survivors wait for the newcomer. */
static void test_all_are_needed(void **state)
{
    struct bed *b = *state;
    bed_start(b, WORDS("-np", "3", "--min-np", "3"));
    await_world(b, WORDS("0.0", "0.1", "0.2"));
    kill(pid_of(b, "0.2"), SIGKILL);
    await_world(b, WORDS("0.0", "0.1", "0.3"));
    bed_finish(b);
}

static void test_newcomer_dies_in_init(void **state)
{
    struct bed *b = *state;
    int pid = 0;
    bed_start(b, WORDS("-np", "3", "--min-np", "3"));
    await_world(b, WORDS("0.0", "0.1", "0.2"));
    kill(pid_of(b, "0.0"), SIGKILL);
    sscanf(await_line(b, "0.3", "init"), "%*s init %d", &pid);
    kill(pid, SIGKILL);
    await_world(b, WORDS("0.1", "0.2", "0.4"));
    bed_finish(b);
}

/* A survivor dies on its way into the next generation. */
static void test_survivor_dies_in_init(void **state)
{
    struct bed *b = *state;
    int pid = 0;
    bed_start(b, WORDS("-np", "4", "--min-np", "2"));
    await_world(b, WORDS("0.0", "0.1", "0.2", "0.3"));
    pid = pid_of(b, "0.2");
    kill(pid_of(b, "0.1"), SIGKILL);
    await_line(b, "0.2", "broke");
    kill(pid, SIGKILL);
    await_line(b, "0.4", "run");
    await_line(b, "0.5", "run");
    bed_finish(b);
}

static void test_hung_is_put_out(void **state)
{
    struct bed *b = *state;
    bed_hold(b);
    bed_start(b, WORDS("-np", "4", "--min-np", "2", "HOROVOD_HUNG_ERROR_SECONDS=1"));
    await_world(b, WORDS("0.0", "0.1", "0.2", "0.3"));
    int pid = pid_of(b, "0.1");
    kill(pid, SIGSTOP);
    await_world(b, WORDS("0.0", "0.2", "0.3"));
    bed_go_on(b);
    kill(pid, SIGCONT); /* awake again, it is refused, unless its end comes first */
    await_world(b, WORDS("0.0", "0.2", "0.3", "0.4"));
    assert_non_null(strstr(bed_log(b), "rank 1 on localhost (worker 0.1) is put out"));
    const char *out = last_line(b, "0.1", "out");
    if (out != NULL)
        assert_int_equal(strncmp(out, "0.1 out -23", 11), 0);
    bed_finish(b);
    int runs = 0;
    for (const char *at = strstr(b->text, "0.1 run"); at != NULL; at = strstr(at + 1, "0.1 run"))
        runs++;
    assert_int_equal(runs, 1);
}

static void test_spare(void **state)
{
    struct bed *b = *state;
    struct place place;
    bed_start(b, WORDS("-np", "3", "--min-np", "3", "--spares", "1", "--verbose"));
    await_world(b, WORDS("0.0", "0.1", "0.2"));
    await_log(b, "worker 0.3 waits as a spare"); /* else a new worker may be faster than it */
    assert_null(last_line(b, "0.3", "run"));
    kill(pid_of(b, "0.1"), SIGKILL);
    await_world(b, WORDS("0.0", "0.2", "0.3"));
    assert_true(last_run(b, "0.3", &place));
    assert_int_equal(place.local_rank, 1);
    await_log(b, "worker 0.4 waits as a spare"); /* the next one */
    kill(pid_of(b, "0.0"), SIGKILL);
    await_world(b, WORDS("0.2", "0.3", "0.4"));
    bed_finish(b);
    assert_null(last_line(b, "0.5", "run"));
}

static void script_write(struct bed *b, const char *hosts)
{
    char text[256];
    assert_true(write_file(b->hosts, hosts, 0600) >= 0);
    snprintf(text, sizeof text, "#!/bin/sh\ncat %s\n", b->hosts);
    assert_true(write_file(b->script, text, 0700) >= 0);
}

static void test_hosts_come_and_go(void **state)
{
    struct bed *b = *state;
    struct place place;
    script_write(b, "localhost:2\n");
    bed_start(b, WORDS("-np", "2", "--min-np", "1", "--host-discovery-script", b->script));
    await_world(b, WORDS("0.0", "0.1"));
    script_write(b, "127.0.0.1\nlocalhost:2\n\n");
    await_world(b, WORDS("0.0", "0.1", "1.0"));
    assert_true(last_run(b, "1.0", &place));
    assert_int_equal(place.local_rank, 0);
    script_write(b, "127.0.0.1\nlocalhost:1\n");
    await_world(b, WORDS("0.0", "1.0"));
    assert_non_null(strstr(await_line(b, "0.1", "out -42"), "has fewer slots now"));
    script_write(b, "127.0.0.1:1\n"); /* the oldest goes: the state is handed over before */
    await_world(b, WORDS("1.0"));
    assert_non_null(strstr(await_line(b, "0.0", "out -42"), "no longer available"));
    script_write(b, "127.0.0.1:2\n");
    await_world(b, WORDS("1.0", "1.1"));
    bed_finish(b);
}

static void test_all_hosts_change_at_once(void **state)
{
    struct bed *b = *state;
    script_write(b, "localhost:2\n");
    bed_start(b, WORDS("-np", "2", "--min-np", "2", "--host-discovery-script", b->script));
    await_world(b, WORDS("0.0", "0.1"));
    script_write(b, "127.0.0.1:2\n");
    await_line(b, "0.0", "out -42");
    await_line(b, "0.1", "out -42");
    await_line(b, "1.0", "run");
    await_line(b, "1.1", "run");
    bed_finish(b);
    assert_null(last_line(b, "1.0", "broke"));
}

static void test_polite_leave(void **state)
{
    struct bed *b = *state;
    bed_start(b, WORDS("-np", "3", "--min-np", "1"));
    await_world(b, WORDS("0.0", "0.1", "0.2"));
    kill(pid_of(b, "0.0"), SIGTERM);
    await_world(b, WORDS("0.1", "0.2"));
    assert_non_null(strstr(await_line(b, "0.0", "out -42"), "asked to leave"));
    assert_null(last_line(b, "0.1", "broke"));
    bed_finish(b);
    assert_null(last_line(b, "0.3", "init")); /* nobody takes its place */
}

static void test_slot_that_crashes(void **state)
{
    struct bed *b = *state;
    setenv("HVD_TEST_CRASH_SLOT", "1", 1);
    bed_start(b, WORDS("-np", "3", "--min-np", "2"));
    unsetenv("HVD_TEST_CRASH_SLOT");
    await_world(b, WORDS("0.0", "0.2"));
    await_log(b, "slot 1 has failed 5 times in a row");
    bed_finish(b);
}

static void test_crashes_end_it(void **state)
{
    struct bed *b = *state;
    setenv("HVD_TEST_CRASH_SLOT", "1", 1);
    bed_start(b, WORDS("-np", "2", "--min-np", "2"));
    unsetenv("HVD_TEST_CRASH_SLOT");
    assert_int_equal(bed_wait(b), 7);
    const char *log = bed_log(b);
    assert_non_null(strstr(log, "Too few workers can be started (--min-np)"));
    assert_non_null(strstr(log, "exited with code 7"));
    bed_close(b);
}

static void test_all_are_killed(void **state)
{
    struct bed *b = *state;
    bed_start(b, WORDS("-np", "2", "--min-np", "1"));
    await_world(b, WORDS("0.0", "0.1"));
    int first = pid_of(b, "0.0"), second = pid_of(b, "0.1");
    kill(first, SIGSTOP); /* or one of them comes back before it dies, too */
    kill(second, SIGSTOP);
    kill(first, SIGKILL);
    kill(second, SIGKILL);
    assert_int_equal(bed_wait(b), 128 + SIGKILL);
    assert_non_null(strstr(bed_log(b), "No worker of generation 1 is left"));
    bed_close(b);
}

static void test_reset_limit(void **state)
{
    struct bed *b = *state;
    bed_start(b, WORDS("-np", "3", "--min-np", "2", "--reset-limit", "0"));
    await_world(b, WORDS("0.0", "0.1", "0.2"));
    kill(pid_of(b, "0.1"), SIGKILL);
    assert_int_equal(bed_wait(b), 128 + SIGKILL);
    assert_non_null(strstr(bed_log(b), "Horovod was shutdown because number of resets during "
                                       "elastic job exceeded limit: 0"));
    bed_close(b);
}

static void test_fails_at_the_end(void **state)
{
    struct bed *b = *state;
    setenv("HVD_TEST_FAIL_LAST", "0.1", 1);
    bed_start(b, WORDS("-np", "2", "--min-np", "2"));
    unsetenv("HVD_TEST_FAIL_LAST");
    await_world(b, WORDS("0.0", "0.1"));
    write_file(b->end, "", 0600);
    assert_int_equal(bed_wait(b), 5);
    bed_close(b);
}

static void refused(struct bed *b, const char *const *options, int code, const char *text)
{
    bed_start(b, options);
    int got = bed_wait(b);
    if (got != code || strstr(bed_log(b), text) == NULL)
        fail_msg("exit code %d, expected %d; \"%s\" in\n%s", got, code, text, bed_log(b));
}

static void test_bad_input(void **state)
{
    struct bed *b = *state;
    const char *script = "--host-discovery-script";
    refused(b, WORDS("-np", "2", "--min-np", "3"), 2, "--min-np 3 is over -np 2");
    refused(b, WORDS("-np", "2", "--min-np", "2", "--max-np", "1"), 2,
            "--max-np 1 is under --min-np 2");
    refused(b, WORDS("-np", "4", "--min-np", "2", "-H", "localhost:2"), 1,
            "The hosts have 2 slots, and 4 are needed (-np).");
    refused(b, WORDS("-np", "1", script, "exit 3"), 1, "Exit code: 3");
    refused(b, WORDS("-np", "1", script, "/no/such/script"), 1, "Exit code: 127");
    refused(b, WORDS("-np", "1", script, "echo 'a b:c'"), 1,
            "line 1 is 'a b:c', which is neither HOST nor HOST:SLOTS");
    refused(b, WORDS("-np", "1", script, "echo localhost:1; echo localhost:2"), 1,
            "host localhost is listed twice, with 1 and with 2 slots");
    refused(b, WORDS("-np", "1", "--elastic-timeout", "1", script, "sleep 1000"), 1,
            "was ended after 1 s without an answer: sleep 1000");
    refused(b, WORDS("-np", "1", "--elastic-timeout", "1", script, "true"), 1,
            "there are 0 slots, and 1 are needed (-np)");
    refused(b, WORDS("-np", "3", "--elastic-timeout", "1", script, "echo localhost:2"), 1,
            "there are 2 slots, and 3 are needed (-np)");
    refused(b, WORDS("-np", "1", "--min-np", "1", "--blacklist-cooldown-range", "0", "5"), 2,
            "--blacklist-cooldown-range needs 1 <= LOW <= HIGH <= 3600");
    refused(b, WORDS("-np", "1", "--min-np", "1", "--spares", "-1"), 2, "--spares must be");
    refused(b, WORDS("-np", "1", "--min-np", "1", "--mpi"), 2, "can't be started with --mpi");
    bed_close(b);
}

/* A script that breaks while the job runs changes nothing. */
static void test_script_breaks_later(void **state)
{
    struct bed *b = *state;
    script_write(b, "localhost:2\nlocalhost:2\n");
    bed_start(b, WORDS("-np", "2", "--min-np", "1", "--host-discovery-script", b->script));
    await_world(b, WORDS("0.0", "0.1"));
    await_log(b, "has listed host localhost more than once");
    script_write(b, "");
    await_log(b, "has listed no host; the hosts known so far are kept");
    script_write(b, "localhost:3\n");
    await_world(b, WORDS("0.0", "0.1", "0.2"));
    script_write(b, "what is this\n");
    await_log(b, "'what is this', which is neither HOST nor HOST:SLOTS");
    script_write(b, "localhost:2\n");
    await_world(b, WORDS("0.0", "0.1"));
    write_file(b->script, "#!/bin/sh\nexit 3\n", 0700);
    await_log(b, "Exit code: 3");
    bed_finish(b);
}

static int set_up(void **state)
{
    struct bed *b = malloc(sizeof *b);
    bed_open(b);
    *state = b;
    return 0;
}

static int tear_down(void **state)
{
    free(*state);
    return 0;
}

#define TEST(name) cmocka_unit_test_setup_teardown(test_##name, set_up, tear_down)

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        TEST(one_is_killed),
        TEST(two_are_killed),
        TEST(all_are_needed),
        TEST(newcomer_dies_in_init),
        TEST(survivor_dies_in_init),
        TEST(hung_is_put_out),
        TEST(spare),
        TEST(hosts_come_and_go),
        TEST(all_hosts_change_at_once),
        TEST(polite_leave),
        TEST(slot_that_crashes),
        TEST(crashes_end_it),
        TEST(all_are_killed),
        TEST(reset_limit),
        TEST(fails_at_the_end),
        TEST(bad_input),
        TEST(script_breaks_later),
    };
    if (argc > 1 && strcmp(argv[1], "--local-agent") == 0)
        return agent_main(os_host(), true);
    if (argc > 1 && strcmp(argv[1], "--worker") == 0)
        elastic_worker(open(getenv("HVD_TEST_REPORTS"), O_WRONLY | O_CLOEXEC));
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
