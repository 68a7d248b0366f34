# SPDX-License-Identifier: Apache-2.0
"""Every public name of a package has a docstring and types."""

import importlib
import importlib.resources
import inspect

from surface import public_names


def functions_of(package):
    """(name, function) of all that can be called, methods among them."""
    for name, value in public_names(importlib.import_module(package)):
        if isinstance(value, property):
            yield name, value.fget
        elif inspect.isclass(value):
            if "__init__" in vars(value):
                yield f"{name}.__init__", value.__init__
        else:
            yield name, value


def untyped(function):
    """Parameters without a type, "return" among them."""
    signature = inspect.signature(function)
    names = [p.name for p in signature.parameters.values() if p.annotation is p.empty]
    names = [name for name in names if name not in ("self", "cls")]
    return names + (["return"] if signature.return_annotation is signature.empty else [])


def test_docstrings(package):
    names = public_names(importlib.import_module(package))
    missing = [name for name, value in names if not (value.__doc__ or "").strip()]
    assert not missing


def test_types(package):
    missing = {name: untyped(function) for name, function in functions_of(package)}
    missing = {name: parts for name, parts in missing.items() if parts}
    assert not missing


def test_the_package_is_typed():
    import horovod

    assert (importlib.resources.files(horovod) / "py.typed").is_file()
