/* SPDX-License-Identifier: Apache-2.0 */
/* xla.h - collectives inside functions that XLA compiles, as a custom call on the host.
 *
 * XLA has no C interface for that in TensorFlow's wheels, so the call is registered through the
 * mangled names of two C++ functions; where they are missing, compiled collectives are not to be
 * had and everything else works. */
#ifndef HVD_BINDINGS_TENSORFLOW_XLA_H
#define HVD_BINDINGS_TENSORFLOW_XLA_H

#include <stdbool.h>

/* Name under which Python calls it; changes with the format of its configuration. */
#define XLA_TARGET_NAME "horovod_collective_1"

bool xla_register(void);

#endif
