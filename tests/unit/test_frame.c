/* SPDX-License-Identifier: Apache-2.0 */
/* test_frame.c - sealed frames, with libcrypto's cipher and without: a sealed frame opens in order
 * and in its direction; anything else does not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "wire/frame.h"

static const uint8_t KEY_A[32] = {1, 1, 2, 3, 5, 8}, KEY_B[32] = {2, 3, 5, 7, 11};

struct ends {
    struct cipher cipher;
    struct seal left, right;
};

static void ends_begin(struct ends *e, bool is_plain)
{
    const struct cipher *cipher = NULL;
    memset(e, 0, sizeof *e);
    if (!is_plain && cipher_load(os_host(), &e->cipher))
        cipher = &e->cipher;
    if (!is_plain && cipher == NULL)
        skip(); /* no libcrypto here: the plain half of each test has run */
    assert_int_equal(seal_begin(&e->left, cipher, KEY_A, KEY_B), HVD_OK);
    assert_int_equal(seal_begin(&e->right, cipher, KEY_B, KEY_A), HVD_OK);
}

static void ends_end(struct ends *e)
{
    seal_end(&e->left);
    seal_end(&e->right);
    cipher_unload(&e->cipher);
}

static hvd_status_t open_copy(struct seal *seal, const uint8_t *frame, size_t n, uint8_t *ret)
{
    uint8_t type;
    uint16_t flags;
    if (n > 0)
        memcpy(ret, frame + FRAME_HEADER_BYTES, n);
    return frame_open(seal, frame, ret, n, &type, &flags, NULL);
}

static void round_trip(bool is_plain)
{
    static const size_t sizes[] = {0, 1, 15, 16, 17, 1000, FRAME_PAYLOAD_MAX};
    struct ends e;
    uint8_t *bytes = malloc(FRAME_PAYLOAD_MAX), *frame = malloc(FRAME_PAYLOAD_MAX + 64);
    ends_begin(&e, is_plain);
    for (size_t i = 0; i < FRAME_PAYLOAD_MAX; i++)
        bytes[i] = (uint8_t)(i % 251);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        uint32_t length;
        uint8_t type;
        uint16_t flags;
        size_t n = sizes[i];
        assert_int_equal(frame_seal(&e.left, (uint8_t)i, FRAME_MORE, bytes, n, frame), HVD_OK);
        if (n >= 16) /* readable exactly when there is no cipher */
            assert_int_equal(memcmp(frame + FRAME_HEADER_BYTES, bytes, n) == 0, is_plain);
        assert_int_equal(frame_length(frame, &length, NULL), HVD_OK);
        assert_int_equal(length, n);
        assert_int_equal(
            frame_open(&e.right, frame, frame + FRAME_HEADER_BYTES, n, &type, &flags, NULL),
            HVD_OK);
        assert_int_equal(type, i);
        assert_int_equal(flags, FRAME_MORE);
        if (n > 0)
            assert_memory_equal(frame + FRAME_HEADER_BYTES, bytes, n);
    }
    assert_int_equal(frame_seal(&e.left, 1, 0, bytes, FRAME_PAYLOAD_MAX + 1u, frame),
                     HVD_ERR_LIMIT);
    ends_end(&e);
    free(bytes);
    free(frame);
}

static void test_round_trip(void **state)
{
    (void)state;
    round_trip(true);
    round_trip(false);
}

static void every_bit(bool is_plain)
{
    struct ends e;
    uint8_t frame[FRAME_HEADER_BYTES + 24], out[24];
    ends_begin(&e, is_plain);
    assert_int_equal(frame_seal(&e.left, 3, 0, "twenty-four bytes to keep", 24, frame), HVD_OK);
    for (size_t bit = 0; bit < sizeof frame * 8; bit++) {
        frame[bit / 8] ^= (uint8_t)(1u << (bit % 8));
        assert_int_equal(open_copy(&e.right, frame, 24, out), HVD_ERR_CORRUPT);
        frame[bit / 8] ^= (uint8_t)(1u << (bit % 8));
    }
    assert_int_equal(open_copy(&e.right, frame, 23, out), HVD_ERR_CORRUPT);
    assert_int_equal(open_copy(&e.right, frame, 24, out), HVD_OK);
    assert_memory_equal(out, "twenty-four bytes to keep", 24);
    ends_end(&e);
}

static void test_every_bit_matters(void **state)
{
    (void)state;
    every_bit(true);
    every_bit(false);
}

