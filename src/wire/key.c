/* SPDX-License-Identifier: Apache-2.0 */
/* key.c - reading and making the job key; see key.h.
 *
 * Whatever held the key on the way is wiped before it goes out of scope, and the error texts name
 * only where the key was looked for.
 *
 * Thread: the one that initialises.  Invariant: ret_key is written only on success.
 * Start reading at key_load(). */
#include "wire/key.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "base/codec.h"
#include "base/proc.h"
#include "base/sha256.h"

#define HEX_DIGITS      64u
#define TEXT_MAX        (HEX_DIGITS + 2u) /* a line end of one or two bytes */
#define FD_WAIT_NS      (INT64_C(5) * 1000 * 1000 * 1000)
#define OPEN_TO_OTHERS  0077u
#define FD_STANDARD_MAX 2 /* stdin, stdout and stderr stay open */

static int hex_value(uint8_t digit)
{
    if (digit >= '0' && digit <= '9')
        return digit - '0';
    if (digit >= 'a' && digit <= 'f')
        return digit - 'a' + 10;
    if (digit >= 'A' && digit <= 'F')
        return digit - 'A' + 10;
    return -1;
}

static bool is_hex(const uint8_t *text, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (hex_value(text[i]) < 0)
            return false;
    return true;
}

/* 32 raw bytes, or 64 hex digits with or without a line end. */
static bool key_decode(const uint8_t *text, size_t n, uint8_t ret_key[KEY_BYTES])
{
    if (n == KEY_BYTES) {
        memcpy(ret_key, text, KEY_BYTES);
        return true;
    }
    while (n > HEX_DIGITS && (text[n - 1] == '\n' || text[n - 1] == '\r'))
        n--;
    if (n != HEX_DIGITS || !is_hex(text, n))
        return false;
    for (size_t i = 0; i < KEY_BYTES; i++)
        ret_key[i] = (uint8_t)(hex_value(text[2 * i]) * 16 + hex_value(text[2 * i + 1]));
    return true;
}

/* Enough to go on without waiting for the writer to close. 32 random bytes that happen to be all
 * hex digits would be taken for half a text; that is one key in 2^128. */
static bool is_whole(const uint8_t *text, size_t n)
{
    return n >= HEX_DIGITS || (n == KEY_BYTES && !is_hex(text, n));
}

/* Waits for the next bytes, if the descriptor is of a kind one can wait for. */
static int fd_wait(const struct os *os, int poll_fd, bool can_wait, int64_t until_ns)
{
    struct os_event event;
    int64_t left_ns = until_ns - os_now_ns(os);
    if (!can_wait)
        return 0;
    if (left_ns <= 0)
        return -ETIMEDOUT;
    int n = os->poll_wait(os->ctx, poll_fd, &event, 1, left_ns);
    if (n == -EINTR)
        return 0;
    return n == 0 ? -ETIMEDOUT : n;
}

/* Bytes read, or a negative errno value. */
static int fd_read(const struct os *os, int fd, uint8_t text[TEXT_MAX])
{
    size_t n = 0;
    int poll_fd = os->poll_create(os->ctx), rc = 0;
    if (poll_fd < 0)
        return poll_fd;
    bool can_wait = os->poll_add(os->ctx, poll_fd, fd, NULL, false) >= 0; /* regular files cannot */
    int64_t until_ns = os_now_ns(os) + FD_WAIT_NS;
    while (n < TEXT_MAX && !is_whole(text, n)) {
        rc = fd_wait(os, poll_fd, can_wait, until_ns);
        if (rc < 0)
            break;
        int64_t got = os->read(os->ctx, fd, text + n, TEXT_MAX - n);
        if (got == -EINTR || (got == -EAGAIN && can_wait))
            continue;
        rc = got < 0 ? (int)got : 0;
        if (got <= 0)
            break;
        n += (size_t)got;
    }
    os->close(os->ctx, poll_fd);
    return rc < 0 ? rc : (int)n;
}

static hvd_status_t from_fd(const struct os *os, int fd, const char *where,
                            uint8_t ret_key[KEY_BYTES], struct error *error)
{
    uint8_t text[TEXT_MAX];
    int n = fd_read(os, fd, text);
    bool is_right = n >= 0 && key_decode(text, (size_t)n, ret_key);
    bytes_wipe(text, sizeof text);
    if (n < 0)
        return error_set_os(error, n, "the job key could not be read from %s", where);
    if (!is_right)
        return error_set(error, HVD_ERR_CONFIG,
                         "%s holds no job key (32 raw bytes or 64 hex digits)", where);
    return HVD_OK;
}

static hvd_status_t load_fd(const struct os *os, int64_t fd, uint8_t ret_key[KEY_BYTES],
                            struct error *error)
{
    if (fd > INT32_MAX)
        return error_set(error, HVD_ERR_CONFIG, "HOROVOD_KEY_FD is no descriptor");
    /* Opened afresh, a memory file is read from its start, however often it was read before: a
     * shell that starts several programs hands the same descriptor to each. */
    int fresh = proc_reopen(os, (int)fd);
    hvd_status_t status = from_fd(os, fresh >= 0 ? fresh : (int)fd,
                                  "the descriptor HOROVOD_KEY_FD names", ret_key, error);
    if (fresh >= 0)
        os->close(os->ctx, fresh);
    if (fd > FD_STANDARD_MAX && status == HVD_OK)
        os->close(os->ctx, (int)fd); /* so that no child of ours inherits it */
    return status;
}

