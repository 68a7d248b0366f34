/* SPDX-License-Identifier: Apache-2.0 */
/* test_mpi.c - the MPI library found at run time, and the transport over it.
 *
 * Runs as a world of one: both ends of the conformance pair are in this process, on two
 * communicators, one for each direction. HOROVOD_MPI_LIBRARY chooses the library; without any on
 * this machine everything is skipped. Time is virtual, so that a silent peer is detected at once.
 * Start reading at pair_open(). */
#include "transport_conformance.h"

#include <limits.h>
#include <stdio.h>
#include <unistd.h>

#include "transport/mpi/mpi_internal.h"

#define DEADLINE_S 600 /* ends a hang */
#define TURN_NS    1000000

/* MPI libraries keep memory until the process ends; test_memory() counts ours. */
__attribute__((visibility("default"))) int __lsan_is_turned_off(void);
int __lsan_is_turned_off(void)
{
    return 1;
}

static struct mpi_lib *lib;
static int64_t clock_ns;

static int64_t clock_now(void *ctx)
{
    (void)ctx;
    return clock_ns += 100;
}

/* Ends are closed together, as ranks do it: while the first waits for the second's goodbye, the
 * second is closed, and while that one waits the first is driven. */
static struct transport *closing_first, *closing_second;

static void clock_sleep(void *ctx, int64_t ns)
{
    struct transport *second = closing_second;
    (void)ctx;
    clock_ns += ns;
    closing_second = NULL;
    if (second != NULL)
        second->ops->destroy(second);
    else if (closing_first != NULL)
        closing_first->ops->progress(closing_first, clock_ns);
}

/* --- a world of two in a process of one ---
 * Each end has a copy of the library's table in which the other end is rank 0 of one of two
 * communicators: what end i sends goes through comms[i]. */

struct ends {
    struct os os;
    struct mpi_lib libs[2];
    mpi_handle_t comms[2];
    struct mpi *mpi[2];
    int bell_fd[2];
};

static struct mpi_abi paired;
static struct ends *current;

static int self_of(const struct mpi_lib *end)
{
    return end == &current->libs[1] ? 1 : 0;
}

static int paired_isend(const struct mpi_lib *end, const void *bytes, int count, mpi_handle_t type,
                        int to, int tag, mpi_handle_t comm, mpi_handle_t *ret_request)
{
    int self = self_of(end);
    (void)comm;
    assert_int_equal(to, 1 - self);
    return lib->abi->isend(lib, bytes, count, type, 0, tag, current->comms[self], ret_request);
}

static int paired_irecv(const struct mpi_lib *end, void *bytes, int count, mpi_handle_t type,
                        int from, int tag, mpi_handle_t comm, mpi_handle_t *ret_request)
{
    int self = self_of(end);
    (void)comm;
    assert_int_equal(from, 1 - self);
    return lib->abi->irecv(lib, bytes, count, type, 0, tag, current->comms[1 - self], ret_request);
}

static int paired_improbe(const struct mpi_lib *end, int from, int tag, mpi_handle_t comm,
                          bool *ret_found, mpi_handle_t *ret_message, struct mpi_status *ret_status)
{
    int self = self_of(end);
    (void)comm, (void)from;
    int code = lib->abi->improbe(lib, lib->any_source, tag, current->comms[1 - self], ret_found,
                                 ret_message, ret_status);
    ret_status->source = 1 - self;
    return code;
}

static int paired_comm_dup(const struct mpi_lib *end, mpi_handle_t comm, mpi_handle_t *ret)
{
    (void)end;
    *ret = comm;
    return 0;
}

static int paired_comm_free(const struct mpi_lib *end, mpi_handle_t *comm)
{
    (void)end, (void)comm; /* pair_close() does it */
    return 0;
}

