/* SPDX-License-Identifier: Apache-2.0 */
/* test_platform.c - the system-specific parts: rows of the os table for files, names, interfaces
 * and libraries; the results of base/machine.h, proc.h, socket.h and library.h; what happens when
 * the system refuses; and pages larger than this machine's. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "api/handover.h"
#include "base/fault.h"
#include "base/library.h"
#include "base/machine.h"
#include "base/proc.h"
#include "base/socket.h"
#include "transport/shm/shm.h"
#include "wire/address.h"
#include "wire/cipher.h"
#include "wire/key.h"

static char folder[64];
static const struct os *os;

static int setup(void **state)
{
    (void)state;
    os = os_host();
    snprintf(folder, sizeof folder, "/tmp/hvd-platform-XXXXXX");
    return mkdtemp(folder) == NULL;
}

static int teardown(void **state)
{
    (void)state;
    return rmdir(folder);
}

static const char *in_folder(const char *name)
{
    static char path[4][96];
    static unsigned turn;
    char *text = path[turn++ % 4];
    snprintf(text, sizeof path[0], "%s/%s", folder, name);
    return text;
}

/* ---- rows of the table ---- */

static void files_and_folders(void **state)
{
    (void)state;
    struct os_file file;
    const char *a = in_folder("a"), *b = in_folder("b");
    assert_int_equal(os->stat(os->ctx, a, &file), -ENOENT);
    assert_int_equal(os->mkdir(os->ctx, a, 0700), 0);
    assert_int_equal(os->mkdir(os->ctx, a, 0700), -EEXIST);
    assert_int_equal(os->stat(os->ctx, a, &file), 0);
    assert_int_equal(file.kind, OS_FILE_FOLDER);
    assert_int_equal(file.mode, 0700);
    assert_int_equal(file.uid, os->user(os->ctx));
    assert_int_equal(rmdir(a), 0);
    int fd = os->open(os->ctx, a, O_WRONLY | O_CREAT | O_EXCL, 0640);
    assert_true(fd >= 0);
    assert_int_equal(os->write(os->ctx, fd, "12345", 5), 5);
    assert_int_equal(os->fstat(os->ctx, fd, &file), 0);
    assert_int_equal(file.kind, OS_FILE_REGULAR);
    assert_int_equal(file.bytes, 5);
    assert_int_equal(os->close(os->ctx, fd), 0);
    assert_int_equal(os->fstat(os->ctx, fd, &file), -EBADF);
    assert_int_equal(os->rename(os->ctx, a, b), 0);
    assert_int_equal(os->rename(os->ctx, a, b), -ENOENT);
    assert_int_equal(symlink(b, a), 0);
    assert_int_equal(os->stat(os->ctx, a, &file), 0); /* the link, not what is behind it */
    assert_int_equal(file.kind, OS_FILE_LINK);
    assert_int_equal(os->unlink(os->ctx, a), 0);
    assert_int_equal(os->stat(os->ctx, b, &file), 0);
    assert_int_equal(os->unlink(os->ctx, b), 0);
    assert_int_equal(os->unlink(os->ctx, b), -ENOENT);
}

struct seen {
    int count, loopbacks;
    char text[64];
};

static void see_address(void *arg, const struct sockaddr *addr, unsigned len)
{
    struct seen *seen = arg;
    struct sockaddr_in in;
    if (addr->sa_family != AF_INET || len != sizeof in)
        return;
    memcpy(&in, addr, sizeof in);
    seen->count++;
    snprintf(seen->text, sizeof seen->text, "%s:%d", inet_ntoa(in.sin_addr), ntohs(in.sin_port));
}

static void see_interface(void *arg, const char *name, const struct sockaddr *addr,
                          bool is_loopback)
{
    struct seen *seen = arg;
    assert_non_null(addr);
    assert_true(name[0] != '\0');
    seen->count++;
    seen->loopbacks += is_loopback;
}

static void names_and_interfaces(void **state)
{
    (void)state;
    struct seen seen = {0};
    assert_int_equal(os->resolve(os->ctx, "10.1.2.3", "80", see_address, &seen), 0);
    assert_int_equal(seen.count, 1);
    assert_string_equal(seen.text, "10.1.2.3:80");
    assert_true(os->resolve(os->ctx, "no such name!", "80", see_address, &seen) < 0);
    assert_int_equal(seen.count, 1);
    seen = (struct seen){0};
    assert_int_equal(os->interfaces(os->ctx, see_interface, &seen), 0);
    assert_true(seen.loopbacks <= seen.count);
}

