/* SPDX-License-Identifier: Apache-2.0 */
/* xla.c - see xla.h. Thread: xla_register() by the constructor; xla_collective() by a thread of
 * XLA, which it blocks until the collective has ended: that is how XLA calls work on the host.
 *
 * The configuration comes as text from xla_ops.py, one group per call:
 *   "kind reduce prescale postscale root set wire count name\n" then per tensor "dtype ndim d0
 * ...\n" with the scales as the bits of a float. It is compiled into the function by the same
 * process, but read with care all the same. Start reading at xla_collective(). */
#include "xla.h"

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "horovod/hvd.h"

#define TENSORS_MAX 65536

/* ---- C++ objects ---- */

/* std::string of libstdc++. */
struct cpp_string {
    char *text;
    size_t length;
    char local[16];
};

/* std::optional<std::string>, which is all that a custom call's status holds. */
struct call_status {
    struct cpp_string message;
    bool is_set;
};

static void *(*operator_new)(size_t);

static void string_set(struct cpp_string *string, const char *text)
{
    string->length = strlen(text);
    string->text = string->local;
    if (string->length >= sizeof string->local) {
        /* The destructor frees it, with a capacity that tells how much it is. */
        size_t capacity = string->length;
        string->text = operator_new(capacity + 1);
        memcpy(string->local, &capacity, sizeof capacity);
    }
    memcpy(string->text, text, string->length + 1);
}

static void status_fail(struct call_status *status, const char *text)
{
    if (status == NULL || status->is_set)
        return;
    string_set(&status->message, text);
    status->is_set = true;
}

/* ---- the configuration ---- */

struct reader {
    const char *at, *end;
    bool is_bad;
};

static int64_t read_int(struct reader *reader)
{
    bool is_negative = reader->at < reader->end && *reader->at == '-';
    if (is_negative)
        reader->at++;
    int64_t value = 0;
    int digits = 0;
    for (; reader->at < reader->end && *reader->at >= '0' && *reader->at <= '9'; reader->at++) {
        if (++digits > 18)
            reader->is_bad = true;
        else
            value = value * 10 + (*reader->at - '0');
    }
    if (digits == 0 || reader->at == reader->end || (*reader->at != ' ' && *reader->at != '\n'))
        reader->is_bad = true;
    else
        reader->at++;
    return is_negative ? -value : value;
}

static double read_scale(struct reader *reader)
{
    uint32_t bits = (uint32_t)read_int(reader);
    float value;
    memcpy(&value, &bits, sizeof value);
    return (double)value;
}

static void read_name(struct reader *reader, char ret_name[HVD_NAME_MAX])
{
    size_t length = 0;
    while (reader->at + length < reader->end && reader->at[length] != '\n')
        length++;
    if (reader->at + length == reader->end || length + 16 >= HVD_NAME_MAX) {
        reader->is_bad = true;
        return;
    }
    memcpy(ret_name, reader->at, length);
    ret_name[length] = '\0';
    reader->at += length + 1;
}

struct group {
    size_t count;
    hvd_op_t *ops;
    int64_t (*shapes)[HVD_DIMS_MAX];
    char (*names)[HVD_NAME_MAX];
};

static void group_free(struct group *group)
{
    free(group->names);
    free(group->shapes);
    free(group->ops);
}

static bool group_alloc(struct group *group, int64_t count)
{
    if (count < 1 || count > TENSORS_MAX)
        return false;
    group->count = (size_t)count;
    group->ops = calloc(group->count, sizeof *group->ops);
    group->shapes = calloc(group->count, sizeof *group->shapes);
    group->names = calloc(group->count, sizeof *group->names);
    return group->ops != NULL && group->shapes != NULL && group->names != NULL;
}

static void read_tensor(struct reader *reader, int64_t shape[HVD_DIMS_MAX], hvd_tensor_t *tensor)
{
    tensor->dtype = (hvd_dtype_t)read_int(reader);
    int64_t ndim = read_int(reader);
    if (ndim < 0 || ndim > HVD_DIMS_MAX) {
        reader->is_bad = true;
        return;
    }
    for (int64_t i = 0; i < ndim; i++)
        shape[i] = read_int(reader);
    tensor->ndim = (int32_t)ndim;
    tensor->shape = shape;
    tensor->device = HVD_DEVICE_CPU;
}

