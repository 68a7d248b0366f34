/* SPDX-License-Identifier: Apache-2.0 */
/* test_sim_rogue.c - a rank with the right key that violates the protocol: single messages, each of
 * which causes an error that names it on every rank; then many mutated ones (rogue_soak runs more).
 * Messages are passed to an engine as if a link had delivered them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "engine/engine_private.h"
#include "engine/message.h"
#include "sim_job.h"
#include "sim_rogue.h"

#define MS     1000000LL
#define RANKS  3
#define FLOATS 8
#if HVD_TEST_QUICK
#define TRIALS 300
#else
#define TRIALS 3000
#endif

struct bed {
    struct job job;
    float data[RANKS][2][FLOATS];
    struct ticket *tickets[RANKS][2];
};

static void submit(struct bed *bed, int32_t rank, int slot, hvd_kind_t kind, const char *name)
{
    bed->tickets[rank][slot] = job_submit(&bed->job, rank, kind, name, bed->data[rank][slot], 4);
}

/* "known" is cached on all ranks as id 1; then all but rank `late` have submitted "waits". */
static void bed_open(struct bed *bed, int32_t late)
{
    memset(bed, 0, sizeof *bed);
    job_defaults(&bed->job);
    bed->job.config.plan_disable = true;
    job_open(
        &bed->job, os_host(),
        (struct sim_world_options){.ranks = RANKS, .hosts = 1, .seed = 1, .delay_max_ns = 1000});
    for (int32_t r = 0; r < RANKS; r++)
        submit(bed, r, 0, HVD_ALLREDUCE, "known");
    job_run_for(&bed->job, 100 * MS);
    for (int32_t r = 0; r < RANKS; r++) {
        assert_int_equal(ticket_status(bed->tickets[r][0]), HVD_OK);
        ticket_release(sim_world_engine(bed->job.world, r), bed->tickets[r][0]);
        bed->tickets[r][0] = NULL;
        if (r != late)
            submit(bed, r, 0, HVD_ALLREDUCE, "waits");
    }
    job_run_for(&bed->job, 100 * MS);
}

static struct message_head head_now(struct bed *bed, uint8_t type)
{
    const struct procset *set = sim_world_engine(bed->job.world, 0)->sets[0];
    return (struct message_head){
        .type = type, .incarnation = set->incarnation, .generation = set->generation};
}

static struct request request_now(int32_t rank, const char *name)
{
    struct request q = sim_rogue_request(name, 4);
    q.rank = rank;
    return q;
}

static void say(struct bed *bed, int32_t from, int32_t to, const struct writer *w)
{
    struct transport_events events = control_events(sim_world_engine(bed->job.world, to));
    assert_false(w->bad);
    events.message(events.ctx, from, w->bytes, w->used);
    sim_world_wake(bed->job.world, to, 0);
}

/* Every waiting op of every rank ends with an error about the protocol that names `rogue`. */
static void expect_named(struct bed *bed, int32_t rogue, const char *what)
{
    char name[24];
    snprintf(name, sizeof name, "rank %d", rogue);
    job_run_for(&bed->job, 200 * MS);
    for (int32_t r = 0; r < RANKS; r++)
        for (int slot = 0; slot < 2; slot++) {
            const struct ticket *ticket = bed->tickets[r][slot];
            if (ticket == NULL)
                continue;
            int32_t status = ticket_status(ticket);
            const char *text = ticket_error(ticket);
            if (status != HVD_ERR_CORRUPT || strstr(text, name) == NULL ||
                strstr(text, what) == NULL)
                fail_msg("rank %d: %d, %s (expected %s, %s)", r, status, text, name, what);
        }
    sim_world_destroy(bed->job.world);
}

/* A message of a rogue to another rank. */
struct letter {
    struct bed bed;
    uint8_t bytes[4096];
    struct writer w;
};

static struct writer *letter_begin(struct letter *l, uint8_t type)
{
    bed_open(&l->bed, 2);
    struct message_head head = head_now(&l->bed, type);
    writer_init(&l->w, l->bytes, sizeof l->bytes);
    message_head_put(&l->w, &head);
    return &l->w;
}

static void letter_send(struct letter *l, int32_t from, int32_t to, const char *what)
{
    say(&l->bed, from, to, &l->w);
    expect_named(&l->bed, from, what);
}

static void ready_case(const uint32_t *ids, uint32_t count, const char *what)
{
    struct letter l;
    struct writer *w = letter_begin(&l, MESSAGE_READY);
    put_u32(w, count);
    for (uint32_t i = 0; i < count; i++)
        put_u32(w, ids[i]);
    letter_send(&l, 1, 0, what);
}

static void test_ready(void **state)
{
    (void)state;
    ready_case((const uint32_t[]){1, 1}, 2, "announced known twice");
    ready_case((const uint32_t[]){0}, 1, "id 0");
    ready_case((const uint32_t[]){4711}, 1, "id 4711");
    ready_case((const uint32_t[]){0x80000000}, 1, "does not exist");
    ready_case(NULL, 0, "can't be read");
}

