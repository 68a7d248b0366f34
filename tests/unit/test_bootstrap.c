/* SPDX-License-Identifier: Apache-2.0 */
/* test_bootstrap.c - rank and size of this process: every source, incomplete ones, Slurm's lists,
 * and the file with which rank 0 passes on the key. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "api/bootstrap.h"
#include "api/handover.h"
#include "api/nodelist.h"

/* ---- an environment of our own ---- */

static const char *const *variables; /* NAME=value, NULL-terminated */

static const char *env_find(void *ctx, const char *name)
{
    (void)ctx;
    size_t n = strlen(name);
    for (const char *const *v = variables; v != NULL && *v != NULL; v++)
        if (strncmp(*v, name, n) == 0 && (*v)[n] == '=')
            return *v + n + 1;
    return NULL;
}

static struct os os_with(const char *const *list)
{
    struct os os = *os_host();
    variables = list;
    os.env = env_find;
    return os;
}

static hvd_status_t find(const char *const *list, struct bootstrap *ret, struct error *error)
{
    struct os os = os_with(list);
    struct config config;
    memset(&config, 0, sizeof config);
    config.rank = config.size = config.local_rank = config.local_size = -1;
    config.cross_rank = config.cross_size = -1;
    const char *rendezvous = env_find(NULL, "HOROVOD_RENDEZVOUS");
    snprintf(config.rendezvous, sizeof config.rendezvous, "%s",
             rendezvous != NULL ? rendezvous : "");
    error_clear(error);
    return bootstrap_find(&os, &config, NULL, ret, error);
}

static void assert_place(const struct bootstrap *b, const char *source, const int32_t place[6])
{
    assert_string_equal(b->source, source);
    const int32_t is[6] = {b->rank,       b->size,       b->local_rank,
                           b->local_size, b->cross_rank, b->cross_size};
    for (int i = 0; i < 6; i++)
        assert_int_equal(is[i], place[i]);
}

static void assert_found(const char *const *list, struct bootstrap *ret, const char *source,
                         const int32_t place[6])
{
    struct error error;
    assert_int_equal(find(list, ret, &error), HVD_OK);
    assert_place(ret, source, place);
}

static void refuse(const char *const *list, const char *word)
{
    struct bootstrap b;
    struct error error;
    assert_int_equal(find(list, &b, &error), HVD_ERR_CONFIG);
    if (strstr(error.text, word) == NULL)
        fail_msg("'%s' does not name %s", error.text, word);
}

#define LIST(...)  ((const char *const[]){__VA_ARGS__, NULL})
#define PLACE(...) ((const int32_t[6]){__VA_ARGS__})

/* ---- sources ---- */

static void test_nobody(void **state)
{
    (void)state;
    struct bootstrap b;
    assert_found(LIST("HOME=/root"), &b, "no launcher", PLACE(0, 1, 0, 1, 0, 1));
    assert_false(b.is_self_served);
}

static void test_open_mpi(void **state)
{
    (void)state;
    struct bootstrap b, c;
    struct error error;
    assert_found(LIST("OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=2",
                      "OMPI_COMM_WORLD_LOCAL_RANK=1", "OMPI_COMM_WORLD_LOCAL_SIZE=2",
                      "OMPI_MCA_ess_base_jobid=77"),
                 &b, "Open MPI", PLACE(1, 2, 1, 2, 0, 1));
    assert_true(b.is_self_served);
    assert_memory_equal(b.rendezvous, "unix:horovod-", 13);
    assert_int_equal(find(LIST("OMPI_COMM_WORLD_RANK=0", "OMPI_COMM_WORLD_SIZE=2",
                               "OMPI_COMM_WORLD_LOCAL_RANK=0", "OMPI_COMM_WORLD_LOCAL_SIZE=2",
                               "OMPI_MCA_ess_base_jobid=78"),
                          &c, &error),
                     HVD_OK);
    assert_string_not_equal(b.rendezvous, c.rendezvous);
    assert_string_not_equal(b.identity, c.identity);
}

static void test_open_mpi_across_hosts(void **state)
{
    (void)state;
    struct bootstrap b;
    assert_found(LIST("OMPI_COMM_WORLD_RANK=3", "OMPI_COMM_WORLD_SIZE=4",
                      "OMPI_COMM_WORLD_LOCAL_RANK=1", "OMPI_COMM_WORLD_LOCAL_SIZE=2",
                      "OMPI_MCA_ess_base_jobid=77"),
                 &b, "Open MPI", PLACE(3, 4, 1, 2, 1, 2));
    assert_string_equal(b.rendezvous, ""); /* a file must tell */
    assert_string_equal(b.identity, "Open MPI/77");
}