static bool group_read(struct group *group, struct reader *reader)
{
    hvd_op_t common;
    char name[HVD_NAME_MAX];
    hvd_op_init(&common, (hvd_kind_t)read_int(reader));
    common.flags = HVD_OP_WAITED | HVD_OP_SCALE_EXACT;
    common.reduce = (hvd_reduce_t)read_int(reader);
    common.prescale = read_scale(reader);
    common.postscale = read_scale(reader);
    common.root = (int32_t)read_int(reader);
    common.process_set = (int32_t)read_int(reader);
    common.wire = (hvd_wire_t)read_int(reader);
    int64_t count = read_int(reader);
    read_name(reader, name);
    if (reader->is_bad || (common.kind != HVD_ALLREDUCE && common.kind != HVD_BROADCAST) ||
        !group_alloc(group, count))
        return false;
    for (size_t i = 0; i < group->count && !reader->is_bad; i++) {
        hvd_op_t *op = &group->ops[i];
        *op = common;
        int length =
            snprintf(group->names[i], HVD_NAME_MAX, "%.1000s_%zuof%zu", name, i + 1, group->count);
        op->name = length > 0 ? group->names[i] : NULL;
        read_tensor(reader, group->shapes[i], &op->input);
        op->output = op->input;
        if (op->input.dtype != HVD_FLOAT32)
            op->wire = HVD_WIRE_SAME;
    }
    return !reader->is_bad;
}

/* ---- the call ---- */

/* What ends the job is marked: elastic training looks for it among TensorFlow's own errors. */
static void status_fail_with(struct call_status *status, hvd_status_t result, const char *text)
{
    char marked[HVD_ERROR_MAX + 16];
    bool is_marked = hvd_status_class(result) == HVD_CLASS_UNKNOWN;
    snprintf(marked, sizeof marked, "%s%s", is_marked ? "Horovod: " : "",
             text[0] != '\0' ? text : hvd_status_name(result));
    status_fail(status, marked);
}

static void group_run(struct group *group, struct call_status *status)
{
    hvd_handle_t handle = 0;
    hvd_status_t result = hvd_submit_group(group->ops, group->count, &handle);
    if (result != HVD_OK) {
        status_fail_with(status, result, hvd_last_error());
        return;
    }
    result = hvd_wait(handle, -1);
    if (result != HVD_OK)
        status_fail_with(status, result, hvd_error(handle));
    hvd_release(handle);
}

/* One result: `out` is its memory; several: an array of pointers. */
static void xla_collective(void *out, const void **in, const char *config, size_t config_bytes,
                           void *call_status)
{
    struct group group = {0};
    struct reader reader = {.at = config, .end = config + config_bytes};
    if (!group_read(&group, &reader)) {
        status_fail(call_status, "Horovod: the configuration of a compiled collective is wrong.");
        group_free(&group);
        return;
    }
    void *const *outs = out;
    for (size_t i = 0; i < group.count; i++) {
        memcpy(&group.ops[i].input.data, &in[i], sizeof in[i]);
        group.ops[i].output.data = group.count == 1 ? out : outs[i];
    }
    group_run(&group, call_status);
    group_free(&group);
}

/* ---- registration ---- */

static bool find(const char *library_name, const char *symbol_name, void *ret_function)
{
    void *library = dlopen(library_name, RTLD_NOLOAD | RTLD_NOW);
    if (library == NULL)
        return false;
    void *symbol = dlsym(library, symbol_name);
    memcpy(ret_function, &symbol, sizeof symbol);
    dlclose(library); /* it stays: TensorFlow holds it */
    return symbol != NULL;
}

bool xla_register(void)
{
    static const char library[] = "libtensorflow_cc.so.2";
    void *(*registry)(void);
    void (*add)(void *, const struct cpp_string *, void *, const struct cpp_string *);
    if (!find(library, "_ZN3xla24CustomCallTargetRegistry6GlobalEv", &registry) ||
        !find(library,
              "_ZN3xla24CustomCallTargetRegistry8RegisterERKNSt7__cxx1112basic_stringIcSt11char_"
              "traitsIcESaIcEEEPvS8_",
              &add) ||
        !find("libstdc++.so.6", "_Znwm", &operator_new))
        return false;
    struct cpp_string name, platform;
    string_set(&name, XLA_TARGET_NAME); /* longer than its own room: stays allocated */
    string_set(&platform, "Host");
    void (*target)(void *, const void **, const char *, size_t, void *) = xla_collective;
    void *address;
    memcpy(&address, &target, sizeof address);
    add(registry(), &name, address, &platform);
    return true;
}
