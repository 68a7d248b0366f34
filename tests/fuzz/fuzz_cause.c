/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_cause.c - the input, after the record's magic, is what a rank wrote into the pipe of its
 * agent. Checks that accepted records are within their limits and read the same when written again.
 */
#include <stdlib.h>
#include <string.h>

#include "wire/cause.h"

#define MAGIC_BYTES 8u

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size);

static void require(bool holds)
{
    if (!holds)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size)
{
    uint8_t record[CAUSE_BYTES], again[CAUSE_BYTES];
    struct cause cause = {0}, same;
    size_t room = sizeof record - MAGIC_BYTES;
    cause_encode(&cause, record);
    memset(record + MAGIC_BYTES, 0, room);
    memcpy(record + MAGIC_BYTES, input, size < room ? size : room);
    if (!cause_decode(record, &cause))
        return 0;
    require(cause.rank >= 0 && cause.culprit >= -1);
    require(memchr(cause.text, '\0', sizeof cause.text) != NULL);
    for (const char *at = cause.text; *at != '\0'; at++)
        require((unsigned char)*at >= ' ');
    cause_encode(&cause, again);
    require(cause_decode(again, &same));
    require(same.rank == cause.rank && same.culprit == cause.culprit);
    require(strcmp(same.text, cause.text) == 0);
    return 0;
}
