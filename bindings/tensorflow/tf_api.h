/* SPDX-License-Identifier: Apache-2.0 */
/* tf_api.h - the part of TensorFlow's C interface that we use, as a table of functions found at
 * load time. TensorFlow's headers are neither needed nor included, so one binary serves every
 * version that still exports these names.
 *
 * Thread: the table is filled once, by the library's constructor, and only read afterwards.
 * Owner: static memory of tf_api.c; the callbacks that TensorFlow calls carry no pointer of ours,
 * so the table can't hang on an object. Start reading at tf_api_load(). */
#ifndef HVD_BINDINGS_TENSORFLOW_TF_API_H
#define HVD_BINDINGS_TENSORFLOW_TF_API_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct TF_Status TF_Status;
typedef struct TF_Tensor TF_Tensor;
typedef struct TF_OpDefinitionBuilder TF_OpDefinitionBuilder;
typedef struct TF_ShapeInferenceContext TF_ShapeInferenceContext;
typedef struct TF_ShapeHandle TF_ShapeHandle;
typedef struct TF_KernelBuilder TF_KernelBuilder;
typedef struct TF_OpKernelConstruction TF_OpKernelConstruction;
typedef struct TF_OpKernelContext TF_OpKernelContext;
typedef struct TF_AsyncOpKernelDoneCallback TF_AsyncOpKernelDoneCallback;

typedef int TF_DataType;
typedef int TF_Code;
typedef struct TF_StringView {
    const char *data;
    size_t len;
} TF_StringView;

enum {
    TF_OK = 0,
    TF_UNKNOWN = 2,
    TF_INVALID_ARGUMENT = 3,
    TF_RESOURCE_EXHAUSTED = 8,
    TF_FAILED_PRECONDITION = 9,
    TF_ABORTED = 10
};

enum {
    TF_FLOAT = 1,
    TF_DOUBLE = 2,
    TF_INT32 = 3,
    TF_UINT8 = 4,
    TF_INT16 = 5,
    TF_INT8 = 6,
    TF_INT64 = 9,
    TF_BOOL = 10,
    TF_BFLOAT16 = 14,
    TF_UINT16 = 17,
    TF_HALF = 19
};

typedef void (*tf_shape_fn)(TF_ShapeInferenceContext *, TF_Status *);
typedef void *(*tf_create_fn)(TF_OpKernelConstruction *);
typedef void (*tf_compute_fn)(void *, TF_OpKernelContext *);
typedef void (*tf_compute_async_fn)(void *, TF_OpKernelContext *, TF_AsyncOpKernelDoneCallback *);
typedef void (*tf_delete_fn)(void *);

