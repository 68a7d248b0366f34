/* SPDX-License-Identifier: Apache-2.0 */
/* done.h - keep the "done" callback of an asynchronous kernel until the op has ended.
 *
 * TensorFlow hands a kernel the address of a callback. In every release up to 2.21 that is a local
 * object of the caller, dead as soon as the kernel returns, so it must be cloned; from some later
 * release on it may be an object on the heap that running it frees, and must not be cloned. Which
 * one holds is found out once, at load, by running a callback of our own make.
 *
 * The object is libstdc++'s std::function<void()>: 16 bytes of state, a manager, an invoker. */
#ifndef HVD_BINDINGS_TENSORFLOW_DONE_H
#define HVD_BINDINGS_TENSORFLOW_DONE_H

#include "tf_api.h"

struct done_function {
    void *state[2];
    bool (*manage)(struct done_function *destination, const struct done_function *source,
                   int operation);
    void (*invoke)(const struct done_function *self);
};

struct done {
    struct done_function clone;
    TF_AsyncOpKernelDoneCallback *original; /* NULL: the clone is the one to run */
};

/* Once, at load. The reason why asynchronous kernels can't work, or NULL. */
const char *done_probe(void);
void done_take(struct done *done, TF_AsyncOpKernelDoneCallback *callback);
/* The kernel's context is gone when this returns. */
void done_run(struct done *done);

#endif
