/* SPDX-License-Identifier: Apache-2.0 */
/* transport_ends.h - what tests with several connected ranks share: ranks that connect at the same
 * time, and events that nobody listens to. Include it after cmocka.h. */
#ifndef HVD_TESTS_TRANSPORT_ENDS_H
#define HVD_TESTS_TRANSPORT_ENDS_H

#include <pthread.h>

#include "transport/transport.h"

#define ENDS_MAX 64

static inline void ends_ignore_message(void *ctx, int32_t peer, const void *bytes, size_t n)
{
    (void)ctx;
    (void)peer;
    (void)bytes;
    (void)n;
}

static inline void ends_ignore_down(void *ctx, int32_t peer, hvd_status_t status, const char *why)
{
    (void)ctx;
    (void)peer;
    (void)status;
    (void)why;
}

/* Runs `body` on every one of `count` ranks, `rank_bytes` apart, each in a thread of its own. */
static inline void ends_together(int32_t count, void *ranks, size_t rank_bytes,
                                 void *(*body)(void *rank))
{
    pthread_t threads[ENDS_MAX];
    assert_true(count <= ENDS_MAX);
    for (int32_t i = 0; i < count; i++)
        assert_int_equal(
            pthread_create(&threads[i], NULL, body, (char *)ranks + (size_t)i * rank_bytes), 0);
    for (int32_t i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
}

#endif
