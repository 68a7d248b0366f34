# SPDX-License-Identifier: Apache-2.0
"""torch.compile and this package: a call of ours ends a graph, and the next begins behind it.

The compiler can't follow an operation that waits for other ranks. On its own it would look into our
Python code, find a C function, warn about it and try again in every inner frame. So our code is
marked to be left alone, and our functions to be called as they are. The marks cost nothing where
nothing is compiled, and the compiler is not imported for them.
"""

import types

from horovod.torch.private import call_as_is


def _functions(namespace, module_name):
    """The functions that a module or class defines, those of its classes among them."""
    for value in list(vars(namespace).values()):
        value = getattr(value, "__func__", value)  # static and bound methods
        if getattr(value, "__module__", None) != module_name:
            continue
        if isinstance(value, types.FunctionType):
            yield value
        elif isinstance(value, type):
            yield from _functions(value, module_name)


def leave_alone(module):
    """Mark all functions of a module."""
    for function in _functions(module, module.__name__):
        call_as_is(function, "it works with other ranks")
