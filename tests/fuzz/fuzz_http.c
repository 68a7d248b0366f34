/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_http.c - requests to the dashboard. Checks that an answer does not depend on what follows
 * the request, and that path and token are texts within their limits. */
#include <stdlib.h>

#include "../../launcher/http.c"
#include "../../launcher/mem.c"

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size)
{
    struct http_request whole, part;
    int code = http_read((const char *)input, size, &whole);
    if (code == HTTP_MORE && size >= HTTP_REQUEST_MAX)
        abort();
    if (code == 200 && (whole.path[0] != '/' || strlen(whole.path) >= sizeof whole.path ||
                        strlen(whole.token) >= sizeof whole.token))
        abort();
    size_t head = head_end((const char *)input, size);
    if (head > 0 && http_read((const char *)input, head, &part) != code)
        abort();
    return 0;
}
