/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_nodelist.c - Slurm's lists of nodes and of tasks per node; the first two bytes choose a
 * task. An accepted list must give a valid host name, and a placement within its bounds. */
#include <stdlib.h>
#include <string.h>

#include "../../src/api/nodelist.c"

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size);

static void require(bool holds)
{
    if (!holds)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size)
{
    char text[4096], host[NODELIST_HOST_MAX];
    struct nodelist_place p;
    if (size < 2 || size - 2 >= sizeof text)
        return 0;
    memcpy(text, input + 2, size - 2);
    text[size - 2] = '\0';
    if (nodelist_first(text, host))
        require(host[0] != '-' && host[0] != '\0' && strpbrk(host, " \t\n'\"$`;&|<>()[],") == NULL);
    else
        require(host[0] == '\0');
    if (nodelist_place(text, input[0], input[1], &p)) {
        require(p.local_size > input[1] && p.node_count > input[0]);
        require(p.cross_rank >= 0 && p.cross_rank < p.cross_size && p.cross_size <= p.node_count);
        require(p.task_count >= p.local_size && p.node_count <= NODELIST_NODES_MAX);
    }
    return 0;
}