static void request_case(const struct request *q, const char *what)
{
    struct letter l;
    struct writer *w = letter_begin(&l, MESSAGE_REQUEST);
    put_u32(w, 1);
    message_request_put(w, q);
    letter_send(&l, 1, 0, what);
}

static void test_request(void **state)
{
    (void)state;
    struct request q = request_now(1, "waits");
    request_case(&q, "announced waits twice");
    q.rank = 2;
    request_case(&q, "for rank 2");
    q.rank = 77;
    request_case(&q, "can't be read");
    q = request_now(1, "new");
    q.kind = 99;
    request_case(&q, "can't be read");
    q = request_now(1, "new");
    q.shape[0] = -1;
    request_case(&q, "can't be read");
    q = request_now(1, "join.noname");
    request_case(&q, "can't be read");
    q = request_now(1, "process_set.remove");
    q.kind = KIND_SET_REMOVE;
    request_case(&q, "can't be read");
    q = request_now(1, "process_set.close");
    q.kind = KIND_SET_CLOSE;
    request_case(&q, "can't be read");
}

/* One rank's first dimension alone makes the result larger than any memory. */
static void test_absurd_rows(void **state)
{
    (void)state;
    struct bed bed;
    uint8_t bytes[2048];
    struct writer w;
    bed_open(&bed, -1);
    job_run_for(&bed.job, 100 * MS);
    for (int32_t r = 0; r < RANKS; r++)
        if (r != 1)
            submit(&bed, r, 1, HVD_ALLGATHER, "rows");
    struct request q = request_now(1, "rows");
    q.kind = HVD_ALLGATHER;
    q.shape[0] = INT64_MAX / 16;
    struct message_head head = head_now(&bed, MESSAGE_REQUEST);
    writer_init(&w, bytes, sizeof bytes);
    message_head_put(&w, &head);
    put_u32(&w, 1);
    message_request_put(&w, &q);
    say(&bed, 1, 0, &w);
    job_run_for(&bed.job, 200 * MS);
    for (int32_t r = 0; r < RANKS; r += 2) {
        assert_int_equal(ticket_status(bed.tickets[r][1]), HVD_ERR_LIMIT);
        assert_non_null(strstr(ticket_error(bed.tickets[r][1]), "rank 1"));
    }
    sim_world_destroy(bed.job.world);
}

static void head_case(struct message_head head, uint32_t body, const char *what)
{
    struct bed bed;
    uint8_t bytes[64];
    struct writer w;
    bed_open(&bed, 2);
    struct message_head now = head_now(&bed, head.type);
    head.incarnation = head.incarnation != 0 ? head.incarnation : now.incarnation;
    head.generation = head.generation != 0 ? head.generation : now.generation;
    writer_init(&w, bytes, sizeof bytes);
    message_head_put(&w, &head);
    if (body != 0)
        put_u32(&w, body);
    say(&bed, 1, 0, &w);
    expect_named(&bed, 1, what);
}

static void test_head(void **state)
{
    (void)state;
    head_case((struct message_head){.type = 99}, 0, "can't be read");
    head_case((struct message_head){.type = MESSAGE_READY, .set = 5000}, 0, "can't be read");
    head_case((struct message_head){.type = MESSAGE_READY, .set = 9}, 0, "never was");
    head_case((struct message_head){.type = MESSAGE_READY, .incarnation = 99}, 0, "never was");
    head_case((struct message_head){.type = MESSAGE_READY, .generation = 99}, 0, "generation 99");
    head_case((struct message_head){.type = MESSAGE_NUDGE, .flags = 0x80}, 0, "flags");
    head_case((struct message_head){.type = MESSAGE_RESPONSE}, 0, "only goes down");
    head_case((struct message_head){.type = MESSAGE_COMMIT}, 0, "only goes down");
    head_case((struct message_head){.type = MESSAGE_POSITION}, 1, "position");
    head_case((struct message_head){.type = MESSAGE_SHUTDOWN}, 7, "shutdown");
    head_case((struct message_head){.type = MESSAGE_STUCK}, 7, "report of waiting ranks");
    head_case((struct message_head){.type = MESSAGE_ABORT}, 7, "without a cause");
    head_case((struct message_head){.type = MESSAGE_LEAVE}, 7, "left");
}

/* A response that rank 1 takes from rank 0. */
static void response_case(void (*fill)(struct writer *w), const char *what)
{
    struct letter l;
    struct writer *w = letter_begin(&l, MESSAGE_RESPONSE);
    fill(w);
    letter_send(&l, 0, 1, what);
}

static void put_batch_of(struct writer *w, uint32_t id)
{
    put_u8(w, ITEM_BATCH);
    put_u32(w, 1);
    put_u32(w, id);
}

static void put_batch(struct writer *w)
{
    put_batch_of(w, 1);
}

static void put_batch_unknown(struct writer *w)
{
    put_batch_of(w, 999);
}

