/* SPDX-License-Identifier: Apache-2.0 */
/* library.c - the entry of libhorovod_tensorflow.so.
 *
 * tf.load_op_library() opens this file and collects the ops that its constructor registers; opened
 * in any other way first, the ops are there but have no Python functions. What went wrong, if
 * anything, is told by hvd_tensorflow_error(); the Python side then takes its slower path.
 *
 * Thread: the one that loads. Invariant: with an error, nothing of the library is ever called. */
#include <stdio.h>
#include <stdlib.h>

#include "done.h"
#include "ops.h"
#include "xla.h"

/* Set by our own Python module for the time of the load only. */
static const char stateless_name[] = "_HOROVOD_TENSORFLOW_STATELESS";

static char error_text[512];
static bool has_xla;

HVD_API const char *hvd_tensorflow_error(void); /* "" if the ops work */
HVD_API const char *hvd_tensorflow_xla(void);   /* target of custom calls; "" if there is none */
HVD_API void hvd_tensorflow_name(const char *name); /* see kernels_name_eager() */

const char *hvd_tensorflow_error(void)
{
    return error_text;
}

const char *hvd_tensorflow_xla(void)
{
    return has_xla ? XLA_TARGET_NAME : "";
}

void hvd_tensorflow_name(const char *name)
{
    kernels_name_eager(name);
}

static void tell(const char *what, const char *why)
{
    snprintf(error_text, sizeof error_text, "%s%s", what, why);
}

__attribute__((constructor)) static void library_load(void)
{
    char text[400];
    const char *missing = tf_api_load();
    if (missing != NULL) {
        tell("this TensorFlow lacks ", missing);
        return;
    }
    const char *error = done_probe();
    if (error == NULL)
        error = definitions_register(getenv(stateless_name) == NULL, text, sizeof text);
    if (error == NULL)
        error = kernels_register(text, sizeof text);
    if (error != NULL)
        tell("", error);
    else
        has_xla = xla_register();
}
