/* SPDX-License-Identifier: Apache-2.0 */
/* pool.h - allocates ops and tickets.
 *
 * Thread: any, under the submit lock. */
#ifndef HVD_ENGINE_POOL_H
#define HVD_ENGINE_POOL_H

#include <stdint.h>

struct engine;
struct op;
struct ticket;

struct op *pool_op_take(struct engine *engine); /* NULL: no memory */
void pool_op_give(struct engine *engine, struct op *op);
struct ticket *pool_ticket_take(struct engine *engine, int32_t count); /* with a handle; or NULL */
void pool_ticket_give(struct engine *engine, struct ticket *ticket);
void pool_destroy(struct engine *engine);

#endif
