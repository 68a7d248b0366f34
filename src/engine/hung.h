/* SPDX-License-Identifier: Apache-2.0 */
/* hung.h - detects peers that send nothing at all.
 *
 * Thread: token holder. */
#ifndef HVD_ENGINE_HUNG_H
#define HVD_ENGINE_HUNG_H

#include <stdint.h>

struct engine;

void hung_tick(struct engine *engine, int64_t now_ns); /* about twice a second */

/* How long this rank has checked a peer and received nothing, as of the last check; also 0 if
 * unknown. */
int64_t hung_silence_ns(const struct engine *engine, int32_t rank);

#endif