static void test_pmi_is_known_by_its_starter(void **state)
{
    (void)state;
    struct bootstrap b;
    struct error error;
    char parent[32];
    assert_found(LIST("PMI_RANK=0", "PMI_SIZE=2", "MPI_LOCALRANKID=0", "MPI_LOCALNRANKS=2"), &b,
                 "PMI", PLACE(0, 2, 0, 2, 0, 1));
    snprintf(parent, sizeof parent, "PMI/%d", (int)getppid());
    assert_string_equal(b.identity, parent); /* PMI_RANK is in no real environment here */
    assert_int_equal(
        find(LIST("PMI_RANK=0", "PMI_SIZE=4", "MPI_LOCALRANKID=0", "MPI_LOCALNRANKS=2"), &b,
             &error),
        HVD_OK);
    assert_string_equal(b.identity, "");
}

static void test_slurm(void **state)
{
    (void)state;
    struct bootstrap b;
    assert_found(LIST("SLURM_PROCID=3", "SLURM_STEP_NUM_TASKS=4", "SLURM_LOCALID=0",
                      "SLURM_NODEID=1", "SLURM_STEP_TASKS_PER_NODE=3,1", "SLURM_JOB_ID=12",
                      "SLURM_STEP_ID=0", "SLURM_STEP_NODELIST=n[08-09]"),
                 &b, "Slurm", PLACE(3, 4, 0, 1, 1, 2));
    assert_memory_equal(b.rendezvous, "n08:", 4);
    assert_true(b.port >= 15000 && b.port < 30000);
    assert_int_equal(atoi(b.rendezvous + 4), b.port);
}

static void test_slurm_batch_script_is_alone(void **state)
{
    (void)state;
    struct bootstrap b;
    assert_found(LIST("SLURM_PROCID=0", "SLURM_NTASKS=4", "SLURM_JOB_ID=12", "SLURM_LOCALID=0"), &b,
                 "no launcher", PLACE(0, 1, 0, 1, 0, 1));
    assert_found(LIST("SLURM_PROCID=0", "SLURM_STEP_ID=4294967291"), &b, "no launcher",
                 PLACE(0, 1, 0, 1, 0, 1));
}

static void test_pmi_of_slurm(void **state)
{
    (void)state;
    struct bootstrap b;
    assert_found(LIST("PMI_RANK=1", "PMI_SIZE=2", "PMI_JOBID=9.0", "SLURM_PROCID=1",
                      "SLURM_STEP_NUM_TASKS=2", "SLURM_LOCALID=1", "SLURM_NODEID=0",
                      "SLURM_STEP_TASKS_PER_NODE=2", "SLURM_STEP_ID=0"),
                 &b, "PMI", PLACE(1, 2, 1, 2, 0, 1));
}

static void test_torchrun(void **state)
{
    (void)state;
    struct bootstrap b;
    struct error error;
    assert_found(LIST("RANK=2", "WORLD_SIZE=4", "LOCAL_RANK=0", "LOCAL_WORLD_SIZE=2",
                      "MASTER_ADDR=node7", "MASTER_PORT=29500"),
                 &b, "torchrun", PLACE(2, 4, 0, 2, 1, 2));
    assert_string_equal(b.rendezvous, "node7:29501");
    assert_int_equal(b.port, 29501);
    assert_int_equal(find(LIST("RANK=2", "WORLD_SIZE=4", "LOCAL_RANK=0", "LOCAL_WORLD_SIZE=2",
                               "MASTER_ADDR=fd00::1", "MASTER_PORT=29500"),
                          &b, &error),
                     HVD_OK);
    assert_string_equal(b.rendezvous, "[fd00::1]:29501");
    assert_found(LIST("RANK=1", "WORLD_SIZE=2", "LOCAL_RANK=1", "MASTER_ADDR=localhost",
                      "MASTER_PORT=29500"),
                 &b, "torchrun", PLACE(1, 2, 1, 2, 0, 1));
    assert_int_equal(find(LIST("RANK=1", "WORLD_SIZE=2"), &b, &error), HVD_ERR_CONFIG);
    assert_non_null(strstr(error.text, "WORLD_SIZE is set but MASTER_ADDR is not"));
    assert_int_equal(find(LIST("RANK=1", "WORLD_SIZE=2", "MASTER_ADDR=localhost"), &b, &error),
                     HVD_ERR_CONFIG);
    assert_non_null(strstr(error.text, "MASTER_ADDR is set but MASTER_PORT is not"));
    assert_int_equal(find(LIST("RANK=0", "WORLD_SIZE=1"), &b, &error), HVD_OK);
}

