/* SPDX-License-Identifier: Apache-2.0 */
/* handover.c - see handover.h.
 *
 * Thread: the one inside hvd_init().  Start reading at handover_path(). */
#include "api/handover.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "base/machine.h"
#include "base/sha256.h"
#include "wire/key.h"

#define FILE_MAX   1024u /* bytes of a file: key, address, two line ends */
#define NAME_BYTES 16    /* of the hash in its name */
#define HEX_DIGITS 64u
#define FOLDER_MAX (HANDOVER_PATH_MAX - 64)
#define CLOSED     0077u /* for all other users */
#define READ_ONLY  0022u /* for all other users */

/* ---- the folder ---- */

/* `closed_to`: permissions that others must not have. */
static hvd_status_t folder_check(const struct os *os, const char *folder, unsigned closed_to,
                                 struct error *error)
{
    struct os_file file;
    int rc = os->stat(os->ctx, folder, &file);
    if (rc < 0)
        return error_set_os(error, rc, "%s, for the job key, cannot be examined", folder);
    if (file.kind != OS_FILE_FOLDER || file.uid != os->user(os->ctx))
        return error_set(error, HVD_ERR_CONFIG,
                         "%s, for the job key, is not a folder of yours; set XDG_RUNTIME_DIR or "
                         "HOME to a folder that only you can enter, or HOROVOD_KEY_FILE",
                         folder);
    if ((file.mode & closed_to) != 0)
        return error_set(error, HVD_ERR_CONFIG,
                         "%s, for the job key, is open to others (mode %04o); chmod 700 it", folder,
                         (unsigned)file.mode);
    return HVD_OK;
}

static hvd_status_t folder_make(const struct os *os, const char *folder, unsigned closed_to,
                                struct error *error)
{
    int rc = os->mkdir(os->ctx, folder, 0700);
    if (rc < 0 && rc != -EEXIST)
        return error_set_os(error, rc, "%s, for the job key, cannot be made", folder);
    return folder_check(os, folder, closed_to, error);
}

static hvd_status_t folder_shared(const struct os *os, char *ret_folder, struct error *error)
{
    const char *home = os->env(os->ctx, "HOME");
    if (home == NULL || home[0] != '/' || strlen(home) + 24 > FOLDER_MAX)
        return error_set(error, HVD_ERR_CONFIG,
                         "HOME names no folder in which ranks on several hosts could find the job "
                         "key; set HOROVOD_KEY_FILE to a file that all of them can read");
    /* Others may read the outer directory, which may have existed before for other purposes. */
    snprintf(ret_folder, FOLDER_MAX, "%s/.horovod", home);
    hvd_status_t status = folder_make(os, ret_folder, READ_ONLY, error);
    if (status != HVD_OK)
        return status;
    snprintf(ret_folder, FOLDER_MAX, "%s/.horovod/keys", home);
    return folder_make(os, ret_folder, CLOSED, error);
}

/* Directories that no other user can have created come first: the user's runtime directory, then
 * the home directory. In /tmp any user may have taken the name; then that is the error. */
static hvd_status_t folder_here(const struct os *os, char *ret_folder, struct error *error)
{
    const char *runtime = os->env(os->ctx, "XDG_RUNTIME_DIR");
    if (runtime != NULL && runtime[0] == '/' && strlen(runtime) < FOLDER_MAX &&
        folder_check(os, runtime, CLOSED, NULL) == HVD_OK) {
        snprintf(ret_folder, FOLDER_MAX, "%s", runtime);
        return HVD_OK;
    }
    if (folder_shared(os, ret_folder, NULL) == HVD_OK)
        return HVD_OK;
    snprintf(ret_folder, FOLDER_MAX, "/tmp/horovod-%u", (unsigned)os->user(os->ctx));
    return folder_make(os, ret_folder, CLOSED, error);
}

/* A home directory may be shared with other machines, where another job can have the same identity.
 */
static void host_add(const struct os *os, struct sha256 *h)
{
    char boot[MACHINE_BOOT_ID_MAX];
    machine_boot_id(os, boot);
    sha256_update(h, boot, strlen(boot));
}

hvd_status_t handover_path(const struct os *os, const char *identity, bool is_one_host,
                           char ret_path[HANDOVER_PATH_MAX], struct error *error)
{
    char folder[FOLDER_MAX];
    uint8_t digest[SHA256_BYTES];
    struct sha256 h;
    hvd_status_t status =
        is_one_host ? folder_here(os, folder, error) : folder_shared(os, folder, error);
    if (status != HVD_OK)
        return status;
    sha256_init(&h);
    if (is_one_host)
        host_add(os, &h);
    sha256_update(&h, identity, strlen(identity));
    sha256_final(&h, digest);
    int n = snprintf(ret_path, HANDOVER_PATH_MAX, "%s/key-", folder);
    for (int i = 0; i < NAME_BYTES; i++)
        snprintf(ret_path + n + 2 * i, 3, "%02x", digest[i]);
    return HVD_OK;
}

