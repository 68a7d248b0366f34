/* SPDX-License-Identifier: Apache-2.0 */
/* test_mpi_world.c - when is a job an MPI job? The variables and settings that decide, without a
 * library.
 *
 * The environment is a fake list. Start reading at wish(). */
/* clang-format off */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>
/* clang-format on */

#include "api/mpi_world.h"

static const char *env_find(void *ctx, const char *name)
{
    const char *const *list = ctx;
    size_t length = strlen(name);
    for (; *list != NULL; list++)
        if (strncmp(*list, name, length) == 0 && (*list)[length] == '=')
            return *list + length + 1;
    return NULL;
}

static enum mpi_wish wish_of(const char *const *env, const hvd_config_t *e, const char *controller,
                             const char *library, int64_t rank)
{
    struct os os = *os_host();
    struct config config = {.rank = rank, .size = rank};
    union {
        const char *const *list;
        void *ctx;
    } pun = {.list = env};
    os.ctx = pun.ctx;
    os.env = env_find;
    strcpy(config.controller, controller);
    strcpy(config.mpi_library, library);
    return mpi_world_wish(&os, &config, e);
}

#define LIST(...) ((const char *const[]){__VA_ARGS__, NULL})
#define WISH(env) wish_of(env, NULL, "", "", -1)

#define OPEN_MPI LIST("OMPI_COMM_WORLD_SIZE=2", "PMIX_NAMESPACE=x")
#define MPICH    LIST("PMI_RANK=0", "PMI_SIZE=2", "PMI_FD=9")

static void test_launchers(void **state)
{
    (void)state;
    assert_int_equal(WISH(OPEN_MPI), MPI_WISH_IF_THERE);
    assert_int_equal(WISH(MPICH), MPI_WISH_IF_THERE);
    assert_int_equal(WISH(LIST("OMPI_COMM_WORLD_SIZE=2", "OMPI_MCA_orte_hnp_uri=x")),
                     MPI_WISH_IF_THERE);
    assert_int_equal(WISH(LIST("SLURM_STEP_ID=0", "PMIX_NAMESPACE=x")), MPI_WISH_IF_THERE);
    assert_int_equal(WISH(LIST("PMI_RANK=0", "PMI_SIZE=2", "PMI_PORT=h:1")), MPI_WISH_IF_THERE);
}

static void test_numbers_alone_are_no_launcher(void **state)
{
    (void)state;
    assert_int_equal(WISH(LIST("NOTHING=1")), MPI_WISH_NO);
    assert_int_equal(WISH(LIST("OMPI_COMM_WORLD_SIZE=2", "OMPI_COMM_WORLD_RANK=0")), MPI_WISH_NO);
    assert_int_equal(WISH(LIST("PMI_RANK=0", "PMI_SIZE=2")), MPI_WISH_NO);
    assert_int_equal(WISH(LIST("SLURM_STEP_ID=0", "SLURM_STEP_NUM_TASKS=2")), MPI_WISH_NO);
    assert_int_equal(WISH(LIST("PMIX_NAMESPACE=x")), MPI_WISH_NO);
    assert_int_equal(WISH(LIST("PMIX_NAMESPACE=", "OMPI_COMM_WORLD_SIZE=2")), MPI_WISH_NO);
}

static void test_settings(void **state)
{
    hvd_config_t with_comm = {.struct_size = sizeof with_comm, .mpi_comm_count = 1};
    hvd_config_t with_size = {.struct_size = sizeof with_size, .size = 1};
    (void)state;
    assert_int_equal(wish_of(OPEN_MPI, NULL, "gloo", "", -1), MPI_WISH_NO);
    assert_int_equal(wish_of(OPEN_MPI, NULL, "", "", 0), MPI_WISH_NO); /* HOROVOD_RANK */
    assert_int_equal(wish_of(LIST("A=1"), NULL, "MPI", "", -1), MPI_WISH_MUST);
    assert_int_equal(wish_of(LIST("A=1"), NULL, "mpi", "", 0), MPI_WISH_MUST);
    assert_int_equal(wish_of(OPEN_MPI, NULL, "", "/some/libmpi.so", -1), MPI_WISH_MUST);
    assert_int_equal(wish_of(LIST("A=1"), NULL, "", "/some/libmpi.so", -1), MPI_WISH_NO);
    assert_int_equal(wish_of(LIST("A=1"), &with_comm, "gloo", "", 0), MPI_WISH_MUST);
    assert_int_equal(wish_of(OPEN_MPI, &with_size, "", "", -1), MPI_WISH_NO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_launchers),
        cmocka_unit_test(test_numbers_alone_are_no_launcher),
        cmocka_unit_test(test_settings),
    };
    return cmocka_run_group_tests_name("mpi_world", tests, NULL, NULL);
}