static void test_half_of_ours(void **state)
{
    (void)state;
    struct bootstrap b;
    struct error error;
    static const struct {
        const char *given, *words;
    } cases[] = {
        {"HOROVOD_LOCAL_RANK=1", "HOROVOD_LOCAL_RANK is set but HOROVOD_LOCAL_SIZE is not"},
        {"HOROVOD_LOCAL_SIZE=2", "HOROVOD_LOCAL_SIZE is set but HOROVOD_LOCAL_RANK is not"},
        {"HOROVOD_CROSS_RANK=1", "HOROVOD_CROSS_RANK is set but HOROVOD_CROSS_SIZE is not"},
        {"HOROVOD_GLOO_RENDEZVOUS_ADDR=127.0.0.1",
         "HOROVOD_GLOO_RENDEZVOUS_ADDR is set but HOROVOD_GLOO_RENDEZVOUS_PORT is not"},
        {"HOROVOD_GLOO_RENDEZVOUS_PORT=9",
         "HOROVOD_GLOO_RENDEZVOUS_PORT is set but HOROVOD_GLOO_RENDEZVOUS_ADDR is not"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct os os = os_with(LIST("HOROVOD_RANK=1", "HOROVOD_SIZE=2", cases[i].given));
        struct config config;
        error_clear(&error);
        assert_int_equal(config_load(&os, &config, NULL, NULL, &error), HVD_OK);
        assert_int_equal(bootstrap_find(&os, &config, NULL, &b, &error), HVD_ERR_CONFIG);
        assert_non_null(strstr(error.text, cases[i].words));
    }
}

static void test_own_rendezvous_wins(void **state)
{
    (void)state;
    struct bootstrap b;
    struct error error;
    assert_int_equal(find(LIST("RANK=0", "WORLD_SIZE=2", "LOCAL_RANK=0", "LOCAL_WORLD_SIZE=1",
                               "MASTER_ADDR=a", "MASTER_PORT=1", "HOROVOD_RENDEZVOUS=10.0.0.1:99"),
                          &b, &error),
                     HVD_OK);
    assert_string_equal(b.rendezvous, "10.0.0.1:99");
    assert_true(b.is_rendezvous_own);
}

static void test_half_set(void **state)
{
    (void)state;
    refuse(LIST("OMPI_COMM_WORLD_RANK=1"), "OMPI_COMM_WORLD_SIZE");
    refuse(LIST("PMI_SIZE=1"), "PMI_RANK");
    refuse(LIST("WORLD_SIZE=2"), "RANK is not");
    refuse(LIST("RANK=0", "WORLD_SIZE=2", "LOCAL_RANK=0", "LOCAL_WORLD_SIZE=1", "MASTER_ADDR=a"),
           "MASTER_PORT");
    refuse(LIST("RANK=0", "WORLD_SIZE=2", "LOCAL_RANK=0", "LOCAL_WORLD_SIZE=1"), "MASTER_ADDR");
    refuse(LIST("RANK=0", "WORLD_SIZE=2", "LOCAL_WORLD_SIZE=1"), "LOCAL_RANK");
    refuse(LIST("RANK=0", "WORLD_SIZE=2", "LOCAL_RANK=0", "MASTER_ADDR=a", "MASTER_PORT=1"),
           "LOCAL_WORLD_SIZE");
    refuse(LIST("SLURM_PROCID=0", "SLURM_STEP_ID=0"), "SLURM_STEP_NUM_TASKS");
    refuse(LIST("SLURM_PROCID=0", "SLURM_STEP_ID=0", "SLURM_STEP_NUM_TASKS=2"),
           "SLURM_STEP_TASKS_PER_NODE");
    refuse(LIST("PMIX_RANK=1"), "PMIX_RANK");
}

static void test_wrong_values(void **state)
{
    (void)state;
    refuse(LIST("RANK=x", "WORLD_SIZE=2"), "RANK is 'x'");
    refuse(LIST("RANK=-1", "WORLD_SIZE=2"), "RANK is '-1'");
    refuse(LIST("RANK=1", "WORLD_SIZE=99999999999999999999"), "WORLD_SIZE");
    refuse(LIST("RANK=2", "WORLD_SIZE=2", "LOCAL_RANK=0", "LOCAL_WORLD_SIZE=2"), "rank 2 of 2");
    refuse(LIST("RANK=1", "WORLD_SIZE=2", "LOCAL_RANK=2", "LOCAL_WORLD_SIZE=2"),
           "local rank 2 of 2");
    refuse(LIST("RANK=0", "WORLD_SIZE=2", "LOCAL_RANK=0", "LOCAL_WORLD_SIZE=1", "MASTER_ADDR=a",
                "MASTER_PORT=65535"),
           "MASTER_PORT");
    refuse(LIST("SLURM_PROCID=0", "SLURM_STEP_NUM_TASKS=2", "SLURM_LOCALID=0", "SLURM_NODEID=0",
                "SLURM_STEP_TASKS_PER_NODE=1(x2)", "SLURM_JOB_ID=1", "SLURM_STEP_ID=0",
                "SLURM_STEP_NODELIST=n[1"),
           "SLURM_STEP_NODELIST");
}

/* ---- lists of nodes ---- */

static void test_first_node(void **state)
{
    (void)state;
    static const char *const good[][2] = {{"n1", "n1"},
                                          {"n[1-3,7]", "n1"},
                                          {"n[001-003],m4", "n001"},
                                          {"a,b[2-3]", "a"},
                                          {"rack[0-1]n[3,4]", "rack0n3"},
                                          {"gpu[7]-ib.site", "gpu7-ib.site"}};
    static const char *const bad[] = {"",        ",",   "n[",    "n[]",    "n[a-b]",
                                      "n[1",     "n 1", "n;x",   "$(x)",   "-n",
                                      "n[1[2]]", "[",   "n[-1]", "n[1]]x", "n[0123456789]"};
    char host[NODELIST_HOST_MAX], longest[2 * NODELIST_HOST_MAX];
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        assert_true(nodelist_first(good[i][0], host));
        assert_string_equal(host, good[i][1]);
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        if (nodelist_first(bad[i], host))
            fail_msg("'%s' was taken for '%s'", bad[i], host);
        assert_string_equal(host, "");
    }
    memset(longest, 'n', sizeof longest);
    longest[sizeof longest - 1] = '\0';
    assert_false(nodelist_first(longest, host));
    longest[NODELIST_HOST_MAX - 1] = '\0';
    assert_true(nodelist_first(longest, host));
}