static void pair_open(struct conformance_pair *pair)
{
    static const bool wanted[2][2] = {{false, true}, {true, false}};
    struct ends *ends = calloc(1, sizeof *ends);
    struct error error = {0};
    assert_non_null(ends);
    ends->os = *os_host();
    ends->os.now_ns = clock_now;
    ends->os.sleep_ns = clock_sleep;
    pair->ctx = current = ends;
    paired = *lib->abi;
    paired.isend = paired_isend;
    paired.irecv = paired_irecv;
    paired.improbe = paired_improbe;
    paired.comm_dup = paired_comm_dup;
    paired.comm_free = paired_comm_free;
    static const struct config config;
    for (int i = 0; i < 2; i++) {
        const struct os *os = &ends->os;
        ends->libs[i] = *lib;
        ends->libs[i].abi = &paired;
        assert_int_equal(mpi_lib_comm_own(lib, lib->comm_self, &ends->comms[i], &error), HVD_OK);
        struct mpi_job job = {.lib = &ends->libs[i], .comm = ends->comms[i]};
        assert_int_equal(mpi_create(os, &config, &job, i, 2, &ends->mpi[i], &error), HVD_OK);
        assert_int_equal(mpi_connect(ends->mpi[i], wanted[i], &pair->events[i], &error), HVD_OK);
        pair->end[i] = mpi_transport(ends->mpi[i]);
        pair->rank[i] = i;
        assert_true(pair->end[i]->ops->poll_ns(pair->end[i]) > 0);
        /* Nothing rings for MPI, the driver looks again by itself: a bell that always rings. */
        pair->poll_fd[i] = os->poll_create(os->ctx);
        ends->bell_fd[i] = os->bell_create(os->ctx);
        assert_int_equal(os->poll_add(os->ctx, pair->poll_fd[i], ends->bell_fd[i], NULL, false), 0);
        os->bell_ring(os->ctx, ends->bell_fd[i]);
    }
}

static bool pair_turn(struct conformance_pair *pair, int end)
{
    clock_ns += TURN_NS;
    return pair->end[end]->ops->progress(pair->end[end], clock_ns);
}

/* The end is never driven again; MPI itself does not notice. */
static void pair_crash(struct conformance_pair *pair, int end)
{
    pair->end[end] = NULL;
}

static void ends_close(struct ends *ends)
{
    int64_t start_ns = clock_ns;
    struct transport *first = mpi_transport(ends->mpi[0]);
    closing_first = first;
    closing_second = mpi_transport(ends->mpi[1]);
    first->ops->destroy(first);
    closing_first = NULL;
    assert_null(closing_second);
    assert_true(clock_ns - start_ns < 1000000000);
    for (int i = 0; i < 2; i++)
        assert_int_equal(lib->abi->comm_free(lib, &ends->comms[i]), 0);
}

static void pair_close(struct conformance_pair *pair)
{
    struct ends *ends = pair->ctx;
    const struct os *os = &ends->os;
    bool is_clean = !mpi_has_lost(ends->mpi[0]) && !mpi_has_lost(ends->mpi[1]) &&
                    pair->end[0] != NULL && pair->end[1] != NULL;
    if (is_clean)
        ends_close(ends);
    for (int i = 0; i < 2; i++) {
        struct transport *t = mpi_transport(ends->mpi[i]);
        if (!is_clean)
            t->ops->destroy(t);
        os->close(os->ctx, pair->poll_fd[i]);
        os->close(os->ctx, ends->bell_fd[i]);
    }
    free(ends);
}

static struct conformance mpi_pair = {
    .open = pair_open, .close = pair_close, .turn = pair_turn, .crash = pair_crash};

/* --- more than the suite asks --- */

static void run_turns(struct conformance_pair *pair, int count)
{
    for (int i = 0; i < count; i++) {
        pair_turn(pair, 0);
        pair_turn(pair, 1);
    }
}

static void test_goodbye(void **state)
{
    struct conformance_pair pair;
    (void)state;
    conformance_open(&mpi_pair, &pair);
    struct ends *ends = pair.ctx;
    struct transport *b = pair.end[1];
    conformance_send(&mpi_pair, &pair, 0, "last", 4);
    pair.end[0]->ops->destroy(pair.end[0]);
    for (int i = 0; i < 1000 && pair.log[1].downs == 0; i++)
        pair_turn(&pair, 1);
    assert_int_equal(pair.log[1].downs, 1);
    assert_int_equal(pair.log[1].down_status, HVD_ERR_LINK);
    assert_int_equal(pair.log[1].count, 1); /* what came before was delivered before */
    assert_false(mpi_has_lost(ends->mpi[1]));
    b->ops->destroy(b);
    for (int i = 0; i < 2; i++) {
        lib->abi->comm_free(lib, &ends->comms[i]);
        os_host()->close(NULL, pair.poll_fd[i]);
        os_host()->close(NULL, ends->bell_fd[i]);
        free(pair.log[i].bytes);
    }
    free(ends);
}