static void libraries(void **state)
{
    (void)state;
    char why[128] = "";
    assert_null(os->library_open(os->ctx, "libno_such_thing.so.0", 0, why, sizeof why));
    assert_non_null(strstr(why, "libno_such_thing"));
    assert_null(os->library_open(os->ctx, "libno_such_thing.so.0", 0, NULL, 0));
    void *m = os->library_open(os->ctx, "libm.so.6", 0, why, sizeof why);
    assert_non_null(m);
    assert_non_null(os->library_symbol(os->ctx, m, "cbrt"));
    assert_null(os->library_symbol(os->ctx, m, "no_such_symbol"));
    assert_non_null(library_path_of(os->library_symbol(os->ctx, m, "cbrt")));
    assert_false(library_is_of_program(os->library_symbol(os->ctx, m, "cbrt")));
    assert_true(library_is_of_program((const void *)(uintptr_t)in_folder));
    os->library_close(os->ctx, m);
    os->library_close(os->ctx, NULL);
}

/* ---- what stands beside the table ---- */

static void the_machine(void **state)
{
    (void)state;
    char id[MACHINE_BOOT_ID_MAX], again[MACHINE_BOOT_ID_MAX], name[64];
    machine_boot_id(os, id);
    machine_boot_id(os, again);
    assert_int_equal(strlen(id), 36);
    assert_string_equal(id, again);
    machine_name(os, name, sizeof name);
    assert_true(name[0] != '\0');
    assert_null(strchr(name, '\n'));
    assert_true(machine_memory_bytes(os) > (64u << 20));
    size_t page = os->page_bytes(os->ctx);
    assert_true(page >= 4096 && (page & (page - 1)) == 0);
}