static void put_batch_huge(struct writer *w)
{
    put_u8(w, ITEM_BATCH);
    put_u32(w, 0xffffffff);
}

static void put_define(struct writer *w, uint32_t id, const struct request *q)
{
    put_u8(w, ITEM_DEFINE);
    put_u32(w, id);
    message_request_put(w, q);
    put_u8(w, 0);
}

static void put_define_other(struct writer *w)
{
    struct request q = request_now(0, "waits");
    q.dtype = HVD_FLOAT64;
    put_define(w, 2, &q);
    put_batch_of(w, 2);
}

static void put_define_rows(struct writer *w)
{
    struct request q = request_now(0, "rows");
    q.kind = HVD_ALLGATHER; /* without rows */
    put_define(w, 2, &q);
}

static void put_define_far(struct writer *w)
{
    struct request q = request_now(0, "far");
    put_define(w, 0x70000000, &q);
}

static void put_plan_twice(struct writer *w)
{
    put_u8(w, ITEM_PLAN);
    put_u32(w, 4);
    put_u32(w, 1);
    put_u32(w, 0);
    put_u32(w, 1);
    put_u32(w, 0);
}

static void put_set_add(struct writer *w)
{
    put_u8(w, ITEM_SET_ADD);
    put_u32(w, 0);
    put_u32(w, 2);
    put_u32(w, 1);
    put_u32(w, 0);
}

static void put_joined(struct writer *w)
{
    put_u8(w, ITEM_JOINED);
    put_u32(w, 1);
}

static void put_tunables(struct writer *w, uint8_t form, uint64_t version, uint32_t flows)
{
    put_u8(w, ITEM_TUNE);
    put_u8(w, form);
    put_u64(w, version);
    put_i64(w, 1 << 20);
    put_i64(w, 1000000);
    put_i64(w, -1);
    put_u32(w, flows);
    put_u32(w, 100);
}

static void put_tune_form(struct writer *w)
{
    put_tunables(w, 2, 1, 4);
}

static void put_tune_old(struct writer *w)
{
    put_tunables(w, 1, 0, 4);
}

static void put_tune_twice(struct writer *w)
{
    put_tunables(w, 1, 7, 4);
    put_tunables(w, 1, 7, 4);
}

static void put_tune_flows(struct writer *w)
{
    put_tunables(w, 1, 1, 0x80000004);
}

static void put_tune_short(struct writer *w)
{
    put_tunables(w, 1, 1, 4);
    w->used -= 4;
}

static void put_unknown(struct writer *w)
{
    put_u8(w, 200);
}

static void test_response(void **state)
{
    (void)state;
    response_case(put_batch, "has not announced");
    response_case(put_batch_unknown, "do not fit");
    response_case(put_batch_huge, "at once");
    response_case(put_define_other, "otherwise than");
    response_case(put_define_rows, "impossible first dimensions");
    response_case(put_define_far, "after id 1");
    response_case(put_plan_twice, "do not fit");
    response_case(put_set_add, "process set");
    response_case(put_joined, "join");
    response_case(put_tune_form, "tunables of the unknown form 2");
    response_case(put_tune_old, "sent version 0 of the tunables after version 0");
    response_case(put_tune_twice, "sent version 7 of the tunables after version 7");
    response_case(put_tune_flows, "the tunable tcp_flows can't be -2147483644 (1 to 32)");
    response_case(put_tune_short, "tunables that end early");
    response_case(put_unknown, "unknown kind");
}

/* A response past the tree: from a rank that is nobody's parent. */
static void test_past_the_tree(void **state)
{
    (void)state;
    struct letter l;
    struct writer *w = letter_begin(&l, MESSAGE_RESPONSE);
    put_unknown(w);
    letter_send(&l, 2, 1, "past its parent");
}

static void run_trial(uint64_t seed, struct sim_rogue_report *ret)
{
    struct sim_rogue_options options = {.seed = seed};
    if (!sim_rogue_run(os_host(), &options, ret))
        fail_msg("trial %llu: %s", (unsigned long long)seed, ret->verdict.text);
}

static void test_mutations(void **state)
{
    (void)state;
    struct sim_rogue_report report, sum = {0};
    for (uint64_t seed = 1; seed <= TRIALS; seed++) {
        run_trial(seed, &report);
        sim_rogue_add(&sum, &report);
    }
    assert_true(sum.mutated > TRIALS / 4 && sum.refused > TRIALS / 4);
    run_trial(122688, &report); /* a coordinator that fails an op with an error of the protocol */
    /* ops announced again after all had announced them, while the other rank has joined */
    run_trial(742996, &report);
    run_trial(1102104, &report);
    run_trial(1622452, &report);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ready),       cmocka_unit_test(test_request),
        cmocka_unit_test(test_absurd_rows), cmocka_unit_test(test_head),
        cmocka_unit_test(test_response),    cmocka_unit_test(test_past_the_tree),
        cmocka_unit_test(test_mutations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
