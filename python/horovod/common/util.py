# SPDX-License-Identifier: Apache-2.0
"""Small functions that users' code and the other packages import from here."""

import contextlib
import functools
import json
import os
import subprocess
import sys
import sysconfig
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from horovod.common.exceptions import HorovodVersionMismatchError, get_version_mismatch_message

EXTENSIONS = ["tensorflow", "torch", "mxnet"]


def get_ext_suffix() -> str:
    """File name ending of compiled Python modules."""
    return sysconfig.get_config_var("EXT_SUFFIX") or ".so"


def get_extension_full_path(pkg_path: str, *args: str) -> str:
    assert len(args) >= 1
    directory = os.path.join(os.path.dirname(pkg_path), *args[:-1])
    return os.path.join(directory, args[-1] + get_ext_suffix())


def missing_framework(package: str, title: str, pip: str, error: ImportError) -> ImportError:
    """The error to raise if a framework can't be imported, with the command that installs it."""
    return ModuleNotFoundError(
        f"{package} needs {title} ({error}). Install it for this Python: "
        f"{sys.executable} -m pip install {pip}",
        name=error.name,
    )


def check_extension(ext_name: str, ext_env_var: str, pkg_path: str, *args: Any) -> None:
    """Nothing is compiled per framework any more: the one native module serves all of them."""
    try:
        from horovod import _native  # noqa: F401
    except ImportError as error:
        raise ImportError(
            f"Extension {ext_name} has not been built: the native module of Horovod is missing "
            f"({error}). Reinstall Horovod."
        ) from error


def _cache(f):
    cache = {}

    def wrapper(*args: Any, **kwargs: Any) -> Any:
        key = (args, frozenset(kwargs.items()))
        if key not in cache:
            cache[key] = f(*args, **kwargs)
        return cache[key]

    wrapper.__name__, wrapper.__doc__ = f.__name__, f.__doc__
    return wrapper


def _check_extension_lambda(ext_base_name, fn, fn_desc, verbose):
    """Answer of fn(module) for the module horovod.<ext>, found out in a process of its own.

    A child process keeps the framework, which may be large or broken, out of this one.
    """
    code = (
        "import importlib, pickle, sys\n"
        "function = pickle.loads(bytes.fromhex(sys.argv[2]))\n"
        "module = importlib.import_module('horovod.' + sys.argv[1])\n"
        "sys.stdout.write('answer:' + repr(function(module)))\n"
    )
    import ast

    import cloudpickle

    result = subprocess.run(
        [sys.executable, "-c", code, ext_base_name, cloudpickle.dumps(fn).hex()],
        stdout=subprocess.PIPE,
        stderr=None if verbose else subprocess.DEVNULL,
        text=True,
        check=False,
    )
    _, found, answer = result.stdout.rpartition("answer:")
    if result.returncode != 0 or not found:
        if verbose:
            print(f"Checking whether extension {ext_base_name} was {fn_desc}: it does not load.")
        return None
    return ast.literal_eval(answer)


@_cache
def extension_available(ext_base_name: str, verbose: bool = False) -> bool:
    """Does horovod.<ext_base_name> load? Tried in a process of its own."""
    return _check_extension_lambda(ext_base_name, lambda module: True, "built", verbose) or False


@_cache
def gpu_available(ext_base_name: str, verbose: bool = False) -> bool:
    """Has the framework of horovod.<ext_base_name> a GPU? Asked in a process of its own."""
    if ext_base_name == "torch":
        function = _torch_has_gpu
    else:
        function = _module_has_gpu
    return _check_extension_lambda(ext_base_name, function, "running with GPU", verbose) or False


def _torch_has_gpu(module):
    import torch

    return torch.cuda.is_available()


def _module_has_gpu(module):
    return bool(module._check_has_gpu())


def _built(name):
    from horovod.common.library import native

    return native.feature(name)


@_cache
def mpi_built(verbose: bool = False) -> bool:
    return bool(_built("mpi"))


@_cache
def gloo_built(verbose: bool = False) -> bool:
    return bool(_built("gloo"))


@_cache
def nccl_built(verbose: bool = False) -> int:
    return _built("nccl")


@_cache
def ddl_built(verbose: bool = False) -> bool:
    return bool(_built("ddl"))


@_cache
def ccl_built(verbose: bool = False) -> bool:
    return bool(_built("ccl"))


@contextlib.contextmanager
def env(**kwargs):
    """Set environment variables for the time of a `with` block; None leaves one alone."""
    backup = {}
    for name, value in kwargs.items():
        if value is None:
            continue
        backup[name] = os.environ.get(name)
        os.environ[name] = value
    try:
        yield
    finally:
        for name, value in backup.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def get_average_backwards_compatibility_fun(
    reduce_ops: Any,
) -> Callable[[int | None, bool | None], int]:
    """The function that turns the old argument `average` into `op`."""

    def impl(op: int | None, average: bool | None) -> int:
        """`op`, or what the older argument `average` says; Average without either."""
        if op is not None:
            if average is not None:
                raise ValueError(
                    "The op parameter supersedes average. Please provide only one of them."
                )
            return op
        if average is None:
            return reduce_ops.Average
        warnings.warn(
            "Parameter `average` has been replaced with `op` and will be removed in v1.0",
            DeprecationWarning,
        )
        return reduce_ops.Average if average else reduce_ops.Sum

    return impl


def num_rank_is_power_2(num_rank: int) -> bool:
    """Is the number a power of two?"""
    return num_rank != 0 and (num_rank & (num_rank - 1)) == 0


def split_list(l: list, n: int) -> list[list]:  # noqa: E741
    """n runs of nearly equal length, in order; the first ones are longer."""
    length, rest = divmod(len(l), n)
    starts = [i * length + min(i, rest) for i in range(n + 1)]
    return [l[start:end] for start, end in zip(starts, starts[1:], strict=False)]


@functools.cache
def _metadata():
    path = Path(__file__).resolve().parent.parent / "metadata.json"
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}


def check_installed_version(name: str, version: str, exception: Exception | None = None) -> None:
    """Compare with metadata.json, if there is one and it names this framework.

    Nothing here depends on a framework's version, so the file that we ship names none.
    """
    installed_version = _metadata().get(name)
    if installed_version is None or installed_version == version:
        return
    if exception is None:
        warnings.warn(get_version_mismatch_message(name, version, installed_version))
    else:
        raise HorovodVersionMismatchError(name, version, installed_version) from exception


def is_iterable(x: Any) -> bool:
    """Can one loop over it?"""
    try:
        iter(x)
    except TypeError:
        return False
    return True


@_cache
def is_version_greater_equal_than(ver: str, target: str) -> bool:
    """Compare two versions; the second is major.minor.patch."""
    from packaging import version

    if not isinstance(ver, str) or not isinstance(target, str):
        raise ValueError("This function only accepts string arguments.")
    if len(target.split(".")) != 3:
        raise ValueError("We only accept target version values in the form of: major.minor.patch")
    return version.parse(ver) >= version.parse(target)
