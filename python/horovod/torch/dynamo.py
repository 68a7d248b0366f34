# SPDX-License-Identifier: Apache-2.0
"""torch.compile and this package: a call of ours ends a graph, and the next begins behind it.

The compiler can't follow an operation that waits for other ranks. On its own it would look into our
Python code, find a C function, warn about it and try again in every inner frame. So our code is
marked to be left alone, and our functions to be called as they are. The marks cost nothing where
nothing is compiled, and the compiler is not imported for them.
"""

import types

try:
    from torch._C._dynamo import eval_frame as _eval_frame
except ImportError:
    _eval_frame = None


def _skip_strategy():
    """What tells the compiler to leave a frame and all below it alone; None: it can't be told."""
    action = getattr(_eval_frame, "_FrameAction", None)
    strategy = getattr(_eval_frame, "_FrameExecStrategy", None)
    if action is None or strategy is None or not hasattr(_eval_frame, "set_code_exec_strategy"):
        return None
    return strategy(action.SKIP, action.SKIP)


_SKIP = _skip_strategy()


def _skip_code(code):
    if _SKIP is not None:
        _eval_frame.set_code_exec_strategy(code, _SKIP)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            _skip_code(constant)


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
        function._torchdynamo_disable = True
        function._torchdynamo_disable_msg = "it works with other ranks"
        _skip_code(function.__code__)
