/* SPDX-License-Identifier: Apache-2.0 */
/* definitions.c - op definitions and shape functions.
 *
 * Collectives are registered stateful, so that no optimisation merges, folds or caches them; the
 * Python side exempts them from automatic control edges, so that they are not run one after the
 * other either. Where that exemption is not to be had they are registered stateless.
 *
 * Thread: the constructor registers; shape functions run in any thread. */
#include <stdio.h>
#include <string.h>

#include "ops.h"

#define T_REDUCE  "a:T: {uint8, int8, int32, int64, half, float, double, bfloat16}"
#define T_SCATTER "a:T: {int32, int64, half, float, double, bfloat16}"
#define T_ANY     "a:T: {uint8, int8, uint16, int16, int32, int64, half, float, double, bool, bfloat16}"
#define A_REDUCE  "a:reduce_op: int"
#define A_PRE     "a:prescale_factor: float"
#define A_POST    "a:postscale_factor: float"
#define A_WIRE    "a:wire: int = 0" /* hvd_wire_t; 0 in graphs saved before there was one */
#define A_SCOPE   "a:ignore_name_scope: bool = false"
#define A_SET     "a:process_set_id: int = 0"
#define A_COUNT   "a:num_tensors: int"
#define A_ROOT    "a:root_rank: int"

/* ---- shapes ---- */

static void shape_same(TF_ShapeInferenceContext *context, TF_Status *status)
{
    TF_ShapeHandle *handle = tf.NewShapeHandle();
    int count = (int)tf.ShapeInferenceContextNumInputs(context);
    for (int i = 0; i < count && tf.GetCode(status) == TF_OK; i++) {
        tf.ShapeInferenceContextGetInput(context, i, handle, status);
        if (tf.GetCode(status) == TF_OK)
            tf.ShapeInferenceContextSetOutput(context, i, handle, status);
    }
    tf.DeleteShapeHandle(handle);
}

/* Output `index` is input `index` with an unknown first dimension. */
static void shape_rows_of(TF_ShapeInferenceContext *context, int index, const char *scalar_error,
                          TF_Status *status)
{
    TF_ShapeHandle *handle = tf.NewShapeHandle();
    TF_ShapeHandle *rest = tf.NewShapeHandle();
    TF_ShapeHandle *rows = NULL;
    tf.ShapeInferenceContextGetInput(context, index, handle, status);
    if (tf.GetCode(status) != TF_OK)
        goto delete_handles;
    if (!tf.ShapeInferenceContextRankKnown(context, handle))
        goto set_output;
    if (tf.ShapeInferenceContextRank(context, handle) == 0) {
        tf.SetStatus(status, TF_INVALID_ARGUMENT, scalar_error);
        goto delete_handles;
    }
    rows = tf.ShapeInferenceContextVectorFromSize(context, (size_t)-1);
    tf.ShapeInferenceContextSubshape(context, handle, 1, INT64_MAX, rest, status);
    if (tf.GetCode(status) == TF_OK)
        tf.ShapeInferenceContextConcatenateShapes(context, rows, rest, handle, status);
set_output:
    if (tf.GetCode(status) == TF_OK)
        tf.ShapeInferenceContextSetOutput(context, index, handle, status);
delete_handles:
    if (rows != NULL)
        tf.DeleteShapeHandle(rows);
    tf.DeleteShapeHandle(rest);
    tf.DeleteShapeHandle(handle);
}

static const char no_dimension[] = "Out of range dim_index 0 for shape with 0 dimensions";

static void shape_gather(TF_ShapeInferenceContext *context, TF_Status *status)
{
    int count = (int)tf.ShapeInferenceContextNumInputs(context);
    for (int i = 0; i < count && tf.GetCode(status) == TF_OK; i++)
        shape_rows_of(context, i, no_dimension, status);
}

static void shape_scatter(TF_ShapeInferenceContext *context, TF_Status *status)
{
    int count = (int)tf.ShapeInferenceContextNumInputs(context);
    for (int i = 0; i < count && tf.GetCode(status) == TF_OK; i++)
        shape_rows_of(context, i, "HorovodReducescatter does not support scalar inputs.", status);
}

static void shape_alltoall(TF_ShapeInferenceContext *context, TF_Status *status)
{
    shape_rows_of(context, 0, no_dimension, status);
    if (tf.GetCode(status) != TF_OK)
        return;
    TF_ShapeHandle *received = tf.ShapeInferenceContextVectorFromSize(context, (size_t)-1);
    tf.ShapeInferenceContextSetOutput(context, 1, received, status);
    tf.DeleteShapeHandle(received);
}

static void shape_scalar(TF_ShapeInferenceContext *context, TF_Status *status)
{
    TF_ShapeHandle *scalar = tf.ShapeInferenceContextScalar(context);
    tf.ShapeInferenceContextSetOutput(context, 0, scalar, status);
    tf.DeleteShapeHandle(scalar);
}

/* ---- the ops ---- */

