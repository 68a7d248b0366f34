/* SPDX-License-Identifier: Apache-2.0 */
/* test_sha256.c - the vectors of RFC 6234 (SHA-256), RFC 4231 (HMAC) and RFC 5869 (HKDF), pieces of
 * every size, comparison and wiping. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/sha256.h"

static void assert_hex(const uint8_t *bytes, size_t n, const char *hex)
{
    char text[2 * 128 + 1] = "";
    for (size_t i = 0; i < n; i++)
        (void)snprintf(text + 2 * i, 3, "%02x", bytes[i]);
    assert_string_equal(text, hex);
}

static void fill_up(uint8_t *bytes, size_t n, uint8_t first)
{
    for (size_t i = 0; i < n; i++)
        bytes[i] = (uint8_t)(first + i);
}

static void assert_sha(const char *piece, size_t times, const char *hex)
{
    struct sha256 h;
    uint8_t digest[SHA256_BYTES];
    sha256_init(&h);
    for (size_t i = 0; i < times; i++)
        sha256_update(&h, piece, strlen(piece));
    sha256_final(&h, digest);
    assert_hex(digest, sizeof digest, hex);
}

static void sha_vectors(void **state)
{
    (void)state;
    assert_sha("", 1, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    assert_sha("abc", 1, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    assert_sha("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", 1,
               "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    assert_sha("aaaaaaaaaa", 100000,
               "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
    assert_sha("0123456701234567012345670123456701234567012345670123456701234567", 10,
               "594847328451bdfa85056225462cc1d867d877fb388df0ce35f25ab5562bfbb5");
}

/* However a message is cut, the digest is the same; lengths around the padding's edges. */
static void sha_in_pieces(void **state)
{
    (void)state;
    uint8_t message[200], whole[SHA256_BYTES], pieces[SHA256_BYTES];
    fill_up(message, sizeof message, 3);
    for (size_t n = 0; n <= sizeof message; n++) {
        struct sha256 h;
        sha256_init(&h);
        sha256_update(&h, message, n);
        sha256_final(&h, whole);
        for (size_t cut = 0; cut <= n; cut += 7) {
            sha256_init(&h);
            sha256_update(&h, message, cut);
            sha256_update(&h, NULL, 0);
            sha256_update(&h, message + cut, n - cut);
            sha256_final(&h, pieces);
            assert_memory_equal(whole, pieces, sizeof whole);
        }
    }
}

static void assert_hmac(const void *key, size_t key_bytes, const void *message, size_t n,
                        const char *hex)
{
    struct hmac256 h;
    uint8_t mac[SHA256_BYTES];
    hmac256_init(&h, key, key_bytes);
    hmac256_update(&h, message, n / 2);
    hmac256_update(&h, (const uint8_t *)message + n / 2, n - n / 2);
    hmac256_final(&h, mac);
    assert_hex(mac, strlen(hex) / 2, hex); /* one vector is cut short */
}

