/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_hosts.c - host lists, host files and node lists of batch systems; the first byte selects
 * one. Checks that accepted lists have valid names and slots, that they read back the same from a
 * host list, and that ranks are placed without a gap. */
#include <stdlib.h>
#include <string.h>

#include "../../launcher/hosts.c"
#include "../../launcher/mem.c"

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size);

static void require(bool holds)
{
    if (!holds)
        abort();
}

static void check(struct mem *m, const struct hosts *hosts)
{
    struct slot *slots = NULL;
    int64_t sum = hosts_slot_sum(hosts);
    int32_t count = sum > 4096 ? 4096 : (int32_t)sum;
    for (int32_t i = 0; i < hosts->count; i++) {
        require(hosts->items[i].slots >= 0 && hosts->items[i].slots <= HOSTS_SLOTS_MAX);
        require(hosts->items[i].name[0] != '-' && hosts->items[i].name[0] != '\0');
        require(strpbrk(hosts->items[i].name, " \t\n'\"$`;&|<>()\\") == NULL);
    }
    if (count < 1)
        return;
    require(hosts_assign(m, hosts, count, &slots, NULL) == HVD_OK);
    for (int32_t i = 0; i < count; i++) {
        require(slots[i].rank == i && slots[i].local_rank < slots[i].local_size);
        require(slots[i].cross_rank < slots[i].cross_size);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size)
{
    struct mem m;
    struct hosts hosts = {0};
    struct error error;
    hvd_status_t status = HVD_ERR_INVALID;
    if (size < 1)
        return 0;
    mem_init(&m, os_host());
    error_clear(&error);
    char *text = mem_copy_n(&m, (const char *)input + 1, size - 1);
    switch (input[0] % 4) {
    case 0: status = hosts_parse_list(&m, text, &hosts, &error); break;
    case 1: status = hosts_parse_file(&m, "f", text, size - 1, &hosts, &error); break;
    case 2: {
        char *tasks = strchr(text, '\n');
        if (tasks != NULL)
            *tasks++ = '\0';
        status = hosts_parse_slurm(&m, text, tasks, &hosts, &error);
        break;
    }
    case 3: status = hosts_parse_lsf(&m, text, &hosts, &error); break;
    }
    require(status == HVD_OK || error.text[0] != '\0');
    if (status == HVD_OK)
        check(&m, &hosts);
    mem_destroy(&m);
    return 0;
}
