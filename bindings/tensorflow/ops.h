/* SPDX-License-Identifier: Apache-2.0 */
/* ops.h - the ops that we register with TensorFlow, one row each.
 *
 * Names, arguments and attributes are those that graphs and scripts rely on. definitions.c tells
 * TensorFlow what they look like, kernels.c what they do. */
#ifndef HVD_BINDINGS_TENSORFLOW_OPS_H
#define HVD_BINDINGS_TENSORFLOW_OPS_H

#include "horovod/hvd.h"
#include "tf_api.h"

/* What an op's kernel reads from its attributes. */
enum {
    OP_REDUCES = 1u << 0,     /* reduce_op, prescale_factor, postscale_factor */
    OP_HAS_ROOT = 1u << 1,    /* root_rank */
    OP_HAS_SCOPE = 1u << 2,   /* ignore_name_scope */
    OP_HAS_SET = 1u << 3,     /* process_set_id */
    OP_IS_GROUP = 1u << 4,    /* num_tensors */
    OP_KEEPS_SHAPE = 1u << 5, /* output i is like input i, else its first dimension is unknown */
    OP_IS_PLAIN = 1u << 6,    /* neither input nor collective shape: scalars */
    OP_HAS_WIRE = 1u << 7     /* wire */
};

struct op_row {
    const char *name;
    hvd_kind_t kind;
    uint32_t traits;
    tf_shape_fn shape;
    const char *specs[12]; /* "i:" input, "o:" output, "a:" attribute, NULL ends */
};

/* Each returns NULL, or why it failed (static or TensorFlow's text in `ret_text`). */
const char *definitions_register(bool is_stateful, char *ret_text, size_t text_bytes);
const char *kernels_register(char *ret_text, size_t text_bytes);

/* The name of the eager call that this thread makes next; NULL or empty: the op's own. */
void kernels_name_eager(const char *name);

/* The collectives, ended by a row without name. */
const struct op_row *definitions_rows(void);

#endif