static void test_memory(void **state)
{
    uint64_t before = 0, after = 0, total = 0;
    os_host_alloc_counts(&before, &total);
    conformance_order(state);
    conformance_streams(state);
    conformance_cancel(state);
    os_host_alloc_counts(&after, &total);
    assert_int_equal(before, after);
}

static void test_silence(void **state)
{
    struct conformance_pair pair;
    (void)state;
    conformance_open(&mpi_pair, &pair);
    /* Heartbeats keep a quiet pair up for any time. */
    for (int second = 0; second < 600; second++) {
        clock_ns += 1000000000;
        run_turns(&pair, 20);
    }
    assert_int_equal(pair.log[0].downs + pair.log[1].downs, 0);
    struct transport *a = pair.end[0];
    int64_t heard_ns = a->ops->last_heard_ns(a, 1, clock_ns);
    assert_true(clock_ns - heard_ns < 3000000000LL);
    conformance_close(&mpi_pair, &pair);
}

static void test_length_mismatch(void **state)
{
    struct conformance_pair pair;
    static uint8_t out[100], in[100];
    (void)state;
    for (int longer = 0; longer < 2; longer++) {
        conformance_open(&mpi_pair, &pair);
        struct ends *ends = pair.ctx;
        struct transport *a = pair.end[0], *b = pair.end[1];
        struct transport_req send, recv;
        assert_int_equal(a->ops->bulk_send(a, 1, 7, out, longer ? 100 : 40, &send), HVD_OK);
        assert_int_equal(b->ops->bulk_recv(b, 0, 7, in, 60, &recv), HVD_OK);
        for (int i = 0; i < 1000 && pair.log[1].downs == 0; i++)
            run_turns(&pair, 1);
        assert_int_equal(pair.log[1].downs, 1);
        assert_true(recv.status < 0);
        assert_true(mpi_has_lost(ends->mpi[1]));
        conformance_close(&mpi_pair, &pair);
    }
}

static void test_limits(void **state)
{
    struct conformance_pair pair;
    struct transport_req req;
    uint8_t byte = 0;
    (void)state;
    conformance_open(&mpi_pair, &pair);
    struct transport *a = pair.end[0];
    assert_true(a->ops->bulk_send(a, 1, UINT32_MAX, &byte, 1, &req) < 0);
    assert_true(a->ops->bulk_send(a, 0, 1, &byte, 1, &req) < 0); /* oneself */
    assert_false(a->ops->reaches(a, 2));
    assert_false(a->ops->reaches(a, -1));
    conformance_close(&mpi_pair, &pair);
}

/* --- the table --- */

static void sum_bytes(void *in, void *inout, int *count, void *type)
{
    (void)type;
    for (int i = 0; i < *count; i++)
        ((uint8_t *)inout)[i] = (uint8_t)(((uint8_t *)inout)[i] + ((uint8_t *)in)[i]);
}

static void await(mpi_handle_t request)
{
    bool is_done = false;
    for (int i = 0; i < 1000000 && !is_done; i++)
        assert_int_equal(lib->abi->test(lib, &request, 0, &is_done, NULL), 0);
    assert_true(is_done);
    assert_true(request == lib->request_null);
}