/* Beside a key file, a descriptor counts only if it is a file of the right size and ours: anything
 * else under that number belongs to a wrapper, which misses what we read from it. */
static bool is_key_likely(const struct os *os, int64_t fd)
{
    struct os_file file;
    return fd <= INT32_MAX && os->fstat(os->ctx, (int)fd, &file) == 0 &&
           file.kind == OS_FILE_REGULAR && file.uid == os->user(os->ctx) &&
           (file.mode & OPEN_TO_OTHERS) == 0 &&
           (file.bytes == KEY_BYTES || (file.bytes >= HEX_DIGITS && file.bytes <= TEXT_MAX));
}

static hvd_status_t file_check(const struct os *os, int fd, struct error *error)
{
    struct os_file file;
    int rc = os->fstat(os->ctx, fd, &file);
    if (rc < 0)
        return error_set_os(error, rc, "HOROVOD_KEY_FILE cannot be examined");
    if (file.kind != OS_FILE_REGULAR)
        return error_set(error, HVD_ERR_CONFIG, "HOROVOD_KEY_FILE is not a regular file");
    if (file.uid != os->user(os->ctx) && file.uid != 0)
        return error_set(error, HVD_ERR_CONFIG, "HOROVOD_KEY_FILE belongs to another user");
    if ((file.mode & OPEN_TO_OTHERS) != 0)
        return error_set(error, HVD_ERR_CONFIG,
                         "HOROVOD_KEY_FILE is open to others (mode %04o); chmod 600 it",
                         (unsigned)file.mode);
    return HVD_OK;
}

static hvd_status_t load_file(const struct os *os, const char *path, uint8_t ret_key[KEY_BYTES],
                              struct error *error)
{
    /* without O_NONBLOCK a FIFO in its place would hold us before it can be refused */
    int fd = os->open(os->ctx, path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0);
    if (fd == -ELOOP)
        return error_set(error, HVD_ERR_CONFIG,
                         "HOROVOD_KEY_FILE is a symbolic link; name the file it points to");
    if (fd < 0)
        return error_set_os(error, fd, "HOROVOD_KEY_FILE cannot be opened");
    hvd_status_t status = file_check(os, fd, error);
    if (status == HVD_OK)
        status = from_fd(os, fd, "the file HOROVOD_KEY_FILE names", ret_key, error);
    os->close(os->ctx, fd);
    return status;
}

static hvd_status_t load_text(const struct os *os, const char *text, uint8_t ret_key[KEY_BYTES],
                              struct error *error)
{
    size_t n = strlen(text);
    bool is_right = n == HEX_DIGITS && key_decode((const uint8_t *)text, n, ret_key);
    if (os->env_wipe != NULL)
        os->env_wipe(os->ctx, "HOROVOD_KEY");
    return is_right ? HVD_OK : error_set(error, HVD_ERR_CONFIG, "HOROVOD_KEY is not 64 hex digits");
}

hvd_status_t key_load(const struct os *os, const struct config *config, uint8_t ret_key[KEY_BYTES],
                      bool *ret_has, struct error *error)
{
    uint8_t key[KEY_BYTES];
    hvd_status_t status = HVD_OK;
    bool has = true;
    if (config->key_fd >= 0 && (config->key_file[0] == '\0' || is_key_likely(os, config->key_fd)))
        status = load_fd(os, config->key_fd, key, error);
    else if (config->key_file[0] != '\0')
        status = load_file(os, config->key_file, key, error);
    else if (config->key[0] != '\0')
        status = load_text(os, config->key, key, error);
    else
        has = false;
    if (status == HVD_OK) {
        *ret_has = has;
        if (has)
            memcpy(ret_key, key, sizeof key);
    }
    bytes_wipe(key, sizeof key);
    return status;
}

hvd_status_t key_generate(const struct os *os, uint8_t ret_key[KEY_BYTES], struct error *error)
{
    uint8_t key[KEY_BYTES];
    int rc = os->random(os->ctx, key, sizeof key);
    if (rc < 0)
        return error_set_os(error, rc, "no random bytes for a job key");
    memcpy(ret_key, key, sizeof key);
    bytes_wipe(key, sizeof key);
    return HVD_OK;
}

void key_derive(const uint8_t job_key[KEY_BYTES], uint64_t epoch, const uint8_t salt[KEY_BYTES],
                uint8_t ret_key[KEY_BYTES])
{
    static const char label[] = "horovod generation 1";
    uint8_t text[sizeof label + sizeof epoch];
    struct writer w;
    writer_init(&w, text, sizeof text);
    put_bytes(&w, label, sizeof label);
    put_u64(&w, epoch);
    hkdf256(job_key, KEY_BYTES, salt, KEY_BYTES, text, sizeof text, ret_key, KEY_BYTES);
}

void key_hex(const uint8_t key[KEY_BYTES], char ret_hex[KEY_HEX_BYTES])
{
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < KEY_BYTES; i++) {
        ret_hex[2 * i] = digits[key[i] >> 4];
        ret_hex[2 * i + 1] = digits[key[i] & 15];
    }
    ret_hex[HEX_DIGITS] = '\0';
}