static void test_tasks_per_node(void **state)
{
    (void)state;
    struct nodelist_place p;
    assert_true(nodelist_place("2(x3),1", 2, 1, &p));
    assert_int_equal(p.local_size, 2);
    assert_int_equal(p.cross_rank, 2);
    assert_int_equal(p.cross_size, 3);
    assert_int_equal(p.node_count, 4);
    assert_int_equal(p.task_count, 7);
    assert_true(nodelist_place("2(x3),1", 3, 0, &p));
    assert_int_equal(p.cross_rank, 3);
    assert_int_equal(p.cross_size, 4);
    assert_true(nodelist_place("1,3(x2)", 2, 2, &p));
    assert_int_equal(p.cross_rank, 1);
    assert_int_equal(p.cross_size, 2);
    static const char *const bad[] = {"",           "x",
                                      "2(",         "2(x",
                                      "2(x3",       "2,",
                                      "2(x0)",      "2(x2000000)",
                                      "9999999999", ",2",
                                      "2 ",         "1,,1",
                                      "2(x3)4",     "2(x999999),2(x9)"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        if (nodelist_place(bad[i], 0, 0, &p))
            fail_msg("'%s' was taken", bad[i]);
    assert_false(nodelist_place("2", 1, 0, &p));
    assert_false(nodelist_place("2", 0, 2, &p));
    assert_false(nodelist_place("2", -1, 0, &p));
}

/* ---- the file ---- */

static char folder[64];

static int folder_make(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/test-handover-XXXXXX");
    return mkdtemp(folder) == NULL;
}

static int folder_drop(void **state)
{
    (void)state;
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command);
}