static void test_table_collectives(void **state)
{
    const struct mpi_abi *abi = lib->abi;
    const int count = 3, zero = 0;
    int64_t in[3] = {1, -2, 3}, out[3] = {0};
    mpi_handle_t comm, request, type = lib->types[MPI_TYPE_INT64];
    struct error error = {0};
    (void)state;
    assert_int_equal(mpi_lib_comm_own(lib, lib->comm_self, &comm, &error), HVD_OK);
    for (int op = 0; op < MPI_OPERATION_COUNT; op++) {
        memset(out, 0, sizeof out);
        assert_int_equal(abi->iallreduce(lib, in, out, 3, type, lib->ops[op], comm, &request), 0);
        await(request);
        assert_memory_equal(in, out, sizeof in);
    }
    for (int t = 0; t < MPI_TYPE_COUNT; t++)
        assert_int_equal(abi->bcast(lib, out, 1, lib->types[t], 0, comm), 0);
    memset(out, 0, sizeof out);
    assert_int_equal(abi->iallgatherv(lib, in, 3, type, out, &count, &zero, type, comm, &request),
                     0);
    await(request);
    assert_memory_equal(in, out, sizeof in);
    memset(out, 0, sizeof out);
    assert_int_equal(
        abi->ialltoallv(lib, in, &count, &zero, type, out, &count, &zero, type, comm, &request), 0);
    await(request);
    assert_memory_equal(in, out, sizeof in);
    memset(out, 0, sizeof out);
    assert_int_equal(abi->ireduce_scatter(lib, in, out, &count, type, lib->ops[MPI_OPERATION_SUM],
                                          comm, &request),
                     0);
    await(request);
    assert_memory_equal(in, out, sizeof in);
    assert_int_equal(
        abi->allreduce(lib, lib->in_place, out, 3, type, lib->ops[MPI_OPERATION_MAX], comm), 0);
    assert_memory_equal(in, out, sizeof in);
    assert_int_equal(abi->ibarrier(lib, comm, &request), 0);
    await(request);
    assert_int_equal(abi->comm_free(lib, &comm), 0);
    assert_true(comm == lib->comm_null);
}

static void test_table_own_types(void **state)
{
    const struct mpi_abi *abi = lib->abi;
    mpi_handle_t type, op;
    uint8_t in[4] = {1, 2, 3, 4}, out[4] = {0};
    (void)state;
    assert_int_equal(abi->type_contiguous(lib, 2, lib->types[MPI_TYPE_BYTE], &type), 0);
    assert_int_equal(abi->op_create(lib, sum_bytes, true, &op), 0);
    assert_int_equal(abi->allreduce(lib, in, out, 2, type, op, lib->comm_self), 0);
    assert_memory_equal(in, out, sizeof in);
    assert_int_equal(abi->op_free(lib, &op), 0);
    assert_int_equal(abi->type_free(lib, &type), 0);
}

static void test_table_comms(void **state)
{
    const struct mpi_abi *abi = lib->abi;
    mpi_handle_t comm, part;
    int rank = -1, size = -1, zero = 0, there = -1;
    struct error error = {0};
    (void)state;
    assert_int_equal(mpi_lib_comm_own(lib, lib->comm_world, &comm, &error), HVD_OK);
    assert_int_equal(abi->comm_rank(lib, comm, &rank), 0);
    assert_int_equal(abi->comm_size(lib, comm, &size), 0);
    assert_int_equal(rank, 0);
    assert_int_equal(size, 1);
    assert_int_equal(abi->comm_split(lib, comm, 0, 0, &part), 0);
    assert_int_equal(abi->comm_translate(lib, part, comm, &there), 0);
    assert_int_equal(there, 0);
    abi->comm_free(lib, &part);
    assert_int_equal(abi->comm_split(lib, comm, lib->undefined, 0, &part), 0);
    assert_true(part == lib->comm_null);
    assert_int_equal(abi->comm_split_shared(lib, comm, 0, &part), 0);
    abi->comm_free(lib, &part);
    assert_int_equal(abi->comm_create_group(lib, comm, &zero, 1, 5, &part), 0);
    abi->comm_free(lib, &part);
    /* Errors come back, in words, with where the library is. */
    mpi_handle_t request;
    int code = abi->isend(lib, &rank, 1, lib->types[MPI_TYPE_BYTE], 99, 1, comm, &request);
    assert_int_not_equal(code, 0);
    assert_true(mpi_lib_error(lib, "MPI_Isend", code, &error) < 0);
    assert_non_null(strstr(error.text, "MPI_Isend"));
    assert_non_null(strstr(error.text, lib->path));
    abi->comm_free(lib, &comm);
}

