# SPDX-License-Identifier: Apache-2.0
"""The public surface: which names users import, and how each of them is called.

    python surface.py horovod.torch >signatures/horovod.torch.txt

A public name has no leading underscore and belongs to this project: modules of frameworks that a
package imports for its own use do not count.
"""

import importlib
import inspect
import sys

# Package, and the modules below it from which scripts import names, too.
PACKAGES = {
    "horovod": (),
    "horovod.runner": (),
    "horovod.common": ("basics", "elastic", "exceptions", "process_sets", "util"),
    "horovod.torch": (
        "compression",
        "elastic",
        "elastic.sampler",
        "elastic.state",
        "functions",
        "mpi_lib_v2",
        "mpi_ops",
        "optimizer",
        "sync_batch_norm",
    ),
    "horovod.torch.distributed": (),
    "horovod.tensorflow": (
        "compression",
        "elastic",
        "functions",
        "gradient_aggregation",
        "gradient_aggregation_eager",
        "mpi_ops",
        "sync_batch_norm",
        "util",
    ),
    "horovod.tensorflow.keras": ("callbacks", "elastic"),
    "horovod.keras": ("callbacks", "elastic"),
    "horovod.jax": ("compression", "elastic", "functions", "gradients", "mpi_ops"),
    "horovod.mxnet": ("compression", "functions", "mpi_ops"),
    "horovod.numpy": ("mpi_ops",),
    "horovod.data": (),
    "horovod.spark": ("common.backend", "common.store", "runner", "task"),
    "horovod.ray": ("adapter", "elastic", "elastic_v2", "ray_logger", "runner", "train", "worker"),
}
# Names of these count wherever they are imported.
SHARED = ("horovod._keras", "horovod.common.compression", "horovod.common.util")


def modules_of(package):
    names = [package, *(f"{package}.{name}" for name in PACKAGES[package])]
    return [importlib.import_module(name) for name in names]


def _is_ours(value):
    return (getattr(value, "__module__", None) or "").startswith("horovod")


def _members(cls):
    """Public methods that a class of ours has from this project."""
    for name in sorted(dir(cls)):
        if name.startswith("_"):
            continue
        value = inspect.getattr_static(cls, name)
        function = getattr(value, "__func__", value)
        if inspect.isfunction(function) and _is_ours(function):
            yield name, getattr(cls, name)
        elif isinstance(value, property) and _is_ours(value.fget):
            yield name, value


def _belongs(value, module):
    """Is it public where it stands? A module below a package also holds names for its own use."""
    if not _is_ours(value):
        return False
    if module.__name__ in PACKAGES or inspect.ismethod(value):
        return True
    return value.__module__ in (module.__name__, *SHARED)


def public_names(module):
    """(name, object) of functions, classes and their methods, sorted by name."""
    lazy = {name: getattr(module, name) for name in getattr(module, "__all__", ())}
    for name, value in sorted({**vars(module), **lazy}.items()):
        if name.startswith("_") or not _belongs(value, module):
            continue
        if inspect.isclass(value):
            yield name, value
            for member, function in _members(value):
                yield f"{name}.{member}", function
        elif inspect.isroutine(value):
            yield name, value


def _default(value):
    from horovod.common.process_sets import global_process_set

    if value is global_process_set:
        return "global_process_set"
    if inspect.isclass(value) or inspect.isroutine(value):
        return value.__name__
    if value is None or isinstance(value, (bool, int, float, str, tuple)):
        return repr(value)
    return f"<{type(value).__name__}>"


def _text(parameter):
    prefix = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
    text = prefix + parameter.name
    return text if parameter.default is parameter.empty else f"{text}={_default(parameter.default)}"


def _has_own_constructor(cls):
    return any(
        _is_ours(vars(base)[name]) or _is_ours(base)
        for name in ("__init__", "__new__")
        for base in cls.__mro__[:1]
        if name in vars(base)
    )


def signature_of(value):
    """The arguments with kinds and defaults, without annotations; None where there are none."""
    if isinstance(value, property):
        return None
    if inspect.isclass(value) and not _has_own_constructor(value):
        return None
    parameters = list(inspect.signature(value).parameters.values())
    parts = []
    for index, parameter in enumerate(parameters):
        if parameter.kind is parameter.KEYWORD_ONLY and not any(
            p.kind in (p.KEYWORD_ONLY, p.VAR_POSITIONAL) for p in parameters[:index]
        ):
            parts.append("*")
        parts.append(_text(parameter))
    return f"({', '.join(parts)})"


def lines_of(package):
    for module in modules_of(package):
        for name, value in public_names(module):
            yield f"{module.__name__} {name}{signature_of(value) or ''}"


if __name__ == "__main__":
    print("\n".join(lines_of(sys.argv[1])))