static hvd_status_t path_of(const char *identity, bool is_one_host, char *path, struct error *error)
{
    char runtime[96], home[96];
    snprintf(runtime, sizeof runtime, "XDG_RUNTIME_DIR=%s", folder);
    snprintf(home, sizeof home, "HOME=%s", folder);
    const char *const list[] = {runtime, home, NULL};
    struct os os = os_with(list);
    error_clear(error);
    return handover_path(&os, identity, is_one_host, path, error);
}

static void test_path(void **state)
{
    (void)state;
    char a[HANDOVER_PATH_MAX], b[HANDOVER_PATH_MAX];
    struct error error;
    struct stat st;
    assert_int_equal(path_of("../../x", true, a, &error), HVD_OK);
    assert_null(strstr(a, ".."));
    assert_memory_equal(a, folder, strlen(folder));
    assert_int_equal(path_of("../../x", true, b, &error), HVD_OK);
    assert_string_equal(a, b);
    assert_int_equal(path_of("../../y", true, b, &error), HVD_OK);
    assert_string_not_equal(a, b);
    assert_int_equal(path_of("x", false, b, &error), HVD_OK);
    assert_non_null(strstr(b, "/.horovod/keys/key-"));
    char shared[96];
    snprintf(shared, sizeof shared, "%s/.horovod/keys", folder);
    assert_int_equal(stat(shared, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0700);
}

static void test_folder_of_others_is_refused(void **state)
{
    (void)state;
    char path[HANDOVER_PATH_MAX], shared[96], elsewhere[96];
    struct error error;
    snprintf(shared, sizeof shared, "%s/.horovod", folder);
    assert_int_equal(mkdir(shared, 0700), 0);
    assert_int_equal(chmod(shared, 0770), 0);
    assert_int_equal(path_of("x", false, path, &error), HVD_ERR_CONFIG);
    assert_non_null(strstr(error.text, "0770"));
    assert_int_equal(chmod(shared, 0755), 0); /* as older programs leave it */
    snprintf(shared, sizeof shared, "%s/.horovod/keys", folder);
    snprintf(elsewhere, sizeof elsewhere, "%s/elsewhere", folder);
    assert_int_equal(mkdir(shared, 0755), 0);
    assert_int_equal(chmod(shared, 0755), 0);
    assert_int_equal(path_of("x", false, path, &error), HVD_ERR_CONFIG);
    assert_non_null(strstr(error.text, "0755"));
    assert_int_equal(rmdir(shared), 0);
    assert_int_equal(mkdir(elsewhere, 0700), 0);
    assert_int_equal(symlink(elsewhere, shared), 0);
    assert_int_equal(path_of("x", false, path, &error), HVD_ERR_CONFIG);
    assert_int_equal(unlink(shared), 0);
}

/* Another user has taken the name in /tmp. A home folder makes that harmless; without one it is
 * said what to do. */
static void test_name_in_tmp_is_taken(void **state)
{
    (void)state;
    enum { VICTIM = 54321 };
    char squat[64], home[96], path[HANDOVER_PATH_MAX];
    if (geteuid() != 0)
        skip();
    snprintf(squat, sizeof squat, "/tmp/horovod-%d", VICTIM);
    snprintf(home, sizeof home, "%s/victim", folder);
    assert_int_equal(mkdir(squat, 0777), 0); /* root's, who is another user here */
    assert_int_equal(mkdir(home, 0700), 0);
    assert_int_equal(chown(home, VICTIM, VICTIM), 0);
    assert_int_equal(chmod(folder, 0711), 0);
    pid_t pid = fork();
    if (pid == 0) {
        char good[128];
        snprintf(good, sizeof good, "HOME=%s", home);
        const char *const with_home[] = {good, NULL}, *const without[] = {"HOME=/nowhere", NULL};
        struct os os = os_with(with_home);
        struct error error;
        error_clear(&error);
        if (setgid(VICTIM) != 0 || setuid(VICTIM) != 0)
            _exit(1);
        if (handover_path(&os, "x", true, path, &error) != HVD_OK ||
            strncmp(path, home, strlen(home)) != 0)
            _exit(2);
        os = os_with(without);
        if (handover_path(&os, "x", true, path, &error) != HVD_ERR_CONFIG ||
            strstr(error.text, squat) == NULL || strstr(error.text, "XDG_RUNTIME_DIR") == NULL)
            _exit(3);
        _exit(0);
    }
    int status = -1;
    waitpid(pid, &status, 0);
    rmdir(squat);
    chmod(folder, 0700);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void test_write_and_read(void **state)
{
    (void)state;
    char path[HANDOVER_PATH_MAX], address[HANDOVER_ADDRESS_MAX];
    uint8_t key[32], got[32] = {0};
    struct error error;
    struct stat st;
    memset(key, 0xa5, sizeof key);
    assert_int_equal(path_of("y", true, path, &error), HVD_OK);
    assert_int_equal(handover_read(os_host(), path, got, address, &error), HVD_AGAIN);
    assert_int_equal(handover_write(os_host(), path, key, "unix:there", &error), HVD_OK);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    assert_int_equal(handover_read(os_host(), path, got, address, &error), HVD_OK);
    assert_memory_equal(got, key, sizeof key);
    assert_string_equal(address, "unix:there");
    key[0] = 1; /* what a killed job left is replaced */
    assert_int_equal(handover_write(os_host(), path, key, "1.2.3.4:5", &error), HVD_OK);
    assert_int_equal(handover_read(os_host(), path, got, address, &error), HVD_OK);
    assert_int_equal(got[0], 1);
    handover_remove(os_host(), path);
    assert_int_equal(handover_read(os_host(), path, got, address, &error), HVD_AGAIN);
    handover_remove(os_host(), "");
}

static void write_text(const char *path, const char *text, unsigned mode)
{
    unlink(path);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    assert_int_equal(fchmod(fd, mode), 0);
    close(fd);
}

static void test_odd_files(void **state)
{
    (void)state;
    static const char good[] =
        "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff\nunix:x\n";
    char path[HANDOVER_PATH_MAX], address[HANDOVER_ADDRESS_MAX], other[96], text[4096];
    uint8_t got[32];
    struct error error;
    assert_int_equal(path_of("z", true, path, &error), HVD_OK);
    write_text(path, good, 0600);
    assert_int_equal(handover_read(os_host(), path, got, address, &error), HVD_OK);
    write_text(path, good, 0640);
    assert_int_equal(handover_read(os_host(), path, got, address, &error), HVD_ERR_CONFIG);
    snprintf(other, sizeof other, "%s/other", folder);
    write_text(other, good, 0600);
    unlink(path);
    assert_int_equal(symlink(other, path), 0);
    error_clear(&error);
    assert_int_equal(handover_read(os_host(), path, got, address, &error), HVD_ERR_OS);
    unlink(path);
    assert_int_equal(mkfifo(path, 0600), 0);
    error_clear(&error);
    assert_int_equal(handover_read(os_host(), path, got, address, &error), HVD_ERR_CONFIG);
    memset(text, 'a', sizeof text);
    text[sizeof text - 1] = '\0';
    const char *const bad[] = {"", "\n\n", "00\nunix:x\n", good + 1, text};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        write_text(path, bad[i], 0600);
        error_clear(&error);
        assert_int_equal(handover_read(os_host(), path, got, address, &error), HVD_ERR_CONFIG);
        assert_null(strstr(error.text, "00112233"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nobody),
        cmocka_unit_test(test_open_mpi),
        cmocka_unit_test(test_open_mpi_across_hosts),
        cmocka_unit_test(test_pmi_is_known_by_its_starter),
        cmocka_unit_test(test_slurm),
        cmocka_unit_test(test_slurm_batch_script_is_alone),
        cmocka_unit_test(test_pmi_of_slurm),
        cmocka_unit_test(test_torchrun),
        cmocka_unit_test(test_half_of_ours),
        cmocka_unit_test(test_own_rendezvous_wins),
        cmocka_unit_test(test_half_set),
        cmocka_unit_test(test_wrong_values),
        cmocka_unit_test(test_first_node),
        cmocka_unit_test(test_tasks_per_node),
        cmocka_unit_test_setup_teardown(test_path, folder_make, folder_drop),
        cmocka_unit_test_setup_teardown(test_folder_of_others_is_refused, folder_make, folder_drop),
        cmocka_unit_test_setup_teardown(test_name_in_tmp_is_taken, folder_make, folder_drop),
        cmocka_unit_test_setup_teardown(test_write_and_read, folder_make, folder_drop),
        cmocka_unit_test_setup_teardown(test_odd_files, folder_make, folder_drop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
