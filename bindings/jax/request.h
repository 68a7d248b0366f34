/* SPDX-License-Identifier: Apache-2.0 */
/* request.h - what the attributes of one call in an XLA program say.
 *
 * python/horovod/jax/lowering.py writes them. They are compiled into the program by the same
 * process, but read with care all the same. */
#ifndef HVD_BINDINGS_JAX_REQUEST_H
#define HVD_BINDINGS_JAX_REQUEST_H

#include "horovod/hvd.h"
#include "xla_ffi.h"

struct request {
    hvd_kind_t kind;
    hvd_reduce_t reduce;
    double prescale, postscale;
    int32_t root, set;
    hvd_wire_t wire; /* of what is float32 */
    bool is_chained; /* the last argument and result only order the calls; the handler blocks */
    bool has_spare;  /* the last result is not used: jaxlib 0.6 can't end a program with one call */
    struct ffi_span name;
    const int64_t *splits; /* alltoall; NULL: equal parts */
    size_t splits_count;
};

/* NULL, or what is wrong with them. */
const char *request_read(const struct ffi_attributes *attributes, struct request *ret_request);

/* How the core calls an XLA type: `lanes` elements of `dtype` for each of its elements. Types that
 * the core can't compute with travel as bytes. False: it is not moved at all. */
bool request_dtype(int32_t type, hvd_dtype_t *ret_dtype, int32_t *ret_lanes);

#endif
