/* SPDX-License-Identifier: Apache-2.0 */
/* handover.c - see handover.h.
 *
 * `struct os` has no words for folders, modes and renaming: such a file exists in the real world
 * only, where several processes share it, so the system is asked directly for those.
 * Thread: the one inside hvd_init().  Start reading at handover_path(). */
#include "api/handover.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/sha256.h"
#include "wire/key.h"

#define FILE_MAX   1024u /* bytes of a file: key, address, two line ends */
#define NAME_BYTES 16    /* of the hash in its name */
#define HEX_DIGITS 64u
#define FOLDER_MAX (HANDOVER_PATH_MAX - 64)
#define CLOSED     ((unsigned)(S_IRWXG | S_IRWXO))

/* ---- the folder ---- */

/* `closed_to`: what others may not do there. */
static hvd_status_t folder_check(const char *folder, unsigned closed_to, struct error *error)
{
    struct stat st;
    if (lstat(folder, &st) < 0)
        return error_set_os(error, -errno, "%s, for the job key, cannot be examined", folder);
    if (!S_ISDIR(st.st_mode) || st.st_uid != geteuid())
        return error_set(error, HVD_ERR_CONFIG,
                         "%s, for the job key, is not a folder of yours; remove it or set "
                         "HOROVOD_KEY_FILE",
                         folder);
    if ((st.st_mode & closed_to) != 0)
        return error_set(error, HVD_ERR_CONFIG,
                         "%s, for the job key, is open to others (mode %04o); chmod 700 it", folder,
                         (unsigned)(st.st_mode & 07777));
    return HVD_OK;
}

static hvd_status_t folder_make(const char *folder, unsigned closed_to, struct error *error)
{
    if (mkdir(folder, 0700) < 0 && errno != EEXIST)
        return error_set_os(error, -errno, "%s, for the job key, cannot be made", folder);
    return folder_check(folder, closed_to, error);
}

/* The user's folder for this boot if there is one that deserves it, else one of our own. */
static hvd_status_t folder_here(const struct os *os, char *ret_folder, struct error *error)
{
    const char *runtime = os->env(os->ctx, "XDG_RUNTIME_DIR");
    if (runtime != NULL && runtime[0] == '/' && strlen(runtime) < FOLDER_MAX &&
        folder_check(runtime, CLOSED, NULL) == HVD_OK) {
        snprintf(ret_folder, FOLDER_MAX, "%s", runtime);
        return HVD_OK;
    }
    snprintf(ret_folder, FOLDER_MAX, "/tmp/horovod-%u", (unsigned)geteuid());
    return folder_make(ret_folder, CLOSED, error);
}

static hvd_status_t folder_shared(const struct os *os, char *ret_folder, struct error *error)
{
    const char *home = os->env(os->ctx, "HOME");
    if (home == NULL || home[0] != '/' || strlen(home) + 24 > FOLDER_MAX)
        return error_set(error, HVD_ERR_CONFIG,
                         "HOME names no folder in which ranks on several hosts could find the job "
                         "key; set HOROVOD_KEY_FILE to a file that all of them can read");
    /* Others may look into the outer one, which has been there before for harmless things. */
    snprintf(ret_folder, FOLDER_MAX, "%s/.horovod", home);
    hvd_status_t status = folder_make(ret_folder, S_IWGRP | S_IWOTH, error);
    if (status != HVD_OK)
        return status;
    snprintf(ret_folder, FOLDER_MAX, "%s/.horovod/keys", home);
    return folder_make(ret_folder, CLOSED, error);
}

hvd_status_t handover_path(const struct os *os, const char *identity, uint64_t life,
                           bool is_one_host, char ret_path[HANDOVER_PATH_MAX], struct error *error)
{
    char folder[FOLDER_MAX], text[32];
    uint8_t digest[SHA256_BYTES];
    struct sha256 h;
    hvd_status_t status =
        is_one_host ? folder_here(os, folder, error) : folder_shared(os, folder, error);
    if (status != HVD_OK)
        return status;
    sha256_init(&h);
    sha256_update(&h, identity, strlen(identity));
    int digits = snprintf(text, sizeof text, "/%llu", (unsigned long long)life);
    sha256_update(&h, text, (size_t)digits);
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
    unlink(part); /* of a dead process with our number */
    int fd = os->open(os->ctx, part, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    int rc = fd < 0 ? fd : write_whole(os, fd, text, (size_t)n);
    bytes_wipe(text, sizeof text);
    if (fd >= 0)
        os->close(os->ctx, fd);
    if (rc == 0 && rename(part, path) < 0)
        rc = -errno;
    if (rc == 0)
        return HVD_OK;
    unlink(part);
    return error_set_os(error, rc, "The job key could not be left in %s", path);
}

void handover_remove(const char *path)
{
    if (path[0] != '\0')
        unlink(path);
}

/* ---- the others ---- */

static hvd_status_t file_check(int fd, const char *path, struct error *error)
{
    struct stat st;
    if (fstat(fd, &st) < 0)
        return error_set_os(error, -errno, "%s cannot be examined", path);
    if (!S_ISREG(st.st_mode) || st.st_uid != geteuid() || (st.st_mode & (S_IRWXG | S_IRWXO)) != 0)
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
    hvd_status_t status = file_check(fd, path, error);
    int64_t n = status == HVD_OK ? os->read(os->ctx, fd, text, FILE_MAX) : 0;
    os->close(os->ctx, fd);
    if (status == HVD_OK && (n < 0 || !text_read(text, ret_key, ret_address)))
        status = error_set(error, HVD_ERR_CONFIG, "%s holds no job key; remove it", path);
    bytes_wipe(text, sizeof text);
    return status;
}
