/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_yaml.c - the config file parser, and the options it fills. Checks that entries keep their
 * order and that an error has a position. */
#include <stdlib.h>
#include <string.h>

#include "../../launcher/knobs.c"
#include "../../launcher/mem.c"
#include "../../launcher/yaml.c"

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size);

static void require(bool holds)
{
    if (!holds)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size)
{
    struct mem m;
    struct yaml yaml;
    struct error error;
    struct args args = {0};
    struct list env = {0};
    mem_init(&m, os_host());
    error_clear(&error);
    hvd_status_t status = yaml_read(&m, "f", (const char *)input, size, &yaml, &error);
    require(status == HVD_OK || strncmp(error.text, "f:", 2) == 0);
    for (size_t i = 0; status == HVD_OK && i < yaml.count; i++) {
        require(i == 0 || yaml.entries[i].line >= yaml.entries[i - 1].line);
        require(yaml.entries[i].section == NULL || !yaml.entries[i].is_section);
    }
    error_clear(&error);
    status = knobs_load_file(&m, "f", (const char *)input, size, &args, &error);
    if (status == HVD_OK && knobs_check(&args, &error) == HVD_OK)
        knobs_export(&m, &args, &env);
    mem_destroy(&m);
    return 0;
}