static void test_not_found(void **state)
{
    struct mpi_lib *none = NULL;
    struct error error = {0};
    (void)state;
    assert_int_equal(mpi_lib_open(os_host(), "/nonexistent/libmpi.so", &none, &error),
                     HVD_ERR_CONFIG);
    assert_null(none);
    assert_non_null(strstr(error.text, "/nonexistent/libmpi.so"));
    assert_false(mpi_lib_probe(os_host(), "/nonexistent/libmpi.so", NULL, 0));
    error_clear(&error);
    assert_int_equal(mpi_lib_open(os_host(), "libm.so.6", &none, &error), HVD_ERR_CONFIG);
    assert_non_null(strstr(error.text, "MPI_Init_thread"));
}

static void test_found_again(void **state)
{
    struct mpi_lib *again = NULL;
    struct error error = {0};
    (void)state;
    assert_int_equal(mpi_lib_open(os_host(), "", &again, &error), HVD_OK);
    assert_string_equal(again->path, lib->path);
    assert_string_equal(again->origin, "already in the process");
    assert_int_equal(mpi_lib_init(again, false, &error), HVD_OK);
    assert_false(again->is_ours);
    mpi_lib_finalize(again); /* not ours: nothing happens */
    mpi_lib_close(again);
    bool is_over = true;
    assert_int_equal(lib->abi->finalized(lib, &is_over), 0);
    assert_false(is_over);
}

/* Tags are too short for streams: what may be under way at the same time must differ in them. */
static void test_tags(void **state)
{
    static const int limits[] = {32767, (1 << 20) - 1, (1 << 22) - 1, INT_MAX};
    (void)state;
    for (size_t i = 0; i < 4; i++) {
        const int most = limits[i];
        for (int32_t slot = 0; slot < 256; slot += 5)
            for (uint64_t stream = 0; stream < 32; stream += 3) {
                uint64_t life = (uint64_t)(slot + 1) << 48 | stream;
                int tag = mpi_bulk_tag(most, slot, life);
                assert_true(tag >= MPI_TAG_BULK && tag <= most);
                assert_int_not_equal(tag, mpi_bulk_tag(most, (slot + 1) % 256, life));
                assert_int_not_equal(tag, mpi_bulk_tag(most, slot, life ^ 1));
                /* the next lives of this slot, and the next turn */
                for (uint64_t next = 1; next < (most > 40000 ? 64 : 2); next++)
                    assert_int_not_equal(tag, mpi_bulk_tag(most, slot, life + (next << 48)));
                assert_int_not_equal(tag, mpi_bulk_tag(most, slot, life + (1ull << 32)));
                /* the collectives of one turn come one after the other */
                assert_int_equal(tag, mpi_bulk_tag(most, slot, life + (9 << 5)));
            }
    }
    assert_int_equal(mpi_bulk_tag(4000, 0, 1), -1);
    assert_int_equal(mpi_bulk_tag(INT_MAX, 256, 1), -1);
}

int main(void)
{
    const struct os *os = os_host();
    const char *wanted = os->env(os->ctx, "HOROVOD_MPI_LIBRARY");
    struct error error = {0};
    alarm(DEADLINE_S);
    clock_ns = 1000000000;
    if (!mpi_lib_probe(os, wanted, NULL, 0)) {
        printf("no MPI library on this machine: skipped\n");
        return 0;
    }
    if (mpi_lib_open(os, wanted, &lib, &error) != HVD_OK ||
        mpi_lib_init(lib, false, &error) != HVD_OK) {
        printf("%s\n", error.text);
        return 1;
    }
    printf("%s, %s, %s\n", lib->version, lib->path, lib->origin);
    const struct CMUnitTest tests[] = {
        CONFORMANCE_TESTS(&mpi_pair),
        cmocka_unit_test(test_goodbye),
        cmocka_unit_test_prestate(test_memory, &mpi_pair),
        cmocka_unit_test(test_silence),
        cmocka_unit_test(test_length_mismatch),
        cmocka_unit_test(test_tags),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_table_collectives),
        cmocka_unit_test(test_table_own_types),
        cmocka_unit_test(test_table_comms),
        cmocka_unit_test(test_not_found),
        cmocka_unit_test(test_found_again),
    };
    int failed = cmocka_run_group_tests_name("mpi", tests, NULL, NULL);
    mpi_lib_finalize(lib);
    mpi_lib_close(lib);
    return failed;
}