static void hmac_vectors(void **state)
{
    (void)state;
    uint8_t key[131], message[50];
    memset(key, 0x0b, 20);
    assert_hmac(key, 20, "Hi There", 8,
                "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
    assert_hmac("Jefe", 4, "what do ya want for nothing?", 28,
                "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
    memset(key, 0xaa, sizeof key);
    memset(message, 0xdd, sizeof message);
    assert_hmac(key, 20, message, 50,
                "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe");
    fill_up(key, 25, 1);
    memset(message, 0xcd, sizeof message);
    assert_hmac(key, 25, message, 50,
                "82558a389a443c0ea4cc819899f2083a85f0faa3e578f8077a2e3ff46729665b");
    memset(key, 0x0c, 20);
    assert_hmac(key, 20, "Test With Truncation", 20, "a3b6167473100ee06e0c796c2955552b");
}

static void hmac_long_key_vectors(void **state)
{
    (void)state;
    uint8_t key[131];
    memset(key, 0xaa, sizeof key);
    const char *text = "Test Using Larger Than Block-Size Key - Hash Key First";
    assert_hmac(key, sizeof key, text, strlen(text),
                "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
    text = "This is a test using a larger than block-size key and a larger than block-size data. "
           "The key needs to be hashed before being used by the HMAC algorithm.";
    assert_hmac(key, sizeof key, text, strlen(text),
                "9b09ffa71b942fcb27635fbcd5b0e944bfdc63644f0713938a7f51535c3a35e2");
}

/* RFC 5869, appendix A: the bytes of salt and label count up from a start. */
static void hkdf_vectors(void **state)
{
    static const struct {
        int key_first; /* -1: all of them 0x0b */
        size_t key_n, salt_n, label_n, out_n;
        uint8_t salt_first, label_first;
        const char *hex;
    } vectors[] = {
        {-1, 22, 13, 10, 42, 0, 0xf0,
         "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf"
         "34007208d5b887185865"},
        {-1, 22, 0, 0, 42, 0, 0,
         "8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d"
         "9d201395faa4b61a96c8"},
        {0, 80, 80, 80, 82, 0x60, 0xb0,
         "b11e398dc80327a1c8e7f78c596a49344f012eda2d4efad8a050cc4c19afa97c"
         "59045a99cac7827271cb41c65e590e09da3275600c2f09b8367793a9aca3db71"
         "cc30c58179ec3e87c14c01d5c1f3434f1d87"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof vectors / sizeof vectors[0]; i++) {
        uint8_t key[80], salt[80], label[80], out[82];
        memset(key, 0x0b, sizeof key);
        if (vectors[i].key_first >= 0)
            fill_up(key, vectors[i].key_n, (uint8_t)vectors[i].key_first);
        fill_up(salt, vectors[i].salt_n, vectors[i].salt_first);
        fill_up(label, vectors[i].label_n, vectors[i].label_first);
        hkdf256(key, vectors[i].key_n, vectors[i].salt_n > 0 ? salt : NULL, vectors[i].salt_n,
                vectors[i].label_n > 0 ? label : NULL, vectors[i].label_n, out, vectors[i].out_n);
        assert_hex(out, vectors[i].out_n, vectors[i].hex);
    }
}

static void equal_and_wipe(void **state)
{
    (void)state;
    uint8_t a[64], b[64];
    fill_up(a, sizeof a, 1);
    memcpy(b, a, sizeof a);
    assert_true(bytes_equal(a, b, sizeof a));
    assert_true(bytes_equal(NULL, NULL, 0));
    for (size_t bit = 0; bit < sizeof a * 8; bit++) {
        b[bit / 8] ^= (uint8_t)(1u << bit % 8);
        assert_false(bytes_equal(a, b, sizeof a));
        b[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    bytes_wipe(a, sizeof a);
    for (size_t i = 0; i < sizeof a; i++)
        assert_int_equal(a[i], 0);
    bytes_wipe(NULL, 0);
}

static void finished_states_hold_nothing(void **state)
{
    (void)state;
    static const struct hmac256 nothing;
    struct hmac256 h;
    uint8_t mac[SHA256_BYTES];
    hmac256_init(&h, "key", 3);
    hmac256_update(&h, "message", 7);
    hmac256_final(&h, mac);
    assert_memory_equal(&h, &nothing, sizeof h);
}

/* The CPU's instructions and the portable code agree, whatever the block and the state. */
static void both_compressions_agree(void **state)
{
    (void)state;
    uint64_t random = 88172645463325252;
    for (int round = 0; round < 2000; round++) {
        uint32_t a[8], b[8];
        uint8_t bytes[64 + 32];
        for (size_t i = 0; i < sizeof bytes; i++) {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            bytes[i] = (uint8_t)random;
        }
        memcpy(a, bytes + 64, sizeof a);
        memcpy(b, a, sizeof b);
        sha256_compress(a, bytes);
        sha256_compress_portable(b, bytes);
        assert_memory_equal(a, b, sizeof a);
        assert_memory_not_equal(a, bytes + 64, sizeof a);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sha_vectors),           cmocka_unit_test(both_compressions_agree),
        cmocka_unit_test(sha_in_pieces),         cmocka_unit_test(hmac_vectors),
        cmocka_unit_test(hmac_long_key_vectors), cmocka_unit_test(hkdf_vectors),
        cmocka_unit_test(equal_and_wipe),        cmocka_unit_test(finished_states_hold_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