static void memory_that_is_private(void **state)
{
    (void)state;
    size_t page = os->page_bytes(os->ctx);
    char what[160];
    bool is_private = false;
    uint8_t *own = mmap(NULL, 4 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(own != MAP_FAILED);
    assert_int_equal(machine_memory_check(os, own, 4 * page, &is_private, what, sizeof what), 0);
    assert_true(is_private);
    assert_int_equal(mprotect(own + page, page, PROT_READ), 0);
    assert_int_equal(machine_memory_check(os, own, 4 * page, &is_private, what, sizeof what), 0);
    assert_false(is_private);
    assert_int_equal(munmap(own, 4 * page), 0);
    static const char constant[] = "in a file";
    assert_int_equal(machine_memory_check(os, constant, 1, &is_private, what, sizeof what), 0);
    assert_false(is_private);
}

static void processes(void **state)
{
    (void)state;
    char path[512], text[4096];
    assert_int_equal(proc_parent(os, os->pid(os->ctx)), getppid());
    assert_int_equal(proc_parent(os, INT32_MAX), -1);
    assert_true(proc_program(os, os->pid(os->ctx), path, sizeof path));
    assert_false(proc_program(os, INT32_MAX, path, sizeof path));
    assert_int_equal(proc_environment(os, INT32_MAX, text, sizeof text), 0);
    struct proc_times times, later;
    volatile uint64_t work = 0;
    assert_false(proc_times(os, INT32_MAX, &times));
    assert_true(proc_times(os, os->pid(os->ctx), &times));
    assert_true(times.user_ns >= 0 && times.system_ns >= 0 && times.age_ns >= 0);
    do {
        for (int i = 0; i < 1000000; i++)
            work++;
        assert_true(proc_times(os, os->pid(os->ctx), &later));
    } while (later.user_ns == times.user_ns && !HVD_TEST_EMULATED); /* qemu reports no times */
    assert_true(later.user_ns >= times.user_ns && later.system_ns >= times.system_ns);
    assert_true(later.age_ns >= times.age_ns);
    int fds[2];
    assert_int_equal(pipe(fds), 0);
    int again = proc_reopen(os, fds[0]);
    assert_true(again >= 0 && again != fds[0]);
    assert_true(proc_reopen(os, INT32_MAX) < 0);
    close(again);
    close(fds[0]);
    close(fds[1]);
}

static void local_sockets(void **state)
{
    (void)state;
    char name[SOCKET_LOCAL_NAME_MAX + 2];
    struct sockaddr_storage address;
    struct socket_peer peer;
    const char *back;
    memset(name, 'n', sizeof name);
    assert_int_equal(socket_local_address(name, 0, &address), 0);
    assert_int_equal(socket_local_address(name, SOCKET_LOCAL_NAME_MAX + 1, &address), 0);
    unsigned bytes = socket_local_address(name, SOCKET_LOCAL_NAME_MAX, &address);
    assert_int_equal(socket_local_name(&address, bytes, &back), SOCKET_LOCAL_NAME_MAX);
    assert_memory_equal(back, name, SOCKET_LOCAL_NAME_MAX);
    snprintf(name, sizeof name, "hvd-test-%d", os->pid(os->ctx));
    bytes = socket_local_address(name, strlen(name), &address);
    int listener = os->socket(os->ctx, AF_UNIX, SOCK_STREAM);
    int dialer = os->socket(os->ctx, AF_UNIX, SOCK_STREAM);
    assert_int_equal(os->bind(os->ctx, listener, (struct sockaddr *)&address, bytes), 0);
    assert_true(socket_peer(os, dialer, &peer) < 0); /* connected to nobody */
    assert_int_equal(os->listen(os->ctx, listener, 1), 0);
    assert_int_equal(os->connect(os->ctx, dialer, (struct sockaddr *)&address, bytes), 0);
    assert_int_equal(socket_peer(os, dialer, &peer), 0);
    assert_int_equal(peer.pid, os->pid(os->ctx));
    assert_int_equal(peer.uid, os->user(os->ctx));
    os->close(os->ctx, dialer);
    os->close(os->ctx, listener);
}

/* A link-local address keeps the number of its interface, and is read back. */
static void addresses_are_read_back(void **state)
{
    (void)state;
    static const char *const texts[] = {"unix:some-name", "10.0.0.1:80", "[::1]:9",
                                        "[fe80::1%1]:7"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        struct address list[2];
        char text[ADDRESS_TEXT_MAX];
        int count = 0;
        assert_int_equal(address_list_parse(os, texts[i], list, 2, &count, NULL), HVD_OK);
        assert_int_equal(count, 1);
        address_format(&list[0], text, sizeof text);
        assert_string_equal(text, texts[i]);
    }
}

/* ---- what happens when the system refuses ---- */

/* Calls the scenario with each of its calls failing in turn; it must give HVD_OK or an error with a
 * text, and leave neither memory nor files behind. */
static void each_call_fails(hvd_status_t (*scenario)(const struct os *os, struct error *error),
                            uint64_t calls_min)
{
    struct fault_os *fault = fault_os_create(os_host(), 0);
    struct error error = {0};
    assert_int_equal(scenario(fault_os_table(fault), &error), HVD_OK);
    uint64_t calls = fault_os_calls(fault), live, live_now, total, errors = 0;
    assert_true(calls >= calls_min);
    os_host_alloc_counts(&live, &total);
    for (uint64_t k = 1; k <= calls; k++) {
        error = (struct error){0};
        fault_os_arm(fault, k, false);
        hvd_status_t status = scenario(fault_os_table(fault), &error);
        assert_true(fault_os_failures(fault) == 1);
        if (status != HVD_OK && status != HVD_AGAIN)
            assert_true(error.text[0] != '\0');
        errors += status != HVD_OK;
        os_host_alloc_counts(&live_now, &total);
        assert_int_equal(live_now, live);
    }
    assert_true(errors > 0);
    fault_os_destroy(fault);
}

static hvd_status_t hand_over(const struct os *table, struct error *error)
{
    static const uint8_t key[32] = {1, 2, 3};
    const char *path = in_folder("key");
    uint8_t got[32];
    char address[HANDOVER_ADDRESS_MAX];
    hvd_status_t status = handover_write(table, path, key, "unix:x", error);
    if (status == HVD_OK)
        status = handover_read(table, path, got, address, error);
    if (status == HVD_OK)
        assert_memory_equal(got, key, sizeof got);
    handover_remove(table, path);
    return status;
}

static hvd_status_t key_of_file(const struct os *table, struct error *error)
{
    struct config config;
    uint8_t key[KEY_BYTES];
    bool has = false;
    memset(&config, 0, sizeof config);
    config.key_fd = -1;
    snprintf(config.key_file, sizeof config.key_file, "%s", in_folder("jobkey"));
    return key_load(table, &config, key, &has, error);
}

static hvd_status_t addresses(const struct os *table, struct error *error)
{
    struct address list[4];
    int count = 0;
    return address_list_parse(table, "127.0.0.1:80", list, 4, &count, error);
}

static void refused_calls(void **state)
{
    (void)state;
    each_call_fails(hand_over, 6); /* open, write, rename, open, fstat, read */
    int fd = open(in_folder("jobkey"), O_WRONLY | O_CREAT | O_EXCL, 0600);
    assert_int_equal(
        write(fd, "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef", 64), 64);
    close(fd);
    each_call_fails(key_of_file, 4);
    assert_int_equal(unlink(in_folder("jobkey")), 0);
    each_call_fails(addresses, 1);
}

/* No cipher, but no crash and nothing half bound: each symbol in turn is missing. */
static void refused_library(void **state)
{
    (void)state;
    struct cipher cipher;
    if (!cipher_load(os, &cipher))
        skip();
    cipher_unload(&cipher);
    struct fault_os *fault = fault_os_create(os, 0);
    const struct os *table = fault_os_table(fault);
    for (uint64_t k = 1; k <= 8; k++) {
        fault_os_arm(fault, k, true);
        assert_false(cipher_load(table, &cipher));
        assert_null(cipher.library);
    }
    fault_os_destroy(fault);
}

/* ---- pages larger than ours ---- */

static size_t page_bytes;

static size_t large_pages(void *ctx)
{
    (void)ctx;
    return page_bytes;
}

static hvd_status_t arena_open(const struct os *table, struct shm **ret, struct error *error)
{
    static struct config config;
    static struct endpoint self;
    config.arena_max_bytes = 64 << 20;
    config.local_size = 1;
    return shm_create(table, &config, 0, &self, ret, error);
}

static void larger_pages(void **state)
{
    (void)state;
    struct os table = *os;
    struct shm *shm = NULL;
    struct error error = {0};
    table.page_bytes = large_pages;
    page_bytes = 64u << 10;
    assert_int_equal(arena_open(&table, &shm, &error), HVD_OK);
    assert_int_equal(shm_page_bytes(shm), page_bytes);
    uint8_t *a = shm_heap_alloc(shm, 200000), *b = shm_heap_alloc(shm, 200000);
    assert_int_equal((uintptr_t)(b - a) % page_bytes, 0);
    memset(a, 1, 200000);
    memset(b, 2, 200000);
    assert_true(shm_detach(shm, a + 100000, 10)); /* its page, not the neighbour's */
    assert_int_equal(a[100000], 1);
    assert_int_equal(b[0], 2);
    assert_true(shm_offset(shm, b, 200000) != UINT64_MAX);
    assert_int_equal(shm_offset(shm, a, 200000), UINT64_MAX);
    void *buffer =
        mmap(NULL, 256u << 10, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    uint8_t *whole = (uint8_t *)(((uintptr_t)buffer + page_bytes - 1) / page_bytes * page_bytes);
    assert_int_equal(shm_register(shm, whole, 4096, &error), HVD_ERR_INVALID);
    assert_non_null(strstr(error.text, "65536"));
    assert_int_equal(shm_register(shm, whole, page_bytes, NULL), HVD_OK);
    assert_int_equal(shm_unregister(shm, whole, NULL), HVD_OK);
    munmap(buffer, 256u << 10);
    shm_transport(shm)->ops->destroy(shm_transport(shm));

    page_bytes = 1u << 20;
    error = (struct error){0};
    assert_int_equal(arena_open(&table, &shm, &error), HVD_ERR_OS);
    assert_non_null(strstr(error.text, "1048576"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files_and_folders),
        cmocka_unit_test(names_and_interfaces),
        cmocka_unit_test(libraries),
        cmocka_unit_test(the_machine),
        cmocka_unit_test(memory_that_is_private),
        cmocka_unit_test(processes),
        cmocka_unit_test(local_sockets),
        cmocka_unit_test(addresses_are_read_back),
        cmocka_unit_test(refused_calls),
        cmocka_unit_test(refused_library),
        cmocka_unit_test(larger_pages),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
