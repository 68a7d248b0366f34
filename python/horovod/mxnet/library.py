# SPDX-License-Identifier: Apache-2.0
"""MXNet and libhorovod_mxnet.so: the one place that loads them.

The library pushes collectives into MXNet's engine (bindings/mxnet); nothing was compiled against
MXNet, so its functions are found by name in the libmxnet that Python has loaded.
"""

import ctypes
from pathlib import Path

from horovod.common.library import native
from horovod.common.util import missing_framework

PACKAGES = "mxnet==1.9.1 numpy==1.23.5"

try:
    import mxnet as mx
except ModuleNotFoundError as error:
    raise missing_framework(
        "horovod.mxnet", "MXNet, which exists for Python up to 3.11", PACKAGES, error
    ) from error
except AttributeError as error:
    # MXNet asks NumPy for np.bool, which left it in 1.24.
    raise ImportError(
        f"MXNet could not be imported ({error}). MXNet 1.9.1 needs NumPy below 1.24: "
        "pip install numpy==1.23.5"
    ) from error

# MXNet's numbers of types, by what its arrays have as dtype.
DTYPES = {
    "float32": native.FLOAT32,
    "float64": native.FLOAT64,
    "float16": native.FLOAT16,
    "uint8": native.UINT8,
    "int32": native.INT32,
    "int8": native.INT8,
    "int64": native.INT64,
    "bool": native.BOOL,
}


def library_path():
    return Path(native.__file__).parent / "lib" / "libhorovod_mxnet.so"


def _load():
    library = ctypes.CDLL(str(library_path()))
    library.hvd_mxnet_load.argtypes = [ctypes.c_char_p]
    library.hvd_mxnet_load.restype = ctypes.c_char_p
    missing = library.hvd_mxnet_load(mx.libinfo.find_lib_path()[0].encode())
    if missing is not None:
        raise ImportError(
            f"horovod.mxnet does not work with MXNet {mx.__version__}, which lacks "
            f"{missing.decode()}. It was tested with 1.9.1."
        )
    push = library.hvd_mxnet_push
    push.restype = ctypes.c_char_p
    push.argtypes = [
        ctypes.c_int32,
        ctypes.POINTER(ctypes.c_char_p),
        ctypes.c_int32,
        ctypes.c_int32,
        ctypes.c_double,
        ctypes.c_double,
        ctypes.c_int32,
        ctypes.c_int32,
        ctypes.POINTER(ctypes.c_void_p),
        ctypes.c_int32,
    ]
    return push, library.hvd_mxnet_leave


_push, leave = _load()


def push(kind, names, process_set_id, op, prescale, postscale, root, priority, tensors):
    """Let MXNet's engine run a collective on these arrays, in place, when they are ready."""
    count = len(tensors)
    error = _push(
        kind,
        (ctypes.c_char_p * count)(*(name.encode() for name in names)),
        process_set_id,
        op,
        prescale,
        postscale,
        root,
        priority,
        (ctypes.c_void_p * count)(*(tensor.handle.value for tensor in tensors)),
        count,
    )
    if error is not None:
        raise mx.base.MXNetError(error.decode(errors="replace"))


def view(tensor):
    """(address, type, shape) of an array in host memory that nobody writes to."""
    if tensor.stype != "default" or tensor.context.device_type == "gpu":
        raise mx.base.MXNetError(
            "Horovod moves dense arrays in host memory only, and this one has the storage type "
            f"{tensor.stype!r} on {tensor.context}."
        )
    address = ctypes.c_void_p()
    mx.base.check_call(mx.base._LIB.MXNDArrayGetData(tensor.handle, ctypes.byref(address)))
    return (address.value or 0, dtype_code(tensor), tensor.shape)


def dtype_code(tensor):
    """The core's number of an array's type."""
    name = getattr(tensor.dtype, "__name__", str(tensor.dtype)).rstrip("_")
    if name not in DTYPES:
        raise mx.base.MXNetError(f"Type {name} is not supported in MPI mode.")
    return DTYPES[name]