/* ---- rank 0 ---- */

static int write_whole(const struct os *os, int fd, const char *text, size_t n)
{
    size_t done = 0;
    while (done < n) {
        int64_t put = os->write(os->ctx, fd, text + done, n - done);
        if (put < 0 && put != -EINTR)
            return (int)put;
        done += put > 0 ? (size_t)put : 0;
    }
    return 0;
}

hvd_status_t handover_write(const struct os *os, const char *path, const uint8_t key[32],
                            const char *address, struct error *error)
{
    char part[HANDOVER_PATH_MAX + 32], text[FILE_MAX], hex[KEY_HEX_BYTES];
    snprintf(part, sizeof part, "%s.%d", path, os->pid(os->ctx));
    key_hex(key, hex);
    int n = snprintf(text, sizeof text, "%s\n%s\n", hex, address);
    bytes_wipe(hex, sizeof hex);
    if (n < 0 || (size_t)n >= sizeof text) {
        bytes_wipe(text, sizeof text);
        return error_set(error, HVD_ERR_LIMIT, "The addresses of the rendezvous are too long.");
    }
    os->unlink(os->ctx, part); /* of a dead process with our number */
    int fd = os->open(os->ctx, part, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    int rc = fd < 0 ? fd : write_whole(os, fd, text, (size_t)n);
    bytes_wipe(text, sizeof text);
    if (fd >= 0)
        os->close(os->ctx, fd);
    if (rc == 0)
        rc = os->rename(os->ctx, part, path);
    if (rc == 0)
        return HVD_OK;
    os->unlink(os->ctx, part);
    return error_set_os(error, rc, "The job key could not be left in %s", path);
}

void handover_remove(const struct os *os, const char *path)
{
    if (path[0] != '\0')
        os->unlink(os->ctx, path);
}

/* ---- the others ---- */

static hvd_status_t file_check(const struct os *os, int fd, const char *path, struct error *error)
{
    struct os_file file;
    int rc = os->fstat(os->ctx, fd, &file);
    if (rc < 0)
        return error_set_os(error, rc, "%s cannot be examined", path);
    if (file.kind != OS_FILE_REGULAR || file.uid != os->user(os->ctx) || (file.mode & CLOSED) != 0)
        return error_set(error, HVD_ERR_CONFIG,
                         "%s is not a file of yours that only you can read; remove it", path);
    return HVD_OK;
}

static int hex_value(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Two lines: 64 hex digits, and an address. */
static bool text_read(char *text, uint8_t ret_key[32], char ret_address[HANDOVER_ADDRESS_MAX])
{
    char *line = strchr(text, '\n'), *end = line != NULL ? strchr(line + 1, '\n') : NULL;
    if (end == NULL || (size_t)(line - text) != HEX_DIGITS || end == line + 1 ||
        (size_t)(end - line) > HANDOVER_ADDRESS_MAX)
        return false;
    for (size_t i = 0; i < HEX_DIGITS / 2; i++) {
        int high = hex_value(text[2 * i]), low = hex_value(text[2 * i + 1]);
        if (high < 0 || low < 0)
            return false;
        ret_key[i] = (uint8_t)(high * 16 + low);
    }
    *end = '\0';
    snprintf(ret_address, HANDOVER_ADDRESS_MAX, "%s", line + 1);
    return true;
}

hvd_status_t handover_read(const struct os *os, const char *path, uint8_t ret_key[32],
                           char ret_address[HANDOVER_ADDRESS_MAX], struct error *error)
{
    char text[FILE_MAX + 1] = "";
    int fd = os->open(os->ctx, path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0);
    if (fd == -ENOENT || fd == -ESTALE)
        return HVD_AGAIN;
    if (fd < 0)
        return error_set_os(error, fd, "%s, with the job key, cannot be opened", path);
    hvd_status_t status = file_check(os, fd, path, error);
    int64_t n = status == HVD_OK ? os->read(os->ctx, fd, text, FILE_MAX) : 0;
    os->close(os->ctx, fd);
    if (status == HVD_OK && (n < 0 || !text_read(text, ret_key, ret_address)))
        status = error_set(error, HVD_ERR_CONFIG, "%s holds no job key; remove it", path);
    bytes_wipe(text, sizeof text);
    return status;
}