static const struct op_row collectives[] = {
    {"HorovodAllreduce",
     HVD_ALLREDUCE,
     OP_REDUCES | OP_HAS_SCOPE | OP_HAS_SET | OP_HAS_WIRE | OP_KEEPS_SHAPE,
     shape_same,
     {T_REDUCE, A_REDUCE, A_PRE, A_POST, A_SCOPE, A_SET, A_WIRE, "i:tensor: T", "o:sum: T"}},
    {"HorovodGroupedAllreduce",
     HVD_ALLREDUCE,
     OP_REDUCES | OP_HAS_SCOPE | OP_HAS_SET | OP_HAS_WIRE | OP_KEEPS_SHAPE | OP_IS_GROUP,
     shape_same,
     {T_REDUCE, A_REDUCE, A_PRE, A_POST, A_SCOPE, A_COUNT, A_SET, A_WIRE,
      "i:tensors: num_tensors * T", "o:sum: num_tensors * T"}},
    {"HorovodAllgather",
     HVD_ALLGATHER,
     OP_HAS_SCOPE | OP_HAS_SET,
     shape_gather,
     {T_ANY, A_SCOPE, A_SET, "i:tensor: T", "o:output: T"}},
    {"HorovodGroupedAllgather",
     HVD_ALLGATHER,
     OP_HAS_SCOPE | OP_HAS_SET | OP_IS_GROUP,
     shape_gather,
     {T_ANY, A_SCOPE, A_COUNT, A_SET, "i:tensors: num_tensors * T", "o:outputs: num_tensors * T"}},
    {"HorovodBroadcast",
     HVD_BROADCAST,
     OP_HAS_ROOT | OP_HAS_SCOPE | OP_HAS_SET | OP_KEEPS_SHAPE,
     shape_same,
     {T_ANY, A_ROOT, A_SCOPE, A_SET, "i:tensor: T", "o:output: T"}},
    {"HorovodReducescatter",
     HVD_REDUCESCATTER,
     OP_REDUCES | OP_HAS_SCOPE | OP_HAS_SET,
     shape_scatter,
     {T_SCATTER, A_REDUCE, A_SCOPE, A_PRE, A_POST, A_SET, "i:tensor: T", "o:output: T"}},
    {"HorovodGroupedReducescatter",
     HVD_REDUCESCATTER,
     OP_REDUCES | OP_HAS_SCOPE | OP_HAS_SET | OP_IS_GROUP,
     shape_scatter,
     {T_SCATTER, A_REDUCE, A_SCOPE, A_COUNT, A_SET, A_PRE, A_POST, "i:tensors: num_tensors * T",
      "o:outputs: num_tensors * T"}},
    {"HorovodAlltoall",
     HVD_ALLTOALL,
     OP_HAS_SCOPE | OP_HAS_SET,
     shape_alltoall,
     {T_ANY, A_SCOPE, A_SET, "i:tensor: T", "i:splits: int32", "o:output: T",
      "o:received_splits: int32"}},
    {"HorovodJoin", HVD_JOIN, OP_IS_PLAIN, shape_scalar, {"o:output: int32"}},
    {"HorovodBarrier",
     HVD_BARRIER,
     OP_IS_PLAIN | OP_HAS_SET,
     shape_scalar,
     {A_SET, "o:output: int32"}},
    {NULL, HVD_KIND_COUNT, 0, NULL, {NULL}}};

static const struct op_row questions[] = {
    {"HorovodSize", HVD_KIND_COUNT, 0, shape_scalar, {A_SET, "o:size: int32"}},
    {"HorovodProcessSetIncluded", HVD_KIND_COUNT, 0, shape_scalar, {A_SET, "o:included: int32"}},
    {"HorovodLocalSize", HVD_KIND_COUNT, 0, shape_scalar, {"o:local_size: int32"}},
    {"HorovodRank", HVD_KIND_COUNT, 0, shape_scalar, {"o:rank: int32"}},
    {"HorovodLocalRank", HVD_KIND_COUNT, 0, shape_scalar, {"o:local_rank: int32"}},
    {NULL, HVD_KIND_COUNT, 0, NULL, {NULL}}};

const struct op_row *definitions_rows(void)
{
    return collectives;
}

static const char *define(const struct op_row *row, bool is_stateful, char *ret_text,
                          size_t text_bytes)
{
    TF_OpDefinitionBuilder *builder = tf.NewOpDefinitionBuilder(row->name);
    for (int i = 0; row->specs[i] != NULL; i++) {
        const char *spec = row->specs[i] + 2;
        if (row->specs[i][0] == 'a')
            tf.OpDefinitionBuilderAddAttr(builder, spec);
        else if (row->specs[i][0] == 'i')
            tf.OpDefinitionBuilderAddInput(builder, spec);
        else
            tf.OpDefinitionBuilderAddOutput(builder, spec);
    }
    if (is_stateful) /* the function ignores its argument: calling it at all sets the flag */
        tf.OpDefinitionBuilderSetIsStateful(builder, true);
    tf.OpDefinitionBuilderSetShapeInferenceFunction(builder, row->shape);
    TF_Status *status = tf.NewStatus();
    tf.RegisterOpDefinition(builder, status);
    const char *error = NULL;
    if (tf.GetCode(status) != TF_OK) {
        snprintf(ret_text, text_bytes, "%s: %s", row->name, tf.Message(status));
        error = ret_text;
    }
    tf.DeleteStatus(status);
    return error;
}

const char *definitions_register(bool is_stateful, char *ret_text, size_t text_bytes)
{
    const char *error = NULL;
    for (const struct op_row *row = collectives; row->name != NULL && error == NULL; row++) {
        bool must_run = row->kind == HVD_JOIN || row->kind == HVD_BARRIER;
        error = define(row, is_stateful || must_run, ret_text, text_bytes);
    }
    for (const struct op_row *row = questions; row->name != NULL && error == NULL; row++)
        error = define(row, true, ret_text, text_bytes);
    return error;
}
