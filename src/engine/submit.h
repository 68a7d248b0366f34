/* SPDX-License-Identifier: Apache-2.0 */
/* submit.h - the first step of an op: it is checked, named and queued. The functions for callers
 * are in engine.h; these are for the engine's own files.
 *
 * Thread: as noted. */
#ifndef HVD_ENGINE_SUBMIT_H
#define HVD_ENGINE_SUBMIT_H

struct engine;
struct op;
struct procset;
struct tensor;

void submit_drain(struct engine *engine); /* token: passes queued ops to negotiate_op() */
/* On completion: frees the name, at once or by the PyTorch rule. */
void submit_name_done(struct engine *engine, struct op *op);
/* Submit lock: forgets a name that is no longer in use. */
void submit_tensor_drop(struct engine *engine, struct procset *set, struct tensor *tensor);

#endif
