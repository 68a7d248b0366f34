/* SPDX-License-Identifier: Apache-2.0 */
/* one_machine.h - the place of a rank in a job that a test or a benchmark starts on this machine.
 */
#ifndef HVD_TESTS_ONE_MACHINE_H
#define HVD_TESTS_ONE_MACHINE_H

#include "horovod/hvd.h"

static inline hvd_config_t one_machine_config(int rank, int size, const char *rendezvous,
                                              const uint8_t *key, size_t key_bytes)
{
    return (hvd_config_t){.struct_size = sizeof(hvd_config_t),
                          .rank = rank,
                          .size = size,
                          .local_rank = rank,
                          .local_size = size,
                          .cross_rank = 0,
                          .cross_size = 1,
                          .rendezvous = rendezvous,
                          .key = key,
                          .key_bytes = key_bytes};
}

#endif
