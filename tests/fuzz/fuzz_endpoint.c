/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_endpoint.c - an endpoint as a peer sent it, and every decision that is made from two of
 * them. Start reading at LLVMFuzzerTestOneInput(). */
#include <stdlib.h>

#include "transport/transports.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct endpoint all[2];
    struct reader r;
    uint8_t addresses[16][16];
    reader_init(&r, data, size);
    for (int i = 0; i < 2; i++) {
        if (!endpoint_get(&r, &all[i]) ||
            transports_check(transport_table, &all[i], NULL) != HVD_OK)
            return 0;
        transports_addresses(transport_table, &all[i], addresses, 16);
    }
    if (transports_choose(transport_table, &all[0], &all[1]) !=
            transports_choose(transport_table, &all[1], &all[0]) &&
        all[0].rank != all[1].rank)
        abort();
    return 0;
}