static void order(bool is_plain)
{
    struct ends e;
    uint8_t one[FRAME_HEADER_BYTES + 4], two[FRAME_HEADER_BYTES + 4], out[4];
    ends_begin(&e, is_plain);
    assert_int_equal(frame_seal(&e.left, 3, 0, "one!", 4, one), HVD_OK);
    assert_int_equal(frame_seal(&e.left, 3, 0, "two!", 4, two), HVD_OK);
    assert_int_equal(open_copy(&e.right, two, 4, out), HVD_ERR_CORRUPT); /* left out */
    assert_int_equal(open_copy(&e.left, one, 4, out), HVD_ERR_CORRUPT);  /* turned back */
    assert_int_equal(open_copy(&e.right, one, 4, out), HVD_OK);
    assert_int_equal(open_copy(&e.right, one, 4, out), HVD_ERR_CORRUPT); /* repeated */
    assert_int_equal(open_copy(&e.right, two, 4, out), HVD_OK);
    ends_end(&e);
}

static void test_order(void **state)
{
    (void)state;
    order(true);
    order(false);
}

/* A frame sealed without a cipher does not open with one, nor the other way round. */
static void test_modes_do_not_mix(void **state)
{
    (void)state;
    struct ends plain, sealed;
    uint8_t frame[FRAME_HEADER_BYTES + 4], out[4];
    ends_begin(&sealed, false);
    ends_begin(&plain, true);
    assert_int_equal(frame_seal(&plain.left, 3, 0, "text", 4, frame), HVD_OK);
    assert_int_equal(open_copy(&sealed.right, frame, 4, out), HVD_ERR_CORRUPT);
    assert_int_equal(frame_seal(&sealed.left, 3, 0, "text", 4, frame), HVD_OK);
    assert_int_equal(open_copy(&plain.right, frame, 4, out), HVD_ERR_CORRUPT);
    ends_end(&plain);
    ends_end(&sealed);
}

static void test_length(void **state)
{
    (void)state;
    struct ends e;
    struct error error = {0};
    uint8_t frame[FRAME_HEADER_BYTES];
    uint32_t length = 7;
    ends_begin(&e, true);
    assert_int_equal(frame_seal(&e.left, 3, 0, NULL, 0, frame), HVD_OK);
    frame[10] = 1; /* 65,536 */
    assert_int_equal(frame_length(frame, &length, NULL), HVD_OK);
    assert_int_equal(length, FRAME_PAYLOAD_MAX);
    frame[8] = 1;
    assert_int_equal(frame_length(frame, &length, &error), HVD_ERR_CORRUPT);
    assert_string_equal(error.text, "a frame announced 65537 bytes, 65536 are allowed");
    frame[0] ^= 1;
    assert_int_equal(frame_length(frame, &length, NULL), HVD_ERR_CORRUPT);
    ends_end(&e);
}

/* Test case 14 of the GCM specification's appendix: zero key, nonce and block. */
static void test_cipher_vector(void **state)
{
    (void)state;
    static const uint8_t key[32] = {0}, nonce[12] = {0}, zero[16] = {0};
    static const uint8_t text[16] = {0xce, 0xa7, 0x40, 0x3d, 0x4d, 0x60, 0x6b, 0x6e,
                                     0x07, 0x4e, 0xc5, 0xd3, 0xba, 0xf3, 0x9d, 0x18};
    static const uint8_t expected[16] = {0xd0, 0xd1, 0xc8, 0xa7, 0x99, 0x99, 0x6b, 0xf0,
                                         0x26, 0x5b, 0x98, 0xb5, 0xd4, 0x8a, 0xb9, 0x19};
    uint8_t block[16] = {0}, tag[16];
    struct cipher c;
    if (!cipher_load(os_host(), &c))
        skip();
    struct cipher_ctx *ctx = cipher_open(&c, key, true);
    assert_non_null(ctx);
    assert_true(cipher_seal(&c, ctx, nonce, NULL, 0, block, 16, tag));
    assert_memory_equal(block, text, 16);
    assert_memory_equal(tag, expected, 16);
    cipher_close(&c, ctx);
    ctx = cipher_open(&c, key, false);
    assert_true(cipher_unseal(&c, ctx, nonce, NULL, 0, block, 16, tag));
    assert_memory_equal(block, zero, 16);
    tag[3] ^= 1;
    assert_false(cipher_unseal(&c, ctx, nonce, NULL, 0, block, 16, tag));
    cipher_close(&c, ctx);
    cipher_close(&c, NULL);
    cipher_unload(&c);
    cipher_unload(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip), cmocka_unit_test(test_every_bit_matters),
        cmocka_unit_test(test_order),      cmocka_unit_test(test_modes_do_not_mix),
        cmocka_unit_test(test_length),     cmocka_unit_test(test_cipher_vector),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
