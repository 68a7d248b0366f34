/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_ask.c - the input, after a record's magic, is what a rank answered to its agent, or what the
 * agent sent. Checks that accepted records are within their limits and read the same again. */
#include <stdlib.h>
#include <string.h>

#include "wire/ask.h"

#define MAGIC_BYTES 8u

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size);

static void require(bool holds)
{
    if (!holds)
        abort();
}

static void require_text(const char *text, size_t bytes)
{
    require(memchr(text, '\0', bytes) != NULL);
    for (; *text != '\0'; text++)
        require((unsigned char)*text >= ' ');
}

static void status(uint8_t *bytes, size_t n)
{
    uint8_t again[ASK_STATUS_MAX], head[ASK_STATUS_MAX];
    struct ask_status found, same, empty = {.size = 1};
    ask_status_put(&empty, head);
    memcpy(bytes, head, MAGIC_BYTES);
    if (!ask_status_get(bytes, n, &found))
        return;
    require(found.rank >= 0 && found.rank < found.size);
    require_text(found.state, sizeof found.state);
    require_text(found.cause, sizeof found.cause);
    require_text(found.op, sizeof found.op);
    require_text(found.missing, sizeof found.missing);
    size_t used = ask_status_put(&found, again);
    require(used > 0 && ask_status_get(again, used, &same));
    require(same.steps == found.steps && strcmp(same.op, found.op) == 0);
}

static void end(uint8_t *bytes, size_t n)
{
    uint8_t again[ASK_END_MAX], head[ASK_END_MAX];
    struct ask_end found, same, empty = {0};
    ask_end_put(&empty, head);
    memcpy(bytes, head, MAGIC_BYTES);
    if (!ask_end_get(bytes, n, &found))
        return;
    require(found.rank >= 0);
    require_text(found.text, sizeof found.text);
    size_t used = ask_end_put(&found, again);
    require(used > 0 && ask_end_get(again, used, &same));
    require(same.rank == found.rank && strcmp(same.text, found.text) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size)
{
    uint8_t bytes[MAGIC_BYTES + 4096] = {0};
    size_t n = size < 4096 ? size : 4096;
    if (n > 0)
        memcpy(bytes + MAGIC_BYTES, input, n);
    status(bytes, MAGIC_BYTES + n);
    end(bytes, MAGIC_BYTES + n);
    return 0;
}