/* X(result, name without TF_, arguments) */
#define TF_API_REQUIRED(X)                                                                         \
    X(TF_Status *, NewStatus, (void))                                                              \
    X(void, DeleteStatus, (TF_Status *))                                                           \
    X(void, SetStatus, (TF_Status *, TF_Code, const char *))                                       \
    X(TF_Code, GetCode, (const TF_Status *))                                                       \
    X(const char *, Message, (const TF_Status *))                                                  \
    X(TF_OpDefinitionBuilder *, NewOpDefinitionBuilder, (const char *))                            \
    X(void, RegisterOpDefinition, (TF_OpDefinitionBuilder *, TF_Status *))                         \
    X(void, OpDefinitionBuilderAddAttr, (TF_OpDefinitionBuilder *, const char *))                  \
    X(void, OpDefinitionBuilderAddInput, (TF_OpDefinitionBuilder *, const char *))                 \
    X(void, OpDefinitionBuilderAddOutput, (TF_OpDefinitionBuilder *, const char *))                \
    X(void, OpDefinitionBuilderSetIsStateful, (TF_OpDefinitionBuilder *, bool))                    \
    X(void, OpDefinitionBuilderSetShapeInferenceFunction, (TF_OpDefinitionBuilder *, tf_shape_fn)) \
    X(int64_t, ShapeInferenceContextNumInputs, (TF_ShapeInferenceContext *))                       \
    X(TF_ShapeHandle *, NewShapeHandle, (void))                                                    \
    X(void, DeleteShapeHandle, (TF_ShapeHandle *))                                                 \
    X(void, ShapeInferenceContextGetInput,                                                         \
      (TF_ShapeInferenceContext *, int, TF_ShapeHandle *, TF_Status *))                            \
    X(void, ShapeInferenceContextSetOutput,                                                        \
      (TF_ShapeInferenceContext *, int, TF_ShapeHandle *, TF_Status *))                            \
    X(int, ShapeInferenceContextRankKnown, (TF_ShapeInferenceContext *, TF_ShapeHandle *))         \
    X(int64_t, ShapeInferenceContextRank, (TF_ShapeInferenceContext *, TF_ShapeHandle *))          \
    X(TF_ShapeHandle *, ShapeInferenceContextVectorFromSize, (TF_ShapeInferenceContext *, size_t)) \
    X(void, ShapeInferenceContextSubshape,                                                         \
      (TF_ShapeInferenceContext *, TF_ShapeHandle *, int64_t, int64_t, TF_ShapeHandle *,           \
       TF_Status *))                                                                               \
    X(void, ShapeInferenceContextConcatenateShapes,                                                \
      (TF_ShapeInferenceContext *, TF_ShapeHandle *, TF_ShapeHandle *, TF_ShapeHandle *,           \
       TF_Status *))                                                                               \
    X(TF_ShapeHandle *, ShapeInferenceContextScalar, (TF_ShapeInferenceContext *))                 \
    X(TF_KernelBuilder *, NewAsyncKernelBuilder,                                                   \
      (const char *, const char *, tf_create_fn, tf_compute_async_fn, tf_delete_fn))               \
    X(TF_KernelBuilder *, NewKernelBuilder,                                                        \
      (const char *, const char *, tf_create_fn, tf_compute_fn, tf_delete_fn))                     \
    X(void, RegisterKernelBuilder, (const char *, TF_KernelBuilder *, TF_Status *))                \
    X(void, RunAsyncOpKernelDoneCallback, (TF_AsyncOpKernelDoneCallback *))                        \
    X(void, OpKernelConstruction_GetAttrInt32,                                                     \
      (TF_OpKernelConstruction *, const char *, int32_t *, TF_Status *))                           \
    X(void, OpKernelConstruction_GetAttrFloat,                                                     \
      (TF_OpKernelConstruction *, const char *, float *, TF_Status *))                             \
    X(void, OpKernelConstruction_GetAttrBool,                                                      \
      (TF_OpKernelConstruction *, const char *, unsigned char *, TF_Status *))                     \
    X(TF_StringView, OpKernelConstruction_GetName, (TF_OpKernelConstruction *))                    \
    X(void, OpKernelConstruction_Failure, (TF_OpKernelConstruction *, TF_Status *))                \
    X(void, OpKernelContext_Failure, (TF_OpKernelContext *, TF_Status *))                          \
    X(int, NumInputs, (TF_OpKernelContext *))                                                      \
    X(void, GetInput, (TF_OpKernelContext *, int, TF_Tensor **, TF_Status *))                      \
    X(void, SetOutput, (TF_OpKernelContext *, int, const TF_Tensor *, TF_Status *))                \
    X(TF_Tensor *, AllocateOutput,                                                                 \
      (TF_OpKernelContext *, int, TF_DataType, const int64_t *, int, size_t, TF_Status *))         \
    X(TF_Tensor *, ForwardInputOrAllocateOutput,                                                   \
      (TF_OpKernelContext *, const int *, int, int, const int64_t *, int, int *, TF_Status *))     \
    X(TF_DataType, TensorType, (const TF_Tensor *))                                                \
    X(int, NumDims, (const TF_Tensor *))                                                           \
    X(int64_t, Dim, (const TF_Tensor *, int))                                                      \
    X(size_t, TensorByteSize, (const TF_Tensor *))                                                 \
    X(void *, TensorData, (const TF_Tensor *))                                                     \
    X(void, DeleteTensor, (TF_Tensor *))

/* NULL where a TensorFlow lacks them. */
#define TF_API_OPTIONAL(X)                                                                         \
    X(uint64_t, GetFrameId, (TF_OpKernelContext *))                                                \
    X(int64_t, GetIterId, (TF_OpKernelContext *))

struct tf_api {
#define X(result, name, arguments) result(*name) arguments;
    TF_API_REQUIRED(X)
    TF_API_OPTIONAL(X)
#undef X
};

/* Valid after tf_api_load() gave NULL. */
extern struct tf_api tf;

/* Fills the table; the name of what is missing, or NULL. */
const char *tf_api_load(void);

#endif
